// The world's model: a function of the tokens before that everybody knows in advance.
//
// It stands in for model/model.h and the CPU's backend. A page holds, for each of its tokens, the
// hash of all tokens up to it; a step reads every position before its rows, so that a page that
// was written by anybody else is noticed when it is read. The next token is drawn from the last
// hash and the request's seed alone.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FAKE_MODEL_END_TOKEN 2 // of harness/tiny_model.h: end of turn

// The hash behind one more token; 0 is before the first.
uint64_t fake_model_chain(uint64_t before, int32_t token);
// The token after `chain`; `may_end`: end tokens are allowed.
int32_t fake_model_draw(uint64_t chain, uint64_t seed, int may_end);
