#include "eval/eval.h"
#include "eval/line.h"
#include "eval/passage.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>

static status result_print(const eval_options *o, const subject *s, const passage *p,
                           const quality *q, double seconds, error *failure)
{
    quality_mean nll = quality_nll(q);
    if (o->json)
        return line_print(json_pack("{s:s,s:s,s:s,s:i,s:i,s:i,s:b,s:I,s:f,s:f,s:f,s:f,s:f}", "what",
                                    "perplexity", "model", s->file, "kv_type", s->name.kv_type,
                                    "tokens", p->plan.count, "windows", p->windows, "context",
                                    p->plan.context, "bos", s->bos >= 0, "scored",
                                    (json_int_t)q->count, "nll", nll.mean, "nll_error", nll.error,
                                    "perplexity", quality_perplexity(q), "bits_per_byte",
                                    quality_bits_per_byte(q), "seconds", seconds),
                          failure);
    printf("%s, kv %s\n", s->file, s->name.kv_type);
    printf("  text            %s, %d tokens in windows of %d (%d), %s\n", o->text, p->plan.count,
           p->plan.context, p->windows, s->bos >= 0 ? "each behind a BOS" : "no BOS");
    printf("  scored          %lld tokens, %.0f bytes\n", (long long)q->count, q->bytes);
    printf("  NLL             %.6f +- %.4f nats a token\n", nll.mean, nll.error);
    printf("  perplexity      %.4f (95 %%: %.3f to %.3f)\n", quality_perplexity(q),
           exp(nll.mean - 1.96 * nll.error), exp(nll.mean + 1.96 * nll.error));
    printf("  bits per byte   %.4f\n", quality_bits_per_byte(q));
    printf("  time            %.2f s, %.0f tokens/s\n", seconds, (double)q->count / seconds);
    fflush(stdout);
    return STATUS_OK;
}

static status model_measure(const eval_options *o, const subject_name *name, error *failure)
{
    subject s = { 0 }, *models[] = { &s };
    passage p = { 0 };
    quality q = { 0 };
    status result;
    TRY(subject_open(name, &s, failure));
    TRY(passage_open(o, &s, &p, failure));
    TRY(subject_load(&s, passage_context(&p.plan), o->threads, o->level, failure));
    TRY(quality_open(&q, s.config.vocabulary, 0));
    passage_run run = {
        .plan = p.plan, .scored = p.scored, .models = models, .qualities = &q, .count = 1
    };
    uint64_t begun_us = clock_now_us();
    TRY(passage_walk(&run, "perplexity", failure));
    TRY(result_print(o, &s, &p, &q, (double)(clock_now_us() - begun_us) * 1e-6, failure));
fail:
    quality_close(&q);
    passage_close(&p);
    subject_close(&s);
    return result;
}

status eval_perplexity(const eval_options *o, error *failure)
{
    static subject_name names[SUBJECT_NAMES_MAX];
    int count;
    status result;
    TRY(subject_names(o, names, &count, failure));
    for (int i = 0; i < count; i++)
        TRY(model_measure(o, &names[i], failure));
fail:
    return result;
}
