// What the schema of proto/cluster.proto cannot say: bounds, ranges, required parts. Used by
// message.c only.
//
// The checks walk a message by its descriptor, so that a new field is covered the day it is added:
// every string is UTF-8 and bounded, every enum is a known value, every sub-message is there unless
// it is listed as optional. Rules of single messages (counts that belong together, numbers in
// range) are a table beside the walk.
#pragma once

#include "base/status.h"

#include <protobuf-c/protobuf-c.h>

// STATUS_PEER_PROTOCOL and a sentence that names the field, or STATUS_OK. Any thread.
status message_check(const ProtobufCMessage *message, error *failure);
