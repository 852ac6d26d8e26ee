// A loaded model and its one forward pass, which serves prompt chunks, decode steps and
// verification alike: a batch is "some tokens of some sequences".
//
// The engine owns a model; its step thread alone calls it. Everything is allocated by model_open
// for the limits given there. Per layer: x += W_o attention(norm(x)); x += W_down (silu(gate) * up)
// of norm(x). Only rows whose logits are wanted go through the last layer's second half, the final
// norm and the head.
#pragma once

#include "model/weights.h"

typedef struct model model;

typedef struct model_limits {
    int32_t rows;       // tokens of a step
    int32_t logit_rows; // of them with logits
    int32_t positions;  // tokens of a sequence
} model_limits;

// Read configuration and weights from `file`, which may be closed afterwards. `table` and `device`
// outlive the model. Errors as model_config_read and model_weights_open.
status model_open(const gguf *file, const model_config *config, const model_limits *limits,
                  const backend_table *table, backend *device, model **opened, error *failure);
// The first `layers` of another model on the same backend, with its final norm and head; the
// weights stay the other's, which outlives this one. limits->positions is at most the other's.
status model_open_part(const model *other, int32_t layers, const model_limits *limits,
                       model **opened, error *failure);
void model_close(model *m);

const model_config *model_config_of(const model *m);
const model_weights *model_weights_of(const model *m);
size_t model_activation_bytes(const model *m);

// Enqueue the whole pass of `batch` over the pages of `kv`. Afterwards row i of model_logits holds
// the logits [rows of the head] after token row batch->logit_index[i]. Rows <= limits.
void model_forward(model *m, backend_queue *queue, const kv_memory *kv, const backend_batch *batch);
backend_activation *model_logits(const model *m);
