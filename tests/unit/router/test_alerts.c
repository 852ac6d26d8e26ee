// What is wrong, in words.
#include "router/alerts.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static const alerts_worker calm_prefill = { .name = "prefill-1",
                                            .role = POLICY_PREFILL,
                                            .state = "alive",
                                            .usable = true,
                                            .pages = 1000,
                                            .sequences = 32,
                                            .tokens = 8192,
                                            .tokens_per_s = 4000 };
static const alerts_worker calm_decode = { .name = "decode-1",
                                           .role = POLICY_DECODE,
                                           .state = "alive",
                                           .usable = true,
                                           .pages = 1024,
                                           .sequences = 32 };

// A cluster that a test makes worse.
typedef struct scene {
    alerts_worker workers[12];
    alerts_model models[2];
    alerts_departed departed[2];
    alerts_view view;
    alert found[ALERTS_MAX];
    size_t count;
} scene;

static scene calm(void)
{
    return (scene){ .workers = { calm_prefill, calm_decode },
                    .models = { { .name = "one" } },
                    .view = { .local_prefill = true, .model_count = 1, .worker_count = 2 } };
}

static void look(scene *s)
{
    s->view.models = s->models;
    s->view.workers = s->workers;
    s->view.departed = s->departed;
    s->count = alerts_find(&s->view, s->found);
}

static void expect(const scene *s, size_t index, alert_level level, const char *code,
                   const char *text)
{
    assert_true(index < s->count);
    assert_string_equal(s->found[index].code, code);
    assert_string_equal(s->found[index].text, text);
    assert_int_equal(s->found[index].level, level);
}

static void a_calm_cluster_needs_nobody(void **state)
{
    (void)state;
    scene s = calm();
    s.models[0].waiting = 9; // for a moment
    s.models[0].oldest_s = 0.2;
    look(&s);
    assert_int_equal(s.count, 0);
    assert_string_equal(alert_level_name(ALERT_WARNING), "warning");
}

static void decode_without_pages_is_the_bottleneck(void **state)
{
    (void)state;
    scene s = calm();
    s.models[0].waiting = 9;
    s.models[0].oldest_s = 4.2;
    s.workers[1].pages_spent = 1020;
    s.workers[1].sequences_spent = 20;
    look(&s);
    expect(&s, 0, ALERT_WARNING, "decode_bottleneck",
           "Decode is the bottleneck: 9 requests wait for pages (1,020 of 1,024 in use), the first "
           "for 4.2 s.");
    assert_int_equal(s.count, 1);
    s.models[0].waiting = 1;
    s.models[0].oldest_s = 12;
    s.workers[1].sequences_spent = 32;
    look(&s);
    expect(
        &s, 0, ALERT_BAD, "decode_bottleneck",
        "Decode is the bottleneck: 1 request waits for a place in a batch (32 of 32 in use), the "
        "first for 12.0 s.");
}

static void a_role_that_idles_is_named_as_help(void **state)
{
    (void)state;
    scene s = calm();
    s.models[0].waiting = 2;
    s.models[0].oldest_s = 1;
    s.workers[1].sequences_spent = 32;
    s.workers[2] = calm_prefill;
    s.view.worker_count = 3;
    look(&s);
    assert_non_null(strstr(s.found[0].text, "Prefill has little to do: a worker that flips"));
    s.workers[0].sequences_spent = 20;
    look(&s);
    assert_null(strstr(s.found[0].text, "little to do"));
}

static void prefill_is_the_bottleneck_where_prompts_are_ahead(void **state)
{
    (void)state;
    scene s = calm();
    s.models[0].waiting = 3;
    s.models[0].oldest_s = 2;
    s.workers[0].tokens_outstanding = 8000;
    look(&s);
    expect(
        &s, 0, ALERT_WARNING, "prefill_bottleneck",
        "Prefill is the bottleneck: 3 requests wait, the first for 2.0 s; 8,000 prompt tokens are "
        "ahead, about 2.0 s of work.");
    s.models[0].waiting = 0;
    s.workers[0].tokens_outstanding = 12000;
    look(&s);
    expect(
        &s, 0, ALERT_WARNING, "prefill_backlog",
        "Prompts queue up at prefill: 12,000 tokens are ahead, about 3.0 s of work for 1 worker.");
}

static void a_draft_model_that_does_not_pay_is_named_with_its_numbers(void **state)
{
    (void)state;
    scene s = calm();
    guesses g = { .batch = 16, .class_count = 1 };
    guesses_class *c = &g.classes[0];
    *c = (guesses_class){ .name = "interactive", .drafter_count = 2 };
    c->drafters[0] = (guesses_drafter){ .name = "ngram", .expected = 0.1, .below_s = 900 };
    c->drafters[1] = (guesses_drafter){
        .name = "model", .draft = "small", .expected = 0.48, .break_even = 0.71, .below_s = 30
    };
    s.workers[1].guesses = &g;
    s.workers[1].sequences_spent = 16;
    look(&s);
    assert_int_equal(s.count, 0); // not yet, and texts cost nothing
    c->drafters[1].below_s = 61;
    look(&s);
    expect(&s, 0, ALERT_WARNING, "draft_below_break_even",
           "The draft model small does not pay on decode-1: of 100 guesses 48 are right (alpha "
           "0.48), and 71 are needed at batch 16, so for interactive answers it is off (the usual "
           "rule of thumb is 0.6).");
    c->drafters[1].break_even = 1;
    look(&s);
    assert_non_null(
        strstr(s.found[0].text, "and not even 100 pay for checking them at batch 16, so"));
    c->drafters[1].break_even = 0.4; // it begins to pay
    look(&s);
    assert_int_equal(s.count, 0);
    c->drafters[1].break_even = 1;
    s.workers[1].sequences_spent = 0; // nobody is served
    look(&s);
    assert_int_equal(s.count, 0);
}

static void waiting_beside_room_is_said_so(void **state)
{
    (void)state;
    scene s = calm();
    s.models[0].waiting = 1;
    s.models[0].oldest_s = 2;
    look(&s);
    assert_string_equal(s.found[0].code, "no_room");
}

static void workers_that_are_not_well_are_named(void **state)
{
    (void)state;
    scene s = calm();
    for (size_t i = 0; i < 5; i++) {
        static const char *const names[] = { "a", "b", "c", "d", "e" };
        s.workers[2 + i] = calm_decode;
        s.workers[2 + i].name = names[i];
        s.workers[2 + i].state = "suspect";
        s.workers[2 + i].usable = false;
    }
    s.workers[7] = calm_decode;
    s.workers[7].state = "unhealthy";
    s.workers[7].name = "ill";
    s.workers[7].pages_quarantined = 1;
    s.view.worker_count = 8;
    s.departed[0] = (alerts_departed){ "gone", POLICY_DECODE, false, 12, "one" };
    s.departed[1] = (alerts_departed){ "polite", POLICY_DECODE, true, 12, "one" };
    s.view.departed_count = 2;
    look(&s);
    expect(&s, 0, ALERT_BAD, "unhealthy", "ill has work and makes no progress.");
    expect(&s, 1, ALERT_WARNING, "worker_lost",
           "The decode worker gone died 12 s ago and has not come back.");
    expect(&s, 2, ALERT_WARNING, "suspect", "a, b, c and 2 more are silent and get no new work.");
    expect(&s, 3, ALERT_WARNING, "quarantine",
           "1 page is held back until the connection that may still touch them is closed.");
    assert_int_equal(s.count, 4);
}

static void without_prefill_workers_decode_computes_prompts(void **state)
{
    (void)state;
    scene s = calm();
    s.workers[0].usable = false;
    s.workers[0].state = "joining";
    s.view.no_prefill = 14;
    look(&s);
    expect(
        &s, 0, ALERT_WARNING, "no_prefill",
        "No prefill worker can take work: decode workers compute the prompts themselves, 14 within "
        "the last minute.");
    s.view.local_prefill =
        false; // then they do not; that requests cannot be served is said elsewhere
    s.models[0].not_ready = "no prefill worker is alive, and policy.local_prefill is off";
    look(&s);
    expect(
        &s, 0, ALERT_BAD, "not_ready",
        "No request can be served: no prefill worker is alive, and policy.local_prefill is off.");
    assert_int_equal(s.count, 1);
}

static void requests_that_went_wrong_come_first(void **state)
{
    (void)state;
    scene s = calm();
    s.view.errors = 1;
    s.view.refused = 1200;
    s.view.retries = 2;
    s.view.handoff_failed = 3;
    s.view.draining = true;
    s.view.running = 1;
    look(&s);
    assert_int_equal(s.count, 5);
    expect(&s, 0, ALERT_BAD, "errors", "1 request failed within the last minute.");
    expect(&s, 1, ALERT_WARNING, "refused",
           "1,200 requests were refused within the last minute: too many wait (429).");
    expect(&s, 4, ALERT_NOTE, "router_draining",
           "The router takes nothing new; 1 request is being finished.");
}

static void of_several_models_each_has_its_own_bottleneck(void **state)
{
    (void)state;
    scene s = calm();
    s.models[1] =
        (alerts_model){ .name = "two", .not_ready = "no decode worker is alive", .waiting = 1 };
    s.view.model_count = 2;
    s.models[0].waiting = 5;
    s.models[0].oldest_s = 1;
    s.workers[1].pages_spent = 1024;
    look(&s);
    expect(&s, 0, ALERT_BAD, "not_ready",
           "two: No request can be served: no decode worker is alive.");
    assert_true(strncmp(s.found[1].text, "one: Decode is the bottleneck: 5 ", 32) == 0);
    assert_int_equal(s.count, 2);
}

static void there_are_never_too_many(void **state)
{
    (void)state;
    scene s = calm();
    alerts_departed many[64];
    for (size_t i = 0; i < 64; i++)
        many[i] = (alerts_departed){ "x", POLICY_DECODE, false, 1, "one" };
    look(&s);
    s.view.departed = many;
    s.view.departed_count = 64;
    assert_int_equal(alerts_find(&s.view, s.found), ALERTS_MAX);
}

// Whatever is cut to fit, no sentence holds half a character of a name.
static void names_are_cut_between_characters(void **state)
{
    (void)state;
    static const char characters[] = "\xc3\xa9\xe5\xa4\xa9\xf0\x9f\x8c\x9e"; // of 2, 3, 4 bytes
    for (size_t shift = 0; shift < 9; shift++) {
        char name[200] = "";
        guesses g = { .batch = 16, .class_count = 1 };
        scene s = calm();
        for (size_t i = 0; i < shift; i++)
            strcat(name, "a");
        while (strlen(name) + sizeof characters <= sizeof name)
            strcat(name, characters);
        g.classes[0] = (guesses_class){ .name = "batch", .drafter_count = 1 };
        g.classes[0].drafters[0] =
            (guesses_drafter){ .name = "model", .below_s = 61, .break_even = 1 };
        memcpy(g.classes[0].drafters[0].draft, name, 63);
        s.models[0].name = s.models[1].name = name;
        s.models[0].not_ready = name;
        s.view.model_count = 2;
        s.workers[1].guesses = &g;
        s.workers[1].sequences_spent = 1;
        for (size_t i = 0; i < 5; i++)
            s.workers[i + 2] = (alerts_worker){ .name = name, .state = "suspect" };
        s.workers[1].name = name;
        s.view.worker_count = 7;
        s.departed[0] = (alerts_departed){ .name = name, .ago_s = 5 };
        s.view.departed_count = 1;
        look(&s);
        assert_true(s.count >= 4);
        for (size_t i = 0; i < s.count; i++) {
            const char *text = s.found[i].text;
            for (size_t left = strlen(text), size; left > 0; left -= size, text += size)
                if ((size = utf8_sequence_size(text, left)) == 0)
                    fail_msg("half a character in \"%s\"", s.found[i].text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_calm_cluster_needs_nobody),
        cmocka_unit_test(decode_without_pages_is_the_bottleneck),
        cmocka_unit_test(a_role_that_idles_is_named_as_help),
        cmocka_unit_test(prefill_is_the_bottleneck_where_prompts_are_ahead),
        cmocka_unit_test(a_draft_model_that_does_not_pay_is_named_with_its_numbers),
        cmocka_unit_test(waiting_beside_room_is_said_so),
        cmocka_unit_test(workers_that_are_not_well_are_named),
        cmocka_unit_test(without_prefill_workers_decode_computes_prompts),
        cmocka_unit_test(requests_that_went_wrong_come_first),
        cmocka_unit_test(of_several_models_each_has_its_own_bottleneck),
        cmocka_unit_test(there_are_never_too_many),
        cmocka_unit_test(names_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
