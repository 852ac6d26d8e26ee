// The models that this router serves: for each its tokenizer, template and identity, the names that
// requests call it by, and the versions that may be alive.
//
// The first is the one of `router.model`, further ones come from the list `models`. Names and
// aliases are all different, and so are the weights: those that a worker registers with say which
// model it belongs to. The table does not change after the start but for `context`, which the
// registry keeps, and `versions`, which the loop replaces; any thread may read the rest.
#pragma once

#include "router/prompt.h"
#include "router/settings.h"
#include "router/versions.h"

#include <stdatomic.h>

typedef struct served_model {
    size_t index; // in the table
    prompt_model prompt;
    const model_settings *source; // borrowed from the settings
    versions versions;            // the loop's
    atomic_uint context;          // tokens of a sequence that its workers take now; while there is
                                  // none, the file's own number
} served_model;

typedef struct models {
    size_t count;
    served_model items[MODELS_MAX];
} models;

// Zeroed before. STATUS_BAD_CONFIG, BAD_FILE ... with a sentence: no model at all, a name or
// weights that two of them have. On failure nothing is left to close.
status models_open(const router_settings *settings, models *m, error *failure);
// One more model, as models_open adds them; what it borrows must outlive the table.
status models_add(models *m, const model_settings *source, error *failure);
void models_close(models *m); // zeroed is fine
// Whether the versions in `fresh` would do for the models that run and were opened with `settings`.
// A group of `models` with another file than before needs a restart and does not count.
// STATUS_BAD_CONFIG names the key.
status models_versions_check(const models *m, const router_settings *settings,
                             const router_settings *fresh, error *failure);
// The settings that the models were opened with hold other versions now, which were checked.
void models_versions_take(models *m);

// By a name or an alias; NULL: there is none.
const served_model *models_find(const models *m, slice name);
// The one that workers of these weights belong to, as a version or the file itself; NULL: none.
served_model *models_of_weights(models *m, hash128 weights);
// Some of the models, by bits of their indexes.
typedef uint32_t model_set;
_Static_assert(MODELS_MAX <= 32, "a model_set has 32 bits");
bool model_set_has(model_set set, const served_model *model);
// The first one that is not hidden; NULL: all of them are.
const served_model *models_first(const models *m, model_set hidden);
// Append `"a", "b"`: what an error tells of the models that exist and are not hidden.
void models_list_names(const models *m, model_set hidden, buffer *out);
uint32_t model_context(const served_model *model);

// One thread's encoders, one for each model.
typedef struct model_encoders {
    encoder *of[MODELS_MAX]; // by served_model.index
} model_encoders;

// STATUS_NO_MEMORY: nothing is left to close.
status model_encoders_open(const models *m, model_encoders *opened);
void model_encoders_close(model_encoders *e); // zeroed is fine
