// A ticket as the engine's request: one meaning for both workers.
#pragma once

#include "model/engine.h"
#include "net/message.h"

// Fill `request` (its arrays are borrowed from the ticket and `biases`, which has room for
// SEQUENCE_BIAS_MAX). STATUS_UNSUPPORTED and a sentence for what this build does not serve
// (adapters). The grammar is not its: worker/guide.h. Values are checked by engine_sequence_open.
status ticket_read(const message_ticket *ticket, sequence_mode mode, void *owner,
                   backend_token_bias *biases, sequence_request *request, error *failure);
