// What is told of guessed tokens arrives as it was told, and nothing else gets in.
#include "net/guesses.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static guesses_drafter some_drafter(const char *name, size_t positions)
{
    guesses_drafter d = { .right = 70,
                          .wrong = 20,
                          .behind = 30,
                          .alpha = 0.78,
                          .low = 0.7,
                          .high = 0.84,
                          .outcomes = 90,
                          .expected = 0.6,
                          .break_even = 0.5,
                          .below_s = 12.5,
                          .positions = positions };
    snprintf(d.name, sizeof d.name, "%s", name);
    snprintf(d.draft, sizeof d.draft, "small");
    for (size_t i = 0; i < positions; i++) {
        d.tried[i] = 5000000000 - i;
        d.held[i] = 4900000000 - i;
    }
    return d;
}

// As much as there is room for.
static guesses all_there_is(void)
{
    guesses g = { .sentence = "on: it was just begun",
                  .break_even = 0.4,
                  .batch = 16,
                  .steps_on = 1,
                  .steps_probing = 2,
                  .steps_off = 3,
                  .steps_prompts = 4,
                  .drafter_count = MESSAGE_DRAFTERS_MAX,
                  .class_count = MESSAGE_GUESS_CLASSES_MAX };
    for (size_t i = 0; i < g.drafter_count; i++)
        g.drafters[i] = some_drafter("ngram", GUESSES_POSITIONS);
    for (size_t c = 0; c < g.class_count; c++) {
        guesses_class *to = &g.classes[c];
        *to = (guesses_class){ .name = "batch",
                               .sentence = "off: no page of the cache is left for guesses",
                               .state = "pages",
                               .drafter = "suffix",
                               .alpha = 0.5,
                               .break_even = 0.6,
                               .tokens_per_step = 1.5,
                               .tokens_per_s = 30,
                               .gained_per_s = -2,
                               .state_count = MESSAGE_GUESS_STATES_MAX,
                               .drafter_count = MESSAGE_DRAFTERS_MAX };
        for (size_t i = 0; i < to->state_count; i++)
            to->states[i] = (guesses_state){ .name = "pages", .rows = 5 + i, .share = 0.25 };
        for (size_t i = 0; i < to->drafter_count; i++)
            to->drafters[i] = some_drafter("suffix", i);
    }
    return g;
}

// Through a heartbeat and back.
static status send(const guesses *g, guesses *arrived, error *failure)
{
    guesses_room room;
    Penstock__WorkerBeat beat = PENSTOCK__WORKER_BEAT__INIT;
    message_to_router message = PENSTOCK__TO_ROUTER__INIT, *unpacked = NULL;
    buffer bytes = { 0 };
    beat.guesses = guesses_tell(g, &room);
    message.body_case = PENSTOCK__TO_ROUTER__BODY_BEAT;
    message.beat = &beat;
    message_pack(&message.base, &bytes);
    status result = message_unpack_to_router(buffer_slice(&bytes), &unpacked, failure);
    if (result == STATUS_OK)
        guesses_take(unpacked->beat->guesses, arrived);
    message_free(unpacked);
    buffer_close(&bytes);
    return result;
}

static void drafters_expect_equal(const guesses_drafter *a, const guesses_drafter *b)
{
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->draft, b->draft);
    assert_true(a->right == b->right && a->wrong == b->wrong && a->behind == b->behind);
    assert_true(a->alpha == b->alpha && a->low == b->low && a->high == b->high);
    assert_true(a->outcomes == b->outcomes && a->expected == b->expected);
    assert_true(a->break_even == b->break_even && a->below_s == b->below_s);
    assert_int_equal(a->positions, b->positions);
    assert_memory_equal(a->tried, b->tried, sizeof a->tried);
    assert_memory_equal(a->held, b->held, sizeof a->held);
}

static void it_arrives_as_it_was_told(void **state)
{
    (void)state;
    guesses g = all_there_is(), h;
    error failure = { 0 };
    if (send(&g, &h, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    assert_string_equal(g.sentence, h.sentence);
    assert_true(h.break_even == g.break_even && h.batch == 16);
    assert_true(h.steps_on == 1 && h.steps_probing == 2 && h.steps_off == 3 &&
                h.steps_prompts == 4);
    assert_int_equal(h.drafter_count, g.drafter_count);
    assert_int_equal(h.class_count, g.class_count);
    for (size_t i = 0; i < g.drafter_count; i++)
        drafters_expect_equal(&g.drafters[i], &h.drafters[i]);
    for (size_t c = 0; c < g.class_count; c++) {
        const guesses_class *a = &g.classes[c], *b = &h.classes[c];
        assert_string_equal(a->name, b->name);
        assert_string_equal(a->sentence, b->sentence);
        assert_string_equal(a->state, b->state);
        assert_string_equal(a->drafter, b->drafter);
        assert_true(b->alpha == 0.5 && b->break_even == 0.6);
        assert_true(b->tokens_per_step == 1.5 && b->tokens_per_s == 30 && b->gained_per_s == -2);
        assert_int_equal(a->state_count, b->state_count);
        for (size_t i = 0; i < a->state_count; i++) {
            assert_string_equal(b->states[i].name, "pages");
            assert_true(b->states[i].rows == 5 + i && b->states[i].share == 0.25);
        }
        assert_int_equal(a->drafter_count, b->drafter_count);
        for (size_t i = 0; i < a->drafter_count; i++)
            drafters_expect_equal(&a->drafters[i], &b->drafters[i]);
    }
}

static void nothing_told_is_nothing(void **state)
{
    (void)state;
    guesses nothing = { 0 }, arrived = all_there_is();
    error failure = { 0 };
    assert_int_equal(send(&nothing, &arrived, &failure), STATUS_OK);
    assert_string_equal(arrived.sentence, "");
    assert_true(arrived.class_count == 0 && arrived.drafter_count == 0);
}

// A worker of the version before tells no classes.
static void what_an_older_worker_tells_is_taken(void **state)
{
    (void)state;
    guesses old = all_there_is(), arrived;
    error failure = { 0 };
    old.class_count = 0;
    for (size_t i = 0; i < old.drafter_count; i++) {
        guesses_drafter *d = &old.drafters[i];
        d->draft[0] = '\0';
        d->outcomes = d->expected = d->break_even = d->below_s = 0;
        d->positions = 0;
    }
    assert_int_equal(send(&old, &arrived, &failure), STATUS_OK);
    assert_true(arrived.class_count == 0 && arrived.drafters[3].right == 70);
}

static void refused_for(const guesses *g, const char *field)
{
    guesses arrived;
    error failure = { 0 };
    assert_int_equal(send(g, &arrived, &failure), STATUS_PEER_PROTOCOL);
    if (!strstr(failure.text, field))
        fail_msg("%s is not %s", failure.text, field);
}

static void what_cannot_be_is_turned_away_by_field(void **state)
{
    (void)state;
    struct {
        double value;
        size_t at;
        const char *field;
    } cases[] = {
        { 1.01, offsetof(guesses_drafter, alpha), "drafter.alpha" },
        { NAN, offsetof(guesses_drafter, low), "drafter.alpha" },
        { -0.1, offsetof(guesses_drafter, break_even), "drafter.break_even" },
        { NAN, offsetof(guesses_drafter, expected), "drafter.expected" },
        { -1, offsetof(guesses_drafter, outcomes), "drafter.outcomes" },
        { INFINITY, offsetof(guesses_drafter, below_s), "drafter.below_s" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        guesses g = all_there_is();
        memcpy((char *)&g.classes[1].drafters[1] + cases[i].at, &cases[i].value, sizeof(double));
        refused_for(&g, cases[i].field);
    }
    guesses g = all_there_is();
    g.classes[0].states[3].share = 1.5;
    refused_for(&g, "guess_state.share");
    g = all_there_is();
    g.classes[0].gained_per_s = NAN;
    refused_for(&g, "guess_class.gained_per_s");
    g = all_there_is();
    g.classes[1].break_even = 2;
    refused_for(&g, "guess_class.break_even");
    g = all_there_is();
    g.classes[1].tokens_per_step = -1;
    refused_for(&g, "guess_class.tokens_per_step");
}

// Lists that the structs above have no room for.
static void what_is_too_much_is_turned_away_by_field(void **state)
{
    (void)state;
    guesses g = all_there_is();
    guesses_room room;
    error failure = { 0 };
    uint64_t many[GUESSES_POSITIONS + 1] = { 0 };
    Penstock__GuessClass *three[3];
    Penstock__Guesses *m;
    for (int which = 0; which < 3; which++) {
        Penstock__WorkerBeat beat = PENSTOCK__WORKER_BEAT__INIT;
        message_to_router message = PENSTOCK__TO_ROUTER__INIT, *unpacked = NULL;
        buffer bytes = { 0 };
        m = guesses_tell(&g, &room);
        if (which == 0) {
            three[0] = three[1] = three[2] = m->classes[0];
            m->classes = three;
            m->n_classes = 3;
        } else {
            m->drafters[0]->tried = many;
            m->drafters[0]->n_tried = which == 1 ? GUESSES_POSITIONS + 1 : GUESSES_POSITIONS - 1;
        }
        beat.guesses = m;
        message.body_case = PENSTOCK__TO_ROUTER__BODY_BEAT;
        message.beat = &beat;
        message_pack(&message.base, &bytes);
        assert_int_equal(message_unpack_to_router(buffer_slice(&bytes), &unpacked, &failure),
                         STATUS_PEER_PROTOCOL);
        const char *fields[] = { "guesses.classes", "drafter.tried", "drafter.held" };
        if (!strstr(failure.text, fields[which]))
            fail_msg("%s", failure.text);
        buffer_close(&bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_arrives_as_it_was_told),
        cmocka_unit_test(nothing_told_is_nothing),
        cmocka_unit_test(what_an_older_worker_tells_is_taken),
        cmocka_unit_test(what_cannot_be_is_turned_away_by_field),
        cmocka_unit_test(what_is_too_much_is_turned_away_by_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
