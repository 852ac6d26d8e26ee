#include "eval/eval.h"
#include "eval/line.h"
#include "eval/passage.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct comparison {
    const eval_options *options;
    subject_name names[SUBJECT_NAMES_MAX];
    int count;
    subject reference;
    reference stored, save;
    passage passage;
    subject models[EVAL_MODELS_MAX];
    subject *model_list[EVAL_MODELS_MAX];
    quality qualities[EVAL_MODELS_MAX];
    quality own; // the reference's, where there is no model to tell it
    passage_run run;
} comparison;

static status options_check(const eval_options *o, error *failure)
{
    if (!o->reference == !o->reference_file)
        return error_set(failure, STATUS_INVALID, "reference",
                         "a comparison needs one of --reference and --reference-file");
    if (o->reference && !o->text)
        return error_set(failure, STATUS_INVALID, "text", "--reference needs --text");
    if (o->reference_file &&
        (o->text || o->save_reference || o->context || o->stride || o->windows))
        return error_set(failure, STATUS_INVALID, "reference-file",
                         "--reference-file brings its own text and windows, and is not stored "
                         "again");
    if (o->model_count == 0 && !o->save_reference)
        return error_set(failure, STATUS_INVALID, "model",
                         "a comparison needs --model (or --save-reference)");
    return STATUS_OK;
}

// The reference's own model and text.
static status reference_begin(comparison *c, error *failure)
{
    const eval_options *o = c->options;
    subject_name name;
    subject *s = &c->reference;
    status result;
    TRY(subject_name_parse(o->reference, o->kv_types[0], &name, failure));
    TRY(subject_open(&name, s, failure));
    TRY(passage_open(o, s, &c->passage, failure));
    c->run.plan = c->passage.plan;
    c->run.reference = s;
    if (o->save_reference) {
        reference_head head = { .vocabulary = (uint32_t)s->config.vocabulary,
                                .digest = s->vocabulary };
        snprintf(head.model, sizeof head.model, "%s", s->file);
        snprintf(head.kv_type, sizeof head.kv_type, "%s", s->name.kv_type);
        TRY(reference_create(o->save_reference, &head, &c->run.plan, &c->save, failure));
        c->run.save = &c->save;
    }
fail:
    return result;
}

// What models are compared with, as far as comparing vocabularies needs it.
static status stored_begin(comparison *c, error *failure)
{
    status result;
    TRY(reference_open(c->options->reference_file, &c->stored, failure));
    snprintf(c->reference.file, sizeof c->reference.file, "%s", c->stored.head.model);
    c->reference.config.vocabulary = (int32_t)c->stored.head.vocabulary;
    c->reference.vocabulary = c->stored.head.digest;
    c->reference.bos = c->stored.head.bos;
    c->run.plan = reference_plan(&c->stored);
    c->run.stored = &c->stored;
fail:
    return result;
}

// Every vocabulary is compared before any weights are loaded.
static status models_begin(comparison *c, error *failure)
{
    const eval_options *o = c->options;
    int32_t context = passage_context(&c->run.plan);
    status result;
    TRY(subject_names(o, c->names, &c->count, failure));
    if (c->count > EVAL_MODELS_MAX)
        return error_set(failure, STATUS_INVALID, "kv-type",
                         "models and types of cache make %d comparisons; at most %d are held in "
                         "memory at a time",
                         c->count, EVAL_MODELS_MAX);
    for (int i = 0; i < c->count; i++) {
        TRY(subject_open(&c->names[i], &c->models[i], failure));
        TRY(subject_compare(&c->reference, &c->models[i], failure));
        c->model_list[i] = &c->models[i];
        c->run.plan.chunk = c->models[i].chunk; // one for all: it follows from the vocabulary
    }
    if (c->run.reference)
        TRY(subject_load(c->run.reference, context, o->threads, o->level, failure));
    for (int i = 0; i < c->count; i++)
        TRY(subject_load(&c->models[i], context, o->threads, o->level, failure));
fail:
    return result;
}

static status qualities_begin(comparison *c, error *failure)
{
    int32_t windows;
    passage_run *run = &c->run;
    status result;
    run->scored = walk_count(&run->plan, &windows);
    run->models = c->model_list;
    run->qualities = c->qualities;
    run->count = c->count;
    if (run->count == 0) {
        run->own = &c->own;
        TRY(quality_open(&c->own, c->reference.config.vocabulary, 0));
    }
    for (int i = 0; i < run->count; i++)
        TRY(quality_open(&c->qualities[i], c->reference.config.vocabulary, run->scored));
    return STATUS_OK;
fail:
    return error_set(failure, result, "", "memory is short for %lld tokens",
                     (long long)run->scored);
}

static status model_print(const comparison *c, const subject *s, quality *q, error *failure)
{
    quality_mean nll = quality_nll(q), gap = quality_gap(q), kl = quality_kl(q);
    double p99 = quality_kl_percentile(q, 99), worst = quality_kl_percentile(q, 100);
    if (c->options->json)
        return line_print(json_pack("{s:s,s:s,s:s,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "what",
                                    "compare", "model", s->file, "kv_type", s->name.kv_type,
                                    "scored", (json_int_t)q->count, "nll", nll.mean,
                                    "nll_difference", gap.mean, "nll_difference_error", gap.error,
                                    "perplexity", quality_perplexity(q), "kl_mean", kl.mean,
                                    "kl_error", kl.error, "kl_p99", p99, "kl_max", worst,
                                    "top_same", quality_top_share(q)),
                          failure);
    printf("%s, kv %s\n", s->file, s->name.kv_type);
    printf("  NLL             %.6f, difference %+.6f +- %.6f (paired)\n", nll.mean, gap.mean,
           gap.error);
    printf("  perplexity      %.4f\n", quality_perplexity(q));
    printf("  KL divergence   mean %.7f +- %.7f, 99th percentile %.6f, largest %.6f nats\n",
           kl.mean, kl.error, p99, worst);
    printf("  top-1 the same  %.2f %%\n", 100 * quality_top_share(q));
    return STATUS_OK;
}

static status comparison_print(comparison *c, error *failure)
{
    const passage_run *run = &c->run;
    const quality *first = run->own ? run->own : &c->qualities[0];
    double nll = quality_nll(first).mean - (run->own ? 0 : quality_gap(first).mean);
    const char *kv = run->stored ? c->stored.head.kv_type : c->reference.name.kv_type;
    status result = STATUS_OK;
    if (c->options->json)
        TRY(line_print(json_pack("{s:s,s:s,s:s,s:I,s:f,s:f}", "what", "reference", "model",
                                 c->reference.file, "kv_type", kv, "scored",
                                 (json_int_t)first->count, "nll", nll, "perplexity", exp(nll)),
                       failure));
    else
        printf("reference: %s, kv %s\n  NLL             %.6f over %lld tokens\n  perplexity      "
               "%.4f\n",
               c->reference.file, kv, nll, (long long)first->count, exp(nll));
    for (int i = 0; i < c->count; i++)
        TRY(model_print(c, &c->models[i], &c->qualities[i], failure));
fail:
    fflush(stdout);
    return result;
}

static status comparison_run(comparison *c, error *failure)
{
    status result;
    TRY(options_check(c->options, failure));
    TRY(c->options->reference ? reference_begin(c, failure) : stored_begin(c, failure));
    TRY(models_begin(c, failure));
    TRY(qualities_begin(c, failure));
    TRY(passage_walk(&c->run, "comparing", failure));
    TRY(reference_close(&c->save, failure));
    TRY(comparison_print(c, failure));
fail:
    return result;
}

status eval_compare(const eval_options *o, error *failure)
{
    static comparison c;
    c = (comparison){ .options = o };
    status result = comparison_run(&c, failure);
    for (int i = 0; i < EVAL_MODELS_MAX; i++) {
        quality_close(&c.qualities[i]);
        subject_close(&c.models[i]);
    }
    quality_close(&c.own);
    reference_close(&c.stored, NULL);
    reference_close(&c.save, NULL);
    passage_close(&c.passage);
    subject_close(&c.reference);
    return result;
}
