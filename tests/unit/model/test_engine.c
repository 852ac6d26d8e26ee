// The rules of the engine: how sequences end, what is refused, whose pages are whose.
#include "base/fault.h"
#include "base/random.h"
#include "harness/seed.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine_fixture.h"

#define NAN_TOKEN 270 // a merged pair, which no prompt of these tests holds by chance
#define END_ID 2

static char path[64];

static int setup(void **state)
{
    (void)state;
    tiny_model o = tiny_model_default(21);
    o.nan_token = NAN_TOKEN;
    o.extra_rows = 7;
    tiny_model_temporary(&o, path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static engine *engine_new(void)
{
    engine_settings settings = fixture_settings(path);
    settings.prefix_reuse = true;
    return fixture_open(&settings);
}

static void fault_set(char *point)
{
    fault_settings faults = { { 1, &point } };
    assert_int_equal(fault_arm(&faults, NULL), STATUS_OK);
}

static void the_facts_name_the_model_and_its_limits(void **state)
{
    (void)state;
    engine *e = engine_new();
    const engine_facts *f = engine_facts_of(e);
    assert_string_equal(f->model_name, "tiny");
    assert_string_equal(f->architecture, "llama");
    assert_int_equal(f->vocabulary, tiny_model_vocabulary());
    assert_int_equal(f->context, 2048);
    assert_int_equal(f->layout.page_tokens, 32);
    assert_int_equal(f->pages, (4 << 20) / f->layout.page_bytes);
    assert_true(f->weight_bytes > 0 && f->memory_bytes > f->weight_bytes);
    fixture_close(e);
}

static void a_numeric_id_follows_the_weights_and_the_cache_type(void **state)
{
    (void)state;
    char other[64];
    tiny_model o = tiny_model_default(22);
    tiny_model_temporary(&o, other);
    engine_settings settings = fixture_settings(path);
    engine *first = fixture_open(&settings);
    settings.page_tokens = 64;
    settings.chunk_tokens = 32;
    engine *same = fixture_open(&settings);
    settings.kv_type = "f32";
    engine *wide = fixture_open(&settings);
    settings = fixture_settings(other);
    engine *unlike = fixture_open(&settings);
    hash128 id = engine_facts_of(first)->numeric_id;
    assert_true(hash128_equal(id, engine_facts_of(same)->numeric_id));
    assert_false(hash128_equal(id, engine_facts_of(wide)->numeric_id));
    assert_false(hash128_equal(id, engine_facts_of(unlike)->numeric_id));
    fixture_close(first);
    fixture_close(same);
    fixture_close(wide);
    fixture_close(unlike);
    unlink(other);
}

// Push the draw to one token by a bias.
static sequence_request biased(const int32_t *tokens, int32_t count, int32_t max_tokens,
                               const backend_token_bias *bias)
{
    sequence_request r = fixture_request(tokens, count, max_tokens);
    r.sampling.biases = bias;
    r.sampling.bias_count = 1;
    r.ignore_eos = false;
    return r;
}

static void an_end_token_ends_it_and_is_reported(void **state)
{
    (void)state;
    int32_t prompt[10];
    const backend_token_bias end = { END_ID, 1000 }, other = { 0, 1000 };
    engine *e = engine_new();
    fixture_tokens(prompt, 10, 1);
    run r = fixture_run_one(e, biased(prompt, 10, 5, &end));
    assert_int_equal(r.count, 1);
    assert_int_equal(r.tokens[0], END_ID);
    assert_int_equal(r.finish, SEQUENCE_STOP);
    r = fixture_run_one(e, biased(prompt, 10, 5, &other)); // <|endoftext|>, by its text
    assert_int_equal(r.finish, SEQUENCE_STOP);
    fixture_close(e);
}

static void b056_ignore_eos_leaves_the_length_and_the_stop_ids(void **state)
{
    (void)state;
    int32_t prompt[10];
    const backend_token_bias end = { END_ID, 1000 }, stop = { 77, 1000 };
    engine *e = engine_new();
    fixture_tokens(prompt, 10, 1);
    sequence_request request = biased(prompt, 10, 5, &end);
    request.ignore_eos = true;
    run r = fixture_run_one(e, request);
    assert_int_equal(r.count, 5);
    assert_int_equal(r.finish, SEQUENCE_LENGTH);
    request = biased(prompt, 10, 5, &stop);
    request.ignore_eos = true;
    request.stop_ids[0] = 77;
    request.stop_id_count = 1;
    r = fixture_run_one(e, request);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.finish, SEQUENCE_STOP);
    fixture_close(e);
}

static void end_ids_are_not_drawn_before_min_tokens(void **state)
{
    (void)state;
    int32_t prompt[10];
    const backend_token_bias end = { END_ID, 1000 };
    engine *e = engine_new();
    fixture_tokens(prompt, 10, 1);
    sequence_request request = biased(prompt, 10, 8, &end);
    request.min_tokens = 3;
    run r = fixture_run_one(e, request);
    assert_int_equal(r.count, 4);
    assert_int_not_equal(r.tokens[2], END_ID);
    assert_int_equal(r.tokens[3], END_ID);
    fixture_close(e);
}

static void the_context_ends_a_sequence_by_its_length(void **state)
{
    (void)state;
    int32_t prompt[60];
    engine_settings settings = fixture_settings(path);
    settings.context = 64;
    engine *e = fixture_open(&settings);
    fixture_tokens(prompt, 60, 2);
    run r = fixture_run_one(e, fixture_request(prompt, 60, 100));
    assert_int_equal(r.count, 4);
    assert_int_equal(r.finish, SEQUENCE_LENGTH);
    fixture_close(e);
}

static void b061_a_row_without_numbers_fails_its_own_sequence_only(void **state)
{
    (void)state;
    int32_t good[40], bad[40];
    engine *e = engine_new();
    fixture_tokens(good, 40, 3);
    memcpy(bad, good, sizeof bad);
    bad[35] = NAN_TOKEN;
    run truth = fixture_run_one(e, fixture_request(good, 40, 12)), runs[2];
    engine_prefixes_drop(e);
    sequence_request requests[2] = { fixture_request(good, 40, 12), fixture_request(bad, 40, 12) };
    fixture_run(e, requests, 2, runs);
    run_expect_equal(&runs[0], &truth);
    assert_int_equal(runs[1].finish, SEQUENCE_FAILED);
    assert_int_equal(runs[1].count, 1);
    assert_int_equal(runs[1].tokens[0], -1);
    // What the failed one computed is not found by others: only the good one's page is.
    engine_prefixes_drop(e);
    requests[1].token_count = requests[1].prompt_count = 36;
    fixture_run(e, &requests[1], 1, runs);
    assert_int_equal(runs[0].finish, SEQUENCE_FAILED);
    assert_int_equal(fixture_run_one(e, fixture_request(good, 40, 12)).reused, 0);
    fixture_close(e);
}

static void the_fault_point_for_logits_fails_one_sequence(void **state)
{
    (void)state;
    int32_t prompt[20];
    run r = { 0 };
    engine *e = engine_new();
    fixture_tokens(prompt, 20, 4);
    run truth = fixture_run_one(e, fixture_request(prompt, 20, 6));
    assert_int_equal(fault_fired(FAULT_LOGITS_NAN), 0);
    fault_set("logits.nan:1:0:1");
    r = fixture_run_one(e, fixture_request(prompt, 20, 6));
    assert_int_equal(r.finish, SEQUENCE_FAILED);
    r = fixture_run_one(e, fixture_request(prompt, 20, 6));
    fault_disarm_all();
    run_expect_equal(&r, &truth);
    fixture_close(e);
}

static void refused(engine *e, sequence_request request, status expected, const char *word)
{
    sequence *s = NULL;
    error failure = { 0 };
    int32_t free_before = engine_pages_free(e);
    assert_int_equal(engine_sequence_open(e, &request, &s, &failure), expected);
    assert_non_null(strstr(failure.text, word));
    assert_null(s);
    assert_int_equal(engine_pages_free(e), free_before);
    assert_int_equal(engine_sequences_open(e), 0);
}

static void a_request_that_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    static int32_t tokens[3000];
    engine *e = engine_new();
    fixture_tokens(tokens, 3000, 1);
    sequence_request good = fixture_request(tokens, 10, 5), r;
#define REFUSED(change, code, word)                                                                \
    r = good;                                                                                      \
    change;                                                                                        \
    refused(e, r, code, word)
    REFUSED(r.token_count = 0, STATUS_INVALID, "no token");
    REFUSED(r.token_count = r.prompt_count = 2048, STATUS_CONTEXT_LENGTH, "2048");
    REFUSED(r.prompt_count = 11, STATUS_INVALID, "prompt_count");
    REFUSED(r.prompt_count = 0, STATUS_INVALID, "prompt_count");
    REFUSED(r.max_tokens = 0, STATUS_INVALID, "max_tokens");
    REFUSED(r.prompt_count = 5, STATUS_INVALID, "max_tokens"); // 5 of 5 were delivered already
    REFUSED(r.min_tokens = 6, STATUS_INVALID, "min_tokens");
    REFUSED(r.sampling.temperature = NAN, STATUS_INVALID, "temperature");
    REFUSED(r.sampling.temperature = -1, STATUS_INVALID, "temperature");
    REFUSED(r.sampling.top_p = 1.1f, STATUS_INVALID, "top_p");
    REFUSED(r.sampling.top_k = -1, STATUS_INVALID, "top_k");
    REFUSED(r.sampling.repetition_penalty = 0, STATUS_INVALID, "repetition_penalty");
    REFUSED(r.sampling.top_count = 21, STATUS_INVALID, "top_logprobs");
    REFUSED(r.sampling.bias_count = SEQUENCE_BIAS_MAX + 1, STATUS_INVALID, "logit_bias");
    REFUSED(r.stop_id_count = SEQUENCE_STOP_IDS_MAX + 1, STATUS_INVALID, "stop ids");
    REFUSED((r.stop_id_count = 1, r.stop_ids[0] = 1 << 20), STATUS_INVALID, "stop id");
#undef REFUSED
    tokens[4] = tiny_model_vocabulary();
    refused(e, good, STATUS_INVALID, "token 4");
    tokens[4] = -1;
    refused(e, good, STATUS_INVALID, "token 4");
    fixture_close(e);
}

static void too_many_at_a_time_are_refused_and_nothing_is_taken(void **state)
{
    (void)state;
    int32_t prompt[200];
    engine_settings settings = fixture_settings(path);
    settings.max_sequences = 3;
    engine *e = fixture_open(&settings);
    settings.kv_bytes = 12 * (uint64_t)engine_facts_of(e)->layout.page_bytes;
    engine *small = fixture_open(&settings);
    sequence *s[3], *more = NULL;
    error failure = { 0 };
    fixture_tokens(prompt, 200, 6);
    sequence_request r = fixture_request(prompt, 20, 5), long_one = fixture_request(prompt, 200, 5);
    for (int i = 0; i < 3; i++)
        assert_int_equal(engine_sequence_open(e, &r, &s[i], NULL), STATUS_OK);
    assert_int_equal(engine_sequence_open(e, &r, &more, &failure), STATUS_OVERLOADED);
    assert_non_null(strstr(failure.text, "sequences"));
    for (int i = 0; i < 3; i++)
        engine_sequence_close(e, s[i], true);
    assert_int_equal(engine_sequence_open(small, &long_one, &s[0], NULL), STATUS_OK);
    assert_int_equal(engine_pages_held(small), 7);
    assert_int_equal(engine_sequence_open(small, &long_one, &more, &failure), STATUS_OVERLOADED);
    assert_non_null(strstr(failure.text, "7 pages"));
    assert_int_equal(engine_pages_held(small), 7);
    engine_sequence_close(small, s[0], true);
    fixture_close(e);
    fixture_close(small);
}

static void a_page_in_flight_outlives_its_sequence(void **state)
{
    (void)state;
    int32_t prompt[40], count;
    run r = { 0 };
    engine *e = engine_new();
    fixture_tokens(prompt, 40, 6);
    sequence *s = fixture_start(e, fixture_request(prompt, 40, 5), &r);
    int32_t page = sequence_pages(s, &count)[1];
    assert_int_equal(count, 2);
    engine_page_hold(e, page);
    engine_sequence_close(e, s, false); // in the middle: nothing was computed
    assert_false(engine_has_work(e));
    assert_int_equal(engine_pages_held(e), 1);
    engine_page_release(e, page);
    assert_int_equal(engine_pages_held(e), 0);
    fixture_close(e);
}

static void pages_in_doubt_are_not_found_again(void **state)
{
    (void)state;
    int32_t prompt[70];
    run r = { 0 };
    engine *e = engine_new();
    fixture_tokens(prompt, 70, 8);
    sequence *s = fixture_start(e, fixture_request(prompt, 70, 3), &r);
    while (engine_has_work(e))
        fixture_step(e);
    engine_sequence_close(e, s, false);
    assert_int_equal(fixture_run_one(e, fixture_request(prompt, 70, 3)).reused, 0);
    assert_int_equal(fixture_run_one(e, fixture_request(prompt, 70, 3)).reused, 64);
    fixture_close(e);
}

static void salts_keep_prefixes_apart(void **state)
{
    (void)state;
    int32_t prompt[70];
    engine *e = engine_new();
    fixture_tokens(prompt, 70, 9);
    sequence_request a = fixture_request(prompt, 70, 3), b = a;
    b.prefix_salt = (hash128){ 5, 6 };
    assert_int_equal(fixture_run_one(e, a).reused, 0);
    assert_int_equal(fixture_run_one(e, b).reused, 0);
    assert_int_equal(fixture_run_one(e, a).reused, 64);
    assert_int_equal(fixture_run_one(e, b).reused, 64);
    fixture_close(e);
}

// Pages of a request that is opened and not started, in which something stands.
static int32_t pages_with_content(engine *e, const sequence_request *request)
{
    void *pool;
    size_t size, page_bytes = (size_t)engine_facts_of(e)->layout.page_bytes;
    sequence *s = NULL;
    int32_t count, found = 0;
    engine_pool_memory(e, &pool, &size);
    assert_int_equal(engine_sequence_open(e, request, &s, NULL), STATUS_OK);
    const int32_t *pages = sequence_pages(s, &count);
    for (int32_t i = 0; i < count; i++) {
        const char *page = (const char *)pool + (size_t)pages[i] * page_bytes;
        found += page[0] != 0 || memcmp(page, page + 1, page_bytes - 1) != 0;
    }
    engine_sequence_close(e, s, false);
    return found;
}

static void another_tenant_gets_zeroed_pages_where_that_is_wanted(void **state)
{
    (void)state;
    int32_t prompt[120], other[70];
    fixture_tokens(prompt, 120, 9);
    fixture_tokens(other, 70, 4);
    for (int zero = 0; zero < 2; zero++) {
        engine_settings settings = fixture_settings(path);
        engine *probe = fixture_open(&settings);
        settings.kv_bytes = 4 * (uint64_t)engine_facts_of(probe)->layout.page_bytes;
        fixture_close(probe);
        settings.zero_pages = zero;
        settings.prefix_reuse = true; // so that pages come from the cached ones, too
        engine *e = fixture_open(&settings);
        sequence_request a = fixture_request(prompt, 120, 3), b = fixture_request(other, 70, 3);
        a.prefix_salt = (hash128){ 5, 6 };
        b.prefix_salt = (hash128){ 5, 7 };
        fixture_run_one(e, a); // all four pages
        assert_int_equal(pages_with_content(e, &b), zero ? 0 : 3);
        run first = fixture_run_one(e, b);
        assert_int_equal(first.reused, 0);
        assert_int_equal(pages_with_content(e, &b), 3); // its own
        assert_int_equal(fixture_run_one(e, b).hashes[2], first.hashes[2]);
        b.prefix_salt = (hash128){ 0, 0 };
        assert_int_equal(pages_with_content(e, &b), zero ? 0 : 3); // nobody is a tenant, too
        fixture_close(e);
    }
}

// B066, B067: random requests that end in every way, on too few pages and with failing takes; in
// the end every page is back. fixture_step checks the sum after every step.
static void b066_b067_random_ends_and_failing_takes_lose_no_page(void **state)
{
    (void)state;
    uint64_t seed = seed_choose(), draw = seed;
    engine_settings settings = fixture_settings(path);
    engine *probe = fixture_open(&settings);
    settings.kv_bytes = 12 * (uint64_t)engine_facts_of(probe)->layout.page_bytes;
    settings.prefix_reuse = seed % 2;
    settings.max_sequences = 6;
    fixture_close(probe);
    engine *e = fixture_open(&settings);
    static run runs[6];
    sequence *open[6] = { NULL };
    fault_set("pool.exhaust:0.1");
    for (int round = 0; round < 1500; round++) {
        int at = (int)((draw = random_mix(draw)) % 6);
        int32_t prompt[90], length = 1 + (int32_t)((draw >> 8) % 90);
        bool idle = !engine_has_work(e);
        fixture_tokens(prompt, length, (int32_t)(draw >> 20) % 3);
        sequence_request r = fixture_request(prompt, length, 1 + (int32_t)((draw >> 16) % 40));
        r.logits_hash = false;
        if (open[at] && (runs[at].finish || runs[at].preempted || draw % 64 == 0 || idle)) {
            engine_sequence_close(e, open[at], draw % 5 != 0);
            open[at] = NULL;
        } else if (!open[at]) {
            runs[at] = (run){ 0 };
            r.owner = &runs[at];
            if (engine_sequence_open(e, &r, &open[at], NULL) == STATUS_OK && draw % 16 != 1)
                engine_sequence_start(e, open[at]);
        }
        engine_report report = fixture_step(e);
        for (int i = 0; i < report.preempted_count; i++)
            ((run *)sequence_owner(report.preempted[i]))->preempted = 1;
    }
    fault_disarm_all();
    for (int i = 0; i < 6; i++)
        if (open[i])
            engine_sequence_close(e, open[i], true);
    fixture_close(e);
}

static void settings_that_cannot_be_are_refused_by_name(void **state)
{
    (void)state;
    engine *e = NULL;
    error failure = { 0 };
    engine_settings good = fixture_settings(path), s;
#define REFUSED(change, code, word)                                                                \
    s = good;                                                                                      \
    change;                                                                                        \
    assert_int_equal(engine_open(&s, &e, &failure), code);                                         \
    assert_non_null(strstr(failure.text, word))
    REFUSED(s.page_tokens = 48, STATUS_BAD_CONFIG, "engine.page_tokens");
    REFUSED(s.step_tokens = 8, STATUS_BAD_CONFIG, "engine.step_tokens");
    REFUSED(s.kv_bytes = 100, STATUS_BAD_CONFIG, "engine.kv_bytes");
    REFUSED(s.context = 4096, STATUS_BAD_CONFIG, "engine.context");
    REFUSED(s.model = "", STATUS_BAD_CONFIG, "engine.model");
    REFUSED(s.model = "/nowhere/model.gguf", STATUS_IO, "/nowhere/model.gguf");
#undef REFUSED
    assert_null(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_facts_name_the_model_and_its_limits),
        cmocka_unit_test(a_numeric_id_follows_the_weights_and_the_cache_type),
        cmocka_unit_test(an_end_token_ends_it_and_is_reported),
        cmocka_unit_test(b056_ignore_eos_leaves_the_length_and_the_stop_ids),
        cmocka_unit_test(end_ids_are_not_drawn_before_min_tokens),
        cmocka_unit_test(the_context_ends_a_sequence_by_its_length),
        cmocka_unit_test(b061_a_row_without_numbers_fails_its_own_sequence_only),
        cmocka_unit_test(the_fault_point_for_logits_fails_one_sequence),
        cmocka_unit_test(a_request_that_cannot_be_is_refused_by_name),
        cmocka_unit_test(too_many_at_a_time_are_refused_and_nothing_is_taken),
        cmocka_unit_test(a_page_in_flight_outlives_its_sequence),
        cmocka_unit_test(pages_in_doubt_are_not_found_again),
        cmocka_unit_test(salts_keep_prefixes_apart),
        cmocka_unit_test(another_tenant_gets_zeroed_pages_where_that_is_wanted),
        cmocka_unit_test(b066_b067_random_ends_and_failing_takes_lose_no_page),
        cmocka_unit_test(settings_that_cannot_be_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
