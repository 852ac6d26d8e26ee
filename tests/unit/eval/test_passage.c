// The walk of real forward passes through a text.
#include "eval/passage.h"

#include "harness/tiny_model.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <unistd.h>
#include <cmocka.h>

static const char words[] = "A text of some sixty bytes, which a tiny model has never seen.";

typedef struct fixture {
    char model[64], text[64];
    subject subject;
    passage passage;
    quality quality;
    error failure;
} fixture;

// Measure `words` with such a model, in one window.
static status measure(fixture *f, const tiny_model *options, int32_t chunk)
{
    subject *models[] = { &f->subject };
    subject_name name;
    eval_options o = { .text = f->text, .context = 256 };
    status result;
    *f = (fixture){ .text = "/tmp/penstock-passage-XXXXXX" };
    FILE *text = fdopen(mkstemp(f->text), "w");
    o.text = f->text;
    fputs(words, text);
    fclose(text);
    tiny_model_temporary(options, f->model);
    TRY(subject_name_parse(f->model, "f16", &name, &f->failure));
    TRY(subject_open(&name, &f->subject, &f->failure));
    f->subject.chunk = chunk;
    TRY(passage_open(&o, &f->subject, &f->passage, &f->failure));
    TRY(subject_load(&f->subject, passage_context(&f->passage.plan), 1, "auto", &f->failure));
    TRY(quality_open(&f->quality, f->subject.config.vocabulary, 0));
    passage_run run = { .plan = f->passage.plan,
                        .scored = f->passage.scored,
                        .models = models,
                        .qualities = &f->quality,
                        .count = 1 };
    TRY(passage_walk(&run, "test", &f->failure));
fail:
    return result;
}

static void measure_end(fixture *f)
{
    unlink(f->text);
    unlink(f->model);
    quality_close(&f->quality);
    passage_close(&f->passage);
    subject_close(&f->subject);
}

typedef struct naive {
    const int32_t *tokens;
    int32_t count, vocabulary;
    double nll;
} naive;

static void naive_add(void *context, int32_t position, const float *logits)
{
    naive *n = context;
    if (position + 1 < n->count)
        n->nll += forced_log_sum(logits, n->vocabulary) - (double)logits[n->tokens[position + 1]];
}

static void a_text_has_the_likelihood_of_its_tokens_whatever_the_chunks(void **state)
{
    (void)state;
    tiny_model options = tiny_model_default(5);
    fixture f;
    double likelihood[3];
    const int32_t chunks[] = { 256, 7, 1 };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(measure(&f, &options, chunks[i]), STATUS_OK);
        const token_list *tokens = &f.passage.tokens;
        naive n = { tokens->ids, (int32_t)tokens->count, f.subject.config.vocabulary, 0 };
        forced_run(f.subject.model, n.tokens, 0, n.count, 0, naive_add, &n);
        likelihood[i] = f.quality.nll;
        assert_int_equal(f.quality.count, n.count - 1);
        assert_true(f.quality.nll == n.nll && n.nll > 0);
        // The first token's bytes are not scored.
        assert_true(f.quality.bytes < (double)(sizeof words - 1));
        measure_end(&f);
    }
    assert_true(likelihood[0] == likelihood[1] && likelihood[0] == likelihood[2]);
}

static void logits_that_are_no_numbers_are_an_error_that_names_the_model(void **state)
{
    (void)state;
    tiny_model options = tiny_model_default(5);
    fixture f;
    options.nan_token = TINY_MODEL_BYTE_FIRST + ',';
    assert_int_equal(measure(&f, &options, 16), STATUS_NUMERIC);
    assert_true(strstr(f.failure.text, f.subject.file) != NULL);
    measure_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_has_the_likelihood_of_its_tokens_whatever_the_chunks),
        cmocka_unit_test(logits_that_are_no_numbers_are_an_error_that_names_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
