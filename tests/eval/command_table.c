#include "bench/output.h"
#include "bench/speed.h"
#include "bench/workload.h"
#include "eval/choices.h"
#include "eval/eval.h"
#include "eval/passage.h"
#include "eval/plot.h"

#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECODE_SEQUENCES 32

typedef struct evaluation {
    const eval_options *options;
    subject_name names[SUBJECT_NAMES_MAX];
    table_row rows[SUBJECT_NAMES_MAX];
    int count;
    question_list questions; // empty: no set was given
    buffer set;
    subject reference; // the first row's, loaded
} evaluation;

static status memory_fill(const eval_options *o, const subject *s, table_row *row, error *failure)
{
    const kv_layout *layout = forced_layout(s->model);
    int64_t pages = ((int64_t)o->pool_mib << 20) / layout->page_bytes;
    int64_t pages_each = o->sequence_tokens / layout->page_tokens + 1; // as the engine takes them
    if (o->sequence_tokens > s->config.context)
        return error_set(failure, STATUS_CONTEXT_LENGTH, "sequence-tokens",
                         "--sequence-tokens is %d; %s was trained for %d tokens",
                         o->sequence_tokens, s->file, s->config.context);
    snprintf(row->model, sizeof row->model, "%s", s->file);
    snprintf(row->kv_type, sizeof row->kv_type, "%s", s->name.kv_type);
    row->weight_mib = (double)forced_weights(s->model)->bytes / (1 << 20);
    row->kv_token_bytes = (double)layout->page_bytes / layout->page_tokens;
    row->resident = (double)(pages / pages_each);
    return STATUS_OK;
}

// Likelihood of the text, and KL where the model shares the reference's tokenizer.
static status text_measure(evaluation *e, subject *s, const passage *p, table_row *row,
                           error *failure)
{
    bool first = s == &e->reference;
    bool compared = !first && subject_compare(&e->reference, s, NULL) == STATUS_OK;
    quality q = { 0 };
    status result;
    TRY(quality_open(&q, s->config.vocabulary, compared ? p->scored : 0));
    passage_run run = { .plan = p->plan,
                        .scored = p->scored,
                        .reference = compared ? &e->reference : NULL,
                        .models = &s,
                        .qualities = &q,
                        .count = 1 };
    TRY(passage_walk(&run, "reading the text", failure));
    row->perplexity = quality_perplexity(&q);
    row->bits_per_byte = quality_bits_per_byte(&q);
    row->difference = compared ? 100 * expm1(quality_gap(&q).mean) : first ? 0 : NAN;
    row->difference_error = compared ? 100 * quality_gap(&q).error : first ? 0 : NAN;
    row->bits_error = compared ? quality_bits_gap_error(&q) : NAN;
    row->kl_mean = compared ? quality_kl(&q).mean : first ? 0 : NAN;
    row->top_same = compared ? 100 * quality_top_share(&q) : first ? 100 : NAN;
fail:
    quality_close(&q);
    return result;
}

static status choices_measure(const evaluation *e, const subject *s, table_row *row, error *failure)
{
    choices_score score;
    status result = choices_run(s, &e->questions, NULL, NULL, &score, failure);
    if (result != STATUS_OK)
        return result;
    choices_interval interval = choices_wilson(score.correct, score.count);
    row->accuracy = 100.0 * score.correct / score.count;
    row->accuracy_by_bytes = 100.0 * score.correct_by_bytes / score.count;
    row->accuracy_low = 100 * interval.low;
    row->accuracy_high = 100 * interval.high;
    return STATUS_OK;
}

// All that is not speed; the first row's subject stays loaded, as the reference of the others.
static status quality_measure(evaluation *e, int index, error *failure)
{
    const eval_options *o = e->options;
    subject own = { 0 }, *s = index == 0 ? &e->reference : &own;
    passage p = { 0 };
    int32_t context, asked = 1;
    status result;
    TRY(subject_open(&e->names[index], s, failure));
    TRY(passage_open(o, s, &p, failure));
    context = passage_context(&p.plan);
    if (e->questions.count > 0)
        TRY(choices_context(s, o->set, &e->questions, &asked, failure));
    TRY(subject_load(s, asked > context ? asked : context, o->threads, o->level, failure));
    TRY(memory_fill(o, s, &e->rows[index], failure));
    TRY(text_measure(e, s, &p, &e->rows[index], failure));
    if (e->questions.count > 0)
        TRY(choices_measure(e, s, &e->rows[index], failure));
fail:
    passage_close(&p);
    subject_close(&own);
    return result;
}

static double tokens_per_s(speed_result m)
{
    return m.tokens / m.seconds;
}

static status speed_measure(evaluation *e, int index, error *failure)
{
    const eval_options *o = e->options;
    table_row *row = &e->rows[index];
    speed *s = NULL;
    speed_plan plan = { .engine = workload_settings(e->names[index].path),
                        .prompt = o->prompt,
                        .generate = o->generate,
                        .batch = DECODE_SEQUENCES,
                        .depth = o->depth };
    plan.engine.kv_type = e->names[index].kv_type;
    plan.engine.threads = o->threads;
    plan.engine.level = (char *)o->level;
    status result = speed_open(&plan, &s, failure);
    if (result != STATUS_OK)
        return result;
    row->prefill = tokens_per_s(speed_median(s, 0, 0, o->repeats));
    log_progress("measuring speed", 1, 3);
    row->decode_1 = tokens_per_s(speed_median(s, 1, o->depth, o->repeats));
    log_progress("measuring speed", 2, 3);
    row->decode_32 = tokens_per_s(speed_median(s, DECODE_SEQUENCES, o->depth, o->repeats));
    log_progress("measuring speed", 3, 3);
    speed_close(s);
    return STATUS_OK;
}

static status rows_measure(evaluation *e, error *failure)
{
    status result = STATUS_OK;
    for (int i = 0; i < e->count; i++) {
        e->rows[i] = (table_row){ .prefill = NAN,
                                  .decode_1 = NAN,
                                  .decode_32 = NAN,
                                  .accuracy = NAN,
                                  .accuracy_by_bytes = NAN,
                                  .accuracy_low = NAN,
                                  .accuracy_high = NAN };
        TRY(quality_measure(e, i, failure));
        if (!e->options->no_speed)
            TRY(speed_measure(e, i, failure));
        log_progress("rows of the table", i + 1, e->count);
    }
fail:
    return result;
}

static status table_write(const evaluation *e, error *failure)
{
    const eval_options *o = e->options;
    plot_labels labels = { DECODE_SEQUENCES, o->sequence_tokens };
    buffer text = { 0 };
    status result = STATUS_OK;
    table_print(e->rows, e->count, &text);
    fwrite(text.data, 1, text.size, stdout);
    printf(
        "resident: sequences of %d tokens in %d MiB of pages; to first, KL and top-1: against the "
        "first row, - where the tokenizer is another\n",
        o->sequence_tokens, o->pool_mib);
    fflush(stdout);
    if (o->csv) {
        buffer_clear(&text);
        table_csv(e->rows, e->count, &text);
        TRY(output_write(o->csv, &text, failure));
    }
    if (o->svg) {
        buffer_clear(&text);
        plot_svg(e->rows, e->count, &labels, &text);
        TRY(output_write(o->svg, &text, failure));
    }
fail:
    buffer_close(&text);
    return result;
}

status eval_table(const eval_options *o, error *failure)
{
    evaluation *e = calloc(1, sizeof *e);
    status result;
    CHECK(e);
    e->options = o;
    TRY(subject_names(e->options, e->names, &e->count, failure));
    if (o->set) {
        TRY(subject_file_read(o->set, &e->set, failure));
        TRY(questions_read(o->set, buffer_slice(&e->set), &e->questions, failure));
    }
    TRY(rows_measure(e, failure));
    TRY(table_write(e, failure));
fail:
    subject_close(&e->reference);
    questions_close(&e->questions);
    buffer_close(&e->set);
    free(e);
    return result;
}
