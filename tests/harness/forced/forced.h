// Logits of given tokens ("teacher forcing"), straight from model_forward and without an engine:
// what tests of the model compare with references, and what penstock-eval measures quality with.
//
// A forced holds one model and the cache of one sequence. Positions are computed in chunks; their
// logits do not depend on where a chunk ends. One thread owns it.
#pragma once

#include "model/model.h"

typedef struct forced forced;

typedef struct forced_settings {
    const char *model; // path of a GGUF file
    const char *level; // auto | scalar | avx2 | avx512
    int threads;       // 0: what affinity and the cgroup quota allow
    tensor_type kv_type;
    int32_t context; // tokens of the sequence at most; no more than the model was trained for
    int32_t chunk;   // rows computed at a time at most: memory holds the logits of so many
} forced_settings;

// Errors name the key, tensor or limit, behind the path of the file.
status forced_open(const forced_settings *settings, forced **opened, error *failure);
void forced_close(forced *f); // accepts NULL
const model_config *forced_config(const forced *f);
const model_weights *forced_weights(const forced *f);
const kv_layout *forced_layout(const forced *f);

// The logits [vocabulary] after the token at `position`, valid during the call.
typedef void forced_take(void *context, int32_t position, const float *logits);

// Compute tokens[begin] to tokens[end - 1] behind tokens 0 to begin - 1, which earlier calls
// computed (others may follow the same beginning: what stood behind it is forgotten). `take` gets
// the logits of positions from `first` on, ascending. 0 <= begin <= end <= context.
void forced_run(forced *f, const int32_t *tokens, int32_t begin, int32_t end, int32_t first,
                forced_take *take, void *context);

// log(sum of exp) of a row, in double precision.
double forced_log_sum(const float *logits, int32_t count);
// The index of the largest; the lowest among equals.
int32_t forced_best(const float *logits, int32_t count);
