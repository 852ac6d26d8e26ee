#include "eval/passage.h"

#include "base/log.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONTEXT_DEFAULT 1024

// Bytes that are no text would be replaced before they are encoded, and the figures would be those
// of another text.
static status text_check(const char *name, slice text, error *failure)
{
    for (size_t at = 0, size; at < text.size; at += size) {
        size = utf8_sequence_size(text.data + at, text.size - at);
        if (size == 0)
            return error_set(failure, STATUS_INVALID, "text", "%s is not UTF-8 at byte %zu", name,
                             at);
    }
    return STATUS_OK;
}

status passage_open(const eval_options *o, const subject *s, passage *p, error *failure)
{
    int32_t trained = s->config.context;
    walk w = { 0 };
    status result;
    *p = (passage){ 0 };
    TRY(subject_file_read(o->text, &p->bytes, failure));
    TRY(text_check(o->text, buffer_slice(&p->bytes), failure));
    TRY(subject_encode(s, buffer_slice(&p->bytes), &p->tokens, failure));
    p->plan = (walk_plan){
        .text = p->tokens.ids,
        .count = (int32_t)p->tokens.count,
        .bos = s->bos,
        .context = o->context > 0              ? o->context
                   : CONTEXT_DEFAULT < trained ? CONTEXT_DEFAULT
                                               : trained,
        .stride = o->stride,
        .windows = o->windows,
        .chunk = s->chunk,
    };
    if (p->plan.context > trained) {
        result = error_set(failure, STATUS_CONTEXT_LENGTH, "context",
                           "--context is %d; %s was trained for %d tokens", p->plan.context,
                           s->file, trained);
        goto fail;
    }
    TRY(walk_open(&p->plan, &w, failure));
    walk_trim(&p->plan);
    p->scored = walk_count(&p->plan, &p->windows);
    if (p->scored == 0)
        result = error_set(failure, STATUS_INVALID, "text",
                           "%s has %d tokens; there is nothing "
                           "to predict",
                           o->text, p->plan.count);
fail:
    walk_close(&w);
    if (result != STATUS_OK)
        passage_close(p);
    return result;
}

void passage_close(passage *p)
{
    buffer_close(&p->bytes);
    token_list_close(&p->tokens);
    *p = (passage){ 0 };
}

int32_t passage_context(const walk_plan *plan)
{
    return plan->count + 1 < plan->context ? plan->count + 1 : plan->context;
}

// One step of the walk: the reference's rows, and whose turn it is.
typedef struct step {
    const walk *walk;
    float *rows; // [chunk][vocabulary], from position row_first on; NULL: no reference
    int32_t vocabulary, row_first;
    const passage_run *run;
    const subject *subject; // whose turn it is
    quality *quality;
    error *failure;
    status result;
} step;

static float *step_row(const step *s, int32_t position)
{
    return s->rows + (size_t)(position - s->row_first) * (size_t)s->vocabulary;
}

static void row_store(void *context, int32_t position, const float *logits)
{
    step *s = context;
    memcpy(step_row(s, position), logits, (size_t)s->vocabulary * sizeof logits[0]);
    if (s->run->own)
        quality_add(s->run->own, logits, NULL, s->walk->input[position + 1], 0);
    if (s->run->save && s->result == STATUS_OK)
        s->result = reference_write(s->run->save, logits, s->failure);
}

static void row_measure(void *context, int32_t position, const float *logits)
{
    step *s = context;
    int32_t token = s->walk->input[position + 1];
    quality_add(s->quality, logits, s->rows ? step_row(s, position) : NULL, token,
                subject_token_size(s->subject, token));
}

static status reference_fill(const passage_run *run, step *s)
{
    const walk *w = s->walk;
    if (run->reference)
        forced_run(run->reference->model, w->input, w->begin, w->end, w->first, row_store, s);
    for (int32_t p = s->row_first; run->stored && p < w->end && s->result == STATUS_OK; p++)
        s->result = reference_read(run->stored, step_row(s, p), s->failure);
    return s->result;
}

static status steps_run(const passage_run *run, walk *w, step *s, const char *what)
{
    int64_t done = 0;
    while (walk_next(w)) {
        s->row_first = w->first > w->begin ? w->first : w->begin;
        status result = reference_fill(run, s);
        if (result != STATUS_OK)
            return result;
        for (int i = 0; i < run->count; i++) {
            s->subject = run->models[i];
            s->quality = &run->qualities[i];
            forced_run(run->models[i]->model, w->input, w->begin, w->end, w->first, row_measure, s);
        }
        done += w->end > s->row_first ? w->end - s->row_first : 0;
        log_progress(what, (double)done, (double)run->scored);
    }
    return STATUS_OK;
}

status passage_walk(const passage_run *run, const char *what, error *failure)
{
    walk w = { 0 };
    step s = { .walk = &w, .run = run, .failure = failure };
    status result;
    TRY(walk_open(&run->plan, &w, failure));
    s.vocabulary = run->stored ? (int32_t)run->stored->head.vocabulary : 0;
    if (run->reference)
        s.vocabulary = run->reference->config.vocabulary;
    if (s.vocabulary > 0) {
        s.rows = malloc((size_t)run->plan.chunk * (size_t)s.vocabulary * sizeof s.rows[0]);
        if (!s.rows) {
            result = error_set(failure, STATUS_NO_MEMORY, "",
                               "memory is short for %d rows of logits", run->plan.chunk);
            goto fail;
        }
    }
    TRY(steps_run(run, &w, &s, what));
    for (int i = 0; i < run->count && result == STATUS_OK; i++)
        if (!isfinite(run->qualities[i].nll))
            result =
                error_set(failure, STATUS_NUMERIC, "model",
                          "the logits of %s hold values that are no numbers", run->models[i]->file);
fail:
    free(s.rows);
    walk_close(&w);
    return result;
}
