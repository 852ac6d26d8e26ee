#include "router/models.h"

#include <stdio.h>

static bool has_name(const served_model *model, slice name)
{
    bool found = slice_equal(name, slice_of(model->prompt.identity.name));
    for (size_t i = 0; !found && i < model->source->aliases.count; i++)
        found = slice_equal(name, slice_of(model->source->aliases.items[i]));
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

bool model_set_has(model_set set, const served_model *model)
{
    return set >> model->index & 1;
}

const served_model *models_first(const models *m, model_set hidden)
{
    for (size_t i = 0; i < m->count; i++)
        if (!model_set_has(hidden, &m->items[i]))
            return &m->items[i];
    return NULL;
}

void models_list_names(const models *m, model_set hidden, buffer *out)
{
    const char *comma = "";
    for (size_t i = 0; i < m->count; i++) {
        if (model_set_has(hidden, &m->items[i]))
            continue;
        buffer_printf(out, "%s\"%s\"", comma, m->items[i].prompt.identity.name);
        comma = ", ";
    }
}

uint32_t model_context(const served_model *model)
{
    return atomic_load_explicit(&model->context, memory_order_relaxed);
}

// ---- opening ------------------------------------------------------------------------------------

static status names_check(const models *m, const served_model *fresh, error *failure)
{
    const config_strings *aliases = &fresh->source->aliases;
    for (size_t i = 0; i <= aliases->count; i++) {
        const char *name = i ? aliases->items[i - 1] : fresh->prompt.identity.name;
        if (models_find(m, slice_of(name)))
            return error_set(failure, STATUS_BAD_CONFIG, "models",
                             "two models are called \"%s\"; every name and alias may be there once",
                             name);
    }
    return STATUS_OK;
}

// A worker's weights must say which model it serves: no two models may allow the same ones.
static status weights_check(const served_model *one, const versions *of_one,
                            const served_model *two, const versions *of_two, error *failure)
{
    bool shared = versions_allow(of_one, of_two->own);
    for (size_t i = 0; i < of_two->count && !shared; i++)
        shared = versions_allow(of_one, of_two->items[i].weights);
    return shared ? error_set(failure, STATUS_BAD_CONFIG, "models",
                              "models \"%s\" and \"%s\" have the same weights; give one model "
                              "several names with aliases",
                              one->prompt.identity.name, two->prompt.identity.name)
                  : STATUS_OK;
}

// `key` has room for 96 bytes.
static const char *versions_key(const router_settings *s, const model_settings *source, char *key)
{
    const model_settings *further = s->further_models.items;
    if (source == &s->model)
        return "policy.versions";
    snprintf(key, 96, "models[%td].versions", source - further);
    return key;
}

// How its answers are read, where the settings say it.
static void reading_choose(const model_settings *source, prompt_model *model)
{
    if (source->tool_format && strcmp(source->tool_format, "auto") != 0)
        CHECK(tool_format_find(slice_of(source->tool_format), &model->tools)); // config checked it
    if (source->reasoning && strcmp(source->reasoning, "off") == 0)
        model->reasons = false;
}

// `key` of the settings holds its versions.
static status model_add(models *m, const model_settings *source, const char *key, error *failure)
{
    status result = STATUS_OK;
    if (m->count == MODELS_MAX)
        return error_set(failure, STATUS_BAD_CONFIG, "models",
                         "there are too many models; a router serves at most %d", MODELS_MAX);
    served_model *fresh = &m->items[m->count];
    *fresh = (served_model){ .index = m->count, .source = source };
    TRY(prompt_model_open(source->file, source->name, source->chat_template, &fresh->prompt,
                          failure));
    reading_choose(source, &fresh->prompt);
    TRY(versions_parse(key, &source->versions, fresh->prompt.identity.weights, &fresh->versions,
                       failure));
    TRY(names_check(m, fresh, failure));
    for (size_t i = 0; i < m->count; i++)
        TRY(weights_check(&m->items[i], &m->items[i].versions, fresh, &fresh->versions, failure));
    atomic_store_explicit(&fresh->context, fresh->prompt.context, memory_order_relaxed);
    m->count++;
    return STATUS_OK;
fail:
    prompt_model_close(&fresh->prompt);
    return result;
}

status models_add(models *m, const model_settings *source, error *failure)
{
    return model_add(m, source, "versions", failure);
}

status models_open(const router_settings *settings, models *m, error *failure)
{
    status result = STATUS_OK;
    const model_settings *further = settings->further_models.items;
    char key[96];
    if (settings->model.file[0])
        TRY(model_add(m, &settings->model, versions_key(settings, &settings->model, key), failure));
    for (size_t i = 0; i < settings->further_models.count; i++) {
        if (further[i].file[0] == 0) {
            result = error_set(failure, STATUS_BAD_CONFIG, "models",
                               "models[%zu] has no file; it must name a GGUF file", i);
            goto fail;
        }
        TRY(model_add(m, &further[i], versions_key(settings, &further[i], key), failure));
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

// ---- reading the versions again -----------------------------------------------------------------

// Where the fresh settings hold what a running model would take: the versions of router.model are
// taken in any case, those of a group only where it is the same one. NULL: it takes none.
static const model_settings *fresh_of(const router_settings *s, const router_settings *fresh,
                                      const served_model *model)
{
    const model_settings *further = s->further_models.items, *groups = fresh->further_models.items;
    if (model->source == &s->model)
        return &fresh->model;
    size_t at = (size_t)(model->source - further);
    bool same = at < fresh->further_models.count && strcmp(groups[at].file, further[at].file) == 0;
    return same ? &groups[at] : NULL;
}

status models_versions_check(const models *m, const router_settings *settings,
                             const router_settings *fresh, error *failure)
{
    status result = STATUS_OK;
    versions parsed[MODELS_MAX];
    char key[96];
    for (size_t i = 0; i < m->count; i++) {
        const served_model *model = &m->items[i];
        const model_settings *source = fresh_of(settings, fresh, model);
        parsed[i] = model->versions;
        if (source)
            TRY(versions_parse(versions_key(fresh, source, key), &source->versions,
                               model->versions.own, &parsed[i], failure));
        for (size_t k = 0; k < i; k++)
            TRY(weights_check(&m->items[k], &parsed[k], model, &parsed[i], failure));
    }
fail:
    return result;
}

void models_versions_take(models *m)
{
    error failure;
    for (size_t i = 0; i < m->count; i++) {
        served_model *model = &m->items[i];
        CHECK(versions_parse("versions", &model->source->versions, model->versions.own,
                             &model->versions, &failure) == STATUS_OK);
    }
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
