// An independent, naive forward pass of the architectures llama, qwen2 and gemma3 in double
// precision: the oracle of the engine's tests.
//
// It shares nothing with common/model: no batch, no pages, no cache, one token after the other with
// every sum written out. Weights are decoded as their type defines them; nothing else is rounded.
#pragma once

#include "checkpoint/gguf.h"

typedef struct llama_oracle llama_oracle;

// The file must outlive the oracle; its metadata are taken on trust.
llama_oracle *llama_oracle_open(const gguf *file);
void llama_oracle_close(llama_oracle *o);
int llama_oracle_vocabulary(const llama_oracle *o);
// The log-probabilities of the token after each of `count` tokens: [count][vocabulary].
void llama_oracle_run(const llama_oracle *o, const int32_t *tokens, int count, double *logprobs);
