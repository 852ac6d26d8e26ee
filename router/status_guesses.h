// What /cluster says of a worker's guessed tokens.
#pragma once

#include "base/buffer.h"
#include "net/guesses.h"

// Append `,"guesses":{...}` with the names of proto/cluster.proto; nothing where nothing is told.
void status_guesses_append(const guesses *g, buffer *out);
