#include "router/models.h"

static bool has_name(const served_model *model, slice name)
{
    bool found = slice_equal(name, slice_of(model->prompt.identity.name));
    for (size_t i = 0; !found && model->aliases && i < model->aliases->count; i++)
        found = slice_equal(name, slice_of(model->aliases->items[i]));
    return found;
}

const served_model *models_find(const models *m, slice name)
{
    for (size_t i = 0; i < m->count; i++)
        if (has_name(&m->items[i], name))
            return &m->items[i];
    return NULL;
}

served_model *models_of_weights(models *m, hash128 weights)
{
    for (size_t i = 0; i < m->count; i++) // whatever versions another one lists
        if (hash128_equal(m->items[i].prompt.identity.weights, weights))
            return &m->items[i];
    for (size_t i = 0; i < m->count; i++)
        if (versions_allow(&m->items[i].versions, weights))
            return &m->items[i];
    return NULL;
}

void models_list_names(const models *m, buffer *out)
{
    for (size_t i = 0; i < m->count; i++)
        buffer_printf(out, "%s\"%s\"", i ? ", " : "", m->items[i].prompt.identity.name);
}

uint32_t model_context(const served_model *model)
{
    return atomic_load_explicit(&model->context, memory_order_relaxed);
}

// ---- opening ------------------------------------------------------------------------------------

static status names_check(const models *m, const served_model *fresh, error *failure)
{
    size_t aliases = fresh->aliases ? fresh->aliases->count : 0;
    for (size_t i = 0; i <= aliases; i++) {
        const char *name = i ? fresh->aliases->items[i - 1] : fresh->prompt.identity.name;
        if (models_find(m, slice_of(name)))
            return error_set(failure, STATUS_BAD_CONFIG, "models",
                             "two models are called \"%s\"; every name and alias may be there once",
                             name);
    }
    return STATUS_OK;
}

// A worker's weights must say which model it serves.
static status weights_check(models *m, const served_model *fresh, error *failure)
{
    for (size_t i = 0; i <= fresh->versions.count; i++) {
        hash128 weights = i ? fresh->versions.items[i - 1].weights : fresh->prompt.identity.weights;
        const served_model *other = models_of_weights(m, weights);
        if (other)
            return error_set(failure, STATUS_BAD_CONFIG, "models",
                             "models \"%s\" and \"%s\" have the same weights; give one model "
                             "several names with aliases",
                             other->prompt.identity.name, fresh->prompt.identity.name);
    }
    return STATUS_OK;
}

// How its answers are read, where the settings say it.
static void reading_choose(const model_settings *source, prompt_model *model)
{
    if (source->tool_format && strcmp(source->tool_format, "auto") != 0)
        CHECK(tool_format_find(slice_of(source->tool_format), &model->tools)); // config checked it
    if (source->reasoning && strcmp(source->reasoning, "off") == 0)
        model->reasons = false;
}

status models_add(models *m, const model_settings *source, error *failure)
{
    status result = STATUS_OK;
    if (m->count == MODELS_MAX)
        return error_set(failure, STATUS_BAD_CONFIG, "models",
                         "there are too many models; a router serves at most %d", MODELS_MAX);
    served_model *fresh = &m->items[m->count];
    *fresh = (served_model){ .index = m->count, .aliases = &source->aliases };
    TRY(prompt_model_open(source->file, source->name, source->chat_template, &fresh->prompt,
                          failure));
    reading_choose(source, &fresh->prompt);
    TRY(versions_parse(&source->versions, fresh->prompt.identity.weights, &fresh->versions,
                       failure));
    TRY(names_check(m, fresh, failure));
    TRY(weights_check(m, fresh, failure));
    atomic_store_explicit(&fresh->context, fresh->prompt.context, memory_order_relaxed);
    m->count++;
    return STATUS_OK;
fail:
    prompt_model_close(&fresh->prompt);
    return result;
}

status models_open(const router_settings *settings, models *m, error *failure)
{
    status result = STATUS_OK;
    const model_settings *further = settings->further_models.items;
    if (settings->model.file[0])
        TRY(models_add(m, &settings->model, failure));
    for (size_t i = 0; i < settings->further_models.count; i++) {
        if (further[i].file[0] == 0) {
            result = error_set(failure, STATUS_BAD_CONFIG, "models",
                               "models[%zu] has no file; it must name a GGUF file", i);
            goto fail;
        }
        TRY(models_add(m, &further[i], failure));
    }
    if (m->count > 0)
        return STATUS_OK;
    result = error_set(failure, STATUS_BAD_CONFIG, "router.model",
                       "router.model is empty, and so is the list models; one of them must name a "
                       "GGUF file");
fail:
    models_close(m);
    return result;
}

void models_close(models *m)
{
    for (size_t i = 0; i < m->count; i++)
        prompt_model_close(&m->items[i].prompt);
    m->count = 0;
}

// ---- encoders -----------------------------------------------------------------------------------

status model_encoders_open(const models *m, model_encoders *opened)
{
    *opened = (model_encoders){ 0 };
    for (size_t i = 0; i < m->count; i++)
        if (encoder_open(m->items[i].prompt.tokens, &opened->of[i]) != STATUS_OK) {
            model_encoders_close(opened);
            return STATUS_NO_MEMORY;
        }
    return STATUS_OK;
}

void model_encoders_close(model_encoders *e)
{
    for (size_t i = 0; i < MODELS_MAX; i++)
        if (e->of[i])
            encoder_close(e->of[i]);
    *e = (model_encoders){ 0 };
}
