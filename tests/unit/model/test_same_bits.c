// limit: 300
// A sequence's tokens and the bits of its logits do not depend on anything but its request.
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine_fixture.h"

// A sanitizer looks for other things: the best level does.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define PROMPT 100
#define ANSWER 40

typedef struct fixture {
    char path[64];
    int32_t prompt[PROMPT];
    sequence_request requests[2]; // greedy, and sampled with everything on
    run truth[2];                 // of them, alone
} fixture;

static fixture shared;
static const char *architecture, *level, *kv_type; // that the group runs on

static engine_settings settings_new(void)
{
    engine_settings settings = fixture_settings(shared.path);
    settings.level = (char *)level;
    settings.kv_type = (char *)kv_type;
    return settings;
}

static int setup(void **state)
{
    fixture *f = &shared;
    tiny_model o = tiny_model_default(11);
    o.type = TENSOR_Q4_1;
    o.head_type = TENSOR_Q8_0;
    o.architecture = architecture;
    o.biased = strcmp(architecture, "qwen2") == 0;
    if (strcmp(architecture, "gemma3") == 0) {
        o.window = 24;
        o.window_period = 2;
    }
    tiny_model_temporary(&o, f->path);
    fixture_tokens(f->prompt, PROMPT, 3);
    f->requests[0] = fixture_request(f->prompt, PROMPT, ANSWER);
    f->requests[1] = fixture_sampled(f->prompt, PROMPT, ANSWER, 77);
    engine_settings settings = settings_new();
    engine *e = fixture_open(&settings);
    for (int i = 0; i < 2; i++) {
        f->truth[i] = fixture_run_one(e, f->requests[i]);
        assert_int_equal(f->truth[i].count, ANSWER);
        assert_int_equal(f->truth[i].finish, SEQUENCE_LENGTH);
    }
    assert_memory_not_equal(f->truth[0].tokens, f->truth[1].tokens, ANSWER * sizeof(int32_t));
    fixture_close(e);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    unlink(((fixture *)*state)->path);
    return 0;
}

static void truth_expect(fixture *f, const engine_settings *settings)
{
    engine *e = fixture_open(settings);
    for (int i = 0; i < 2; i++) {
        run r = fixture_run_one(e, f->requests[i]);
        run_expect_equal(&r, &f->truth[i]);
    }
    fixture_close(e);
}

static void b059_b063_among_sixteen_others(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new();
    static int32_t prompts[16][PROMPT];
    sequence_request requests[18];
    run runs[18];
    for (int i = 0; i < 16; i++) {
        fixture_tokens(prompts[i], 5 + 6 * i, i + 5);
        requests[i < 7 ? i : i + 2] =
            i % 2 ? fixture_request(prompts[i], 5 + 6 * i, 10 + 2 * i)
                  : fixture_sampled(prompts[i], 5 + 6 * i, 10 + 2 * i, (uint64_t)i);
    }
    requests[7] = f->requests[0];
    requests[8] = f->requests[1];
    engine *e = fixture_open(&settings);
    fixture_run(e, requests, 18, runs);
    run_expect_equal(&runs[7], &f->truth[0]);
    run_expect_equal(&runs[8], &f->truth[1]);
    fixture_close(e);
}

static void with_chunks_and_steps_of_any_size(void **state)
{
    fixture *f = *state;
    const int sizes[][2] = { { 16, 512 }, { 64, 512 }, { 512, 512 }, { 1, 24 }, { 50, 33 } };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        engine_settings settings = settings_new();
        settings.chunk_tokens = sizes[i][0];
        settings.step_tokens = sizes[i][1];
        truth_expect(f, &settings);
    }
}

static void with_other_pages_and_threads(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new();
    settings.page_tokens = 64;
    settings.threads = 2;
    truth_expect(f, &settings);
    settings.page_tokens = 128;
    truth_expect(f, &settings);
}

static void b065_with_a_prefix_hit_and_without(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new();
    settings.prefix_reuse = true;
    engine *e = fixture_open(&settings);
    for (int i = 0; i < 2; i++) {
        run cold = fixture_run_one(e, f->requests[i]);
        assert_int_equal(cold.reused, i == 0 ? 0 : 96);
        run warm = fixture_run_one(e, f->requests[i]);
        assert_int_equal(warm.reused, 96);
        run_expect_equal(&cold, &f->truth[i]);
        run_expect_equal(&warm, &f->truth[i]);
    }
    engine_prefixes_drop(e);
    assert_int_equal(fixture_run_one(e, f->requests[0]).reused, 0);
    fixture_close(e);
}

// B070: lengths around the page, each sent twice; where all is known the last page is copied and
// one token computed.
static void b070_where_the_whole_prompt_is_known(void **state)
{
    fixture *f = *state;
    const int32_t lengths[] = { 31, 32, 33, 64, 65, 96 }, reused[] = { 0, 31, 32, 63, 64, 95 };
    engine_settings settings = settings_new();
    engine *cold = fixture_open(&settings);
    settings.prefix_reuse = true;
    engine *e = fixture_open(&settings);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        sequence_request r = fixture_sampled(f->prompt, lengths[i], 5, 9);
        run truth = fixture_run_one(cold, r), first, second;
        engine_prefixes_drop(e);
        first = fixture_run_one(e, r);
        second = fixture_run_one(e, r);
        assert_int_equal(first.reused, 0);
        assert_int_equal(second.reused, reused[i]);
        run_expect_equal(&first, &truth);
        run_expect_equal(&second, &truth);
    }
    fixture_close(e);
    fixture_close(cold);
}

// Six at once: two fill the first steps, and the four behind them find what those computed.
static void when_a_crowd_has_one_beginning(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new();
    settings.prefix_reuse = true;
    settings.max_sequences = 6;
    settings.step_tokens = PROMPT;
    settings.chunk_tokens = PROMPT / 2;
    engine *e = fixture_open(&settings);
    run runs[6] = { 0 };
    sequence *sequences[6];
    int32_t computed = 0;
    for (int i = 0; i < 6; i++)
        sequences[i] = fixture_start(e, f->requests[i % 2], &runs[i]);
    while (engine_has_work(e))
        computed += fixture_step(e).prefill_rows;
    assert_int_equal(computed, 2 * PROMPT + 4 * (PROMPT - 96));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(sequence_reused(sequences[i]), i < 2 ? 0 : 96);
        engine_sequence_close(e, sequences[i], true);
        run_expect_equal(&runs[i], &f->truth[i % 2]);
    }
    fixture_close(e);
}

// The journey of a hand-off without a network: the prompt on one engine, its pages copied into a
// seat of another.
static void b062_when_the_prompt_was_computed_elsewhere(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new();
    engine *from = fixture_open(&settings);
    settings.prefix_reuse = true;
    settings.threads = 2;
    engine *to = fixture_open(&settings);
    assert_true(hash128_equal(engine_facts_of(from)->numeric_id, engine_facts_of(to)->numeric_id));
    for (int i = 0; i < 4; i++) {
        run r = { 0 };
        sequence_request prompt = f->requests[i % 2], seat = f->requests[i % 2];
        prompt.mode = SEQUENCE_PROMPT;
        sequence *source = fixture_start(from, prompt, &r), *target;
        while (engine_has_work(from))
            fixture_step(from);
        assert_int_equal(r.count, 1);
        seat.owner = &r;
        assert_int_equal(engine_sequence_open(to, &seat, &target, NULL), STATUS_OK);
        assert_int_equal(sequence_reused(target), i == 0 ? 0 : 96);
        int32_t source_count, target_count, unknown = 1 << 20;
        const int32_t *sources = sequence_pages(source, &source_count);
        const int32_t *targets = sequence_pages(target, &target_count);
        assert_int_equal(source_count, target_count);
        for (int32_t page = sequence_reused(target) / 32; page < source_count; page++)
            memcpy(engine_page_data(to, targets[page]), engine_page_data(from, sources[page]),
                   (size_t)engine_facts_of(to)->layout.page_bytes);
        engine_sequence_close(from, source, true);
        assert_int_equal(engine_sequence_place(to, target, PROMPT - 1, r.tokens, 1),
                         STATUS_INVALID);
        assert_int_equal(engine_sequence_place(to, target, PROMPT, &unknown, 1), STATUS_INVALID);
        assert_int_equal(engine_sequence_place(to, target, PROMPT, r.tokens, 1), STATUS_OK);
        while (engine_has_work(to))
            fixture_step(to);
        engine_sequence_close(to, target, true);
        run_expect_equal(&r, &f->truth[i % 2]);
    }
    fixture_close(from);
    fixture_close(to);
}

// A live sequence goes to another engine after `known` + `made` + 1 tokens, the first of which its
// seat was told.
static void move(fixture *f, engine *from, engine *to, int i, int32_t known, int32_t made)
{
    int32_t tokens[PROMPT + ANSWER], last = PROMPT + known + made;
    run r = { 0 };
    sequence *source = fixture_start(from, f->requests[i], &r), *target;
    while (r.count <= known + made)
        fixture_step(from);
    engine_sequence_rest(from, source);
    assert_false(engine_has_work(from));
    assert_int_equal(sequence_computed(source), last);
    memcpy(tokens, f->prompt, sizeof f->prompt);
    memcpy(tokens + PROMPT, f->truth[i].tokens, (size_t)known * sizeof tokens[0]);
    sequence_request seat = f->requests[i];
    seat.tokens = tokens;
    seat.token_count = PROMPT + known;
    seat.spare_tokens = 40;
    seat.owner = &r;
    assert_int_equal(engine_sequence_open(to, &seat, &target, NULL), STATUS_OK);
    int32_t count, room;
    const int32_t *sources = sequence_pages(source, &count);
    const int32_t *targets = sequence_pages(target, &room);
    assert_true(room * 32 >= last);
    for (int32_t page = sequence_reused(target) / 32; page * 32 < last; page++)
        memcpy(engine_page_data(to, targets[page]), engine_page_data(from, sources[page]),
               (size_t)engine_facts_of(to)->layout.page_bytes);
    const int32_t *all = sequence_tokens(source, &count);
    assert_int_equal(count, last + 1);
    memcpy(tokens, all + PROMPT + known, (size_t)(made + 1) * sizeof tokens[0]);
    engine_sequence_close(from, source, true);
    assert_int_equal(engine_sequence_place(to, target, last, tokens, made + 1), STATUS_OK);
    while (engine_has_work(to))
        fixture_step(to);
    engine_sequence_close(to, target, true);
    run_expect_equal(&r, &f->truth[i]);
}

static void when_it_moves_while_it_generates(void **state)
{
    fixture *f = *state;
    engine_settings settings = settings_new();
    engine *from = fixture_open(&settings);
    settings.prefix_reuse = true;
    engine *to = fixture_open(&settings);
    for (int i = 0; i < 2; i++)
        for (int32_t at = 0; at < ANSWER - 1; at += 3) {
            move(f, from, to, i, at, 0);
            move(f, from, to, i, 0, at);
            move(f, from, to, i, at / 2, at - at / 2);
        }
    assert_int_equal(engine_pages_held(from) + engine_pages_held(to), 0);
    fixture_close(from);
    fixture_close(to);
}

// After a worker died: the prompt and what was delivered are computed again, and the rest is the
// same.
static void when_it_is_recovered_half_way(void **state)
{
    fixture *f = *state;
    const int32_t delivered[] = { 1, 13, ANSWER - 1 };
    engine_settings settings = settings_new();
    engine *e = fixture_open(&settings);
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof delivered / sizeof delivered[0]; k++) {
            int32_t tokens[PROMPT + ANSWER], done = delivered[k];
            memcpy(tokens, f->prompt, sizeof f->prompt);
            memcpy(tokens + PROMPT, f->truth[i].tokens, (size_t)done * sizeof tokens[0]);
            sequence_request again = f->requests[i];
            again.tokens = tokens;
            again.token_count = PROMPT + done;
            run r = f->truth[i]; // what was delivered before
            r.count = done;
            sequence *s = fixture_start(e, again, &r);
            while (engine_has_work(e))
                fixture_step(e);
            engine_sequence_close(e, s, true);
            run_expect_equal(&r, &f->truth[i]);
        }
    fixture_close(e);
}

enum { SHORT_COUNT = 6, SHORT_PROMPT = 20, SHORT_ANSWER = 200 };

// Requests that are sent again, with what they have, whenever they are preempted.
typedef struct short_of_pages {
    int32_t tokens[SHORT_COUNT][SHORT_PROMPT + SHORT_ANSWER];
    run runs[SHORT_COUNT];
    sequence *sequences[SHORT_COUNT];
    int started[SHORT_COUNT]; // when, as a number
    int starts, open, ended, preemptions;
} short_of_pages;

static void short_send(engine *e, short_of_pages *p, int i)
{
    run *r = &p->runs[i];
    sequence_request request = fixture_sampled(p->tokens[i], SHORT_PROMPT, SHORT_ANSWER, 5);
    memcpy(p->tokens[i] + SHORT_PROMPT, r->tokens, (size_t)r->count * sizeof r->tokens[0]);
    request.token_count += r->count;
    request.owner = r;
    if (p->sequences[i] || r->finish != SEQUENCE_UNFINISHED ||
        engine_sequence_open(e, &request, &p->sequences[i], NULL) != STATUS_OK)
        return;
    engine_sequence_start(e, p->sequences[i]);
    p->started[i] = p->starts++;
    p->open++;
}

// The preempted one is the youngest of those that run.
static void preempted_expect(const short_of_pages *p, int i)
{
    for (int k = 0; k < SHORT_COUNT; k++)
        if (p->sequences[k] && p->runs[k].finish == SEQUENCE_UNFINISHED)
            assert_true(p->started[k] <= p->started[i]);
}

static void short_step(engine *e, short_of_pages *p)
{
    engine_report report = fixture_step(e);
    for (int k = 0; k < report.preempted_count; k++)
        for (int i = 0; i < SHORT_COUNT; i++)
            if (report.preempted[k] == p->sequences[i]) {
                preempted_expect(p, i);
                engine_sequence_close(e, p->sequences[i], true);
                p->sequences[i] = NULL;
                p->open--;
                p->preemptions++;
            }
    for (int i = 0; i < SHORT_COUNT; i++)
        if (p->sequences[i] && p->runs[i].finish != SEQUENCE_UNFINISHED) {
            engine_sequence_close(e, p->sequences[i], true);
            p->sequences[i] = NULL;
            p->open--;
            p->ended++;
        }
}

static void b068_when_pages_are_short_and_it_is_preempted(void **state)
{
    (void)state;
    static short_of_pages p;
    p = (short_of_pages){ 0 };
    engine_settings settings = settings_new();
    engine *roomy = fixture_open(&settings);
    settings.prefix_reuse = true;
    settings.kv_bytes = 14 * (uint64_t)engine_facts_of(roomy)->layout.page_bytes;
    engine *e = fixture_open(&settings);
    run truth[SHORT_COUNT];
    for (int i = 0; i < SHORT_COUNT; i++) {
        fixture_tokens(p.tokens[i], SHORT_PROMPT, i + 40);
        truth[i] =
            fixture_run_one(roomy, fixture_sampled(p.tokens[i], SHORT_PROMPT, SHORT_ANSWER, 5));
    }
    while (p.ended < SHORT_COUNT) {
        for (int i = 0; i < SHORT_COUNT; i++)
            short_send(e, &p, i);
        assert_true(p.open > 0);
        short_step(e, &p);
    }
    print_message("%d preemptions\n", p.preemptions);
    assert_true(p.preemptions > 0);
    for (int i = 0; i < SHORT_COUNT; i++)
        run_expect_equal(&p.runs[i], &truth[i]);
    fixture_close(e);
    fixture_close(roomy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b059_b063_among_sixteen_others),
        cmocka_unit_test(with_chunks_and_steps_of_any_size),
        cmocka_unit_test(with_other_pages_and_threads),
        cmocka_unit_test(b065_with_a_prefix_hit_and_without),
        cmocka_unit_test(b070_where_the_whole_prompt_is_known),
        cmocka_unit_test(when_a_crowd_has_one_beginning),
        cmocka_unit_test(b062_when_the_prompt_was_computed_elsewhere),
        cmocka_unit_test(when_it_moves_while_it_generates),
        cmocka_unit_test(when_it_is_recovered_half_way),
        cmocka_unit_test(b068_when_pages_are_short_and_it_is_preempted),
    };
    const char *const architectures[] = { "llama", "qwen2", "gemma3" };
    int failed = 0;
    for (size_t i = 0; i < sizeof architectures / sizeof architectures[0]; i++) {
        architecture = architectures[i];
        for (const char *const *l = fixture_choices("engine.level"); *l; l++)
            for (const char *const *kv = fixture_choices("engine.kv_type"); *kv; kv++) {
                char name[64];
                level = *l;
                kv_type = *kv;
                snprintf(name, sizeof name, "%s, %s, %s cache", architecture, level, kv_type);
                bool automatic = strcmp(level, "auto") == 0;
                if (automatic == SANITIZED && fixture_level_is_there(level))
                    failed += cmocka_run_group_tests_name(name, tests, setup, teardown);
            }
    }
    return failed;
}
