// What the benches of an engine alone share: its ordinary settings, and sequences of any tokens
// (speed does not depend on which).
#pragma once

#include "model/engine.h"

// Settings of an engine with nothing chosen but the model; the caller sets sizes.
engine_settings workload_settings(char *model);
// Room in the pool for `sequences` of `tokens` tokens each, whatever the KV type.
uint64_t workload_pool_bytes(const engine_settings *settings, int layers, int kv_heads,
                             int head_size, int sequences, int tokens);
// Open and start a sequence of `count` prompt tokens, of which `number` chooses which: sequences of
// unlike number share no prefix. It generates exactly `max_tokens`. The caller made room for it:
// where there is none this is the end of the program.
sequence *workload_begin(engine *e, int number, int count, int max_tokens, sequence_mode mode,
                         void *owner);
// STATUS_OVERLOADED where there is no room now; else as workload_begin.
status workload_try(engine *e, int number, int count, int max_tokens, sequence_mode mode,
                    void *owner, sequence **begun);
