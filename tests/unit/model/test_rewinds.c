// A guide whose sequence goes back and forth is told what changed, not the answer anew.
#include "base/random.h"
#include "harness/seed.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>

#include "engine_fixture.h"

#define PROMPT 20
#define ANSWER 150
#define ROUNDS 150

// It keeps what it is told, allows everything but one token, and takes back so much at most.
typedef struct tape {
    int32_t tokens[RUN_TOKENS], count, most, heard;
} tape;

#define FORBIDDEN TINY_MODEL_BYTE_FIRST
#define END 2 // of the tiny model

static void tape_begin(void *state)
{
    ((tape *)state)->count = 0;
}

static bool tape_advance(void *state, int32_t token)
{
    tape *t = state;
    if (token == FORBIDDEN)
        return false;
    assert_true(t->count < RUN_TOKENS);
    t->tokens[t->count++] = token;
    t->heard++;
    return true;
}

static bool tape_rewind(void *state, int32_t count)
{
    tape *t = state;
    assert_true(count >= 0);
    if (count > t->most || count > t->count)
        return false;
    t->count -= count;
    return true;
}

static int32_t tape_follows(void *state, const int32_t *tokens, int32_t count)
{
    (void)state;
    int32_t fine = 0;
    while (fine < count && tokens[fine] != FORBIDDEN)
        fine++;
    return fine;
}

static bool tape_mask(void *state, uint64_t *mask, int32_t words, bool *complete)
{
    (void)state;
    memset(mask, 0xff, (size_t)words * sizeof mask[0]);
    mask[0] &= ~7ull; // the end ids are not the guide's
    mask[FORBIDDEN / 64] &= ~(1ull << FORBIDDEN % 64);
    *complete = false;
    return true;
}

static sequence_guide tape_guide(tape *t)
{
    return (sequence_guide){ .state = t,
                             .begin = tape_begin,
                             .advance = tape_advance,
                             .rewind = tape_rewind,
                             .follows = tape_follows,
                             .mask = tape_mask };
}

typedef struct scene {
    char path[64];
    engine *engine;
    sequence *sequence;
    tape tape;
    sequence_guide guide;
    int32_t tokens[PROMPT + ANSWER + 16], count; // what the sequence has
    run run;
} scene;

static void scene_open(scene *x, int32_t most)
{
    tiny_model o = tiny_model_default(17);
    *x = (scene){ .tape.most = most, .count = PROMPT };
    tiny_model_temporary(&o, x->path);
    engine_settings settings = fixture_settings(x->path);
    settings.rewinds = true;
    x->engine = fixture_open(&settings);
    x->guide = tape_guide(&x->tape);
    fixture_tokens(x->tokens, PROMPT, 5);
    sequence_request request = fixture_request(x->tokens, PROMPT, RUN_TOKENS);
    request.ignore_eos = false;
    request.guide = &x->guide;
    x->sequence = fixture_start(x->engine, request, &x->run);
    fixture_step(x->engine);
    x->tokens[x->count++] = x->run.tokens[0];
}

static void scene_close(scene *x)
{
    engine_sequence_close(x->engine, x->sequence, true);
    fixture_close(x->engine);
    unlink(x->path);
}

static void tape_expect(const scene *x)
{
    assert_int_equal(x->tape.count, x->count - PROMPT);
    assert_memory_equal(x->tape.tokens, x->tokens + PROMPT,
                        (size_t)x->tape.count * sizeof x->tokens[0]);
}

// The first `kept` tokens of the answer stay, and `more` others come behind them. Returns how many
// tokens the guide heard.
static int32_t scene_rewind(scene *x, int32_t kept, int32_t more, uint64_t bits)
{
    int32_t heard = x->tape.heard;
    for (int32_t i = 0; i < more; i++) // unlike what was there
        x->tokens[PROMPT + kept + i] =
            FORBIDDEN + 1 + (int32_t)((bits + (uint64_t)(x->tokens[PROMPT + kept + i] + i)) % 255);
    x->count = PROMPT + kept + more;
    assert_int_equal(engine_sequence_rewind(x->engine, x->sequence, x->tokens, x->count),
                     STATUS_OK);
    return x->tape.heard - heard;
}

// However the sequence was rewound, and whatever it drew since.
static void a_guide_has_heard_the_answer_and_nothing_else(void **state)
{
    (void)state;
    uint64_t random = seed_choose() << 32;
    for (int32_t most = 0; most <= 32; most += 8) {
        scene x;
        scene_open(&x, most);
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t bits = random_mix(random++);
            int32_t had = x.count - PROMPT, back = (int32_t)(bits % 16), kept = had - back;
            if (bits % 7 == 0 || kept < 0)
                kept = (int32_t)((bits >> 8) % (uint64_t)had);
            int32_t more = (int32_t)((bits >> 16) % 6) + (kept == 0);
            more = kept + more > ANSWER ? 0 : more;
            kept = kept + more < 1 ? 1 : kept;
            scene_rewind(&x, kept, more, bits >> 24);
            tape_expect(&x);
            x.run.count = x.count - PROMPT;
            for (int32_t steps = (int32_t)((bits >> 40) % 6);
                 steps > 0 && x.count < PROMPT + ANSWER; steps--) {
                fixture_step(x.engine);
                x.tokens[x.count++] = x.run.tokens[x.run.count - 1];
            }
            tape_expect(&x);
            if (x.run.finish == SEQUENCE_UNFINISHED && bits >> 63)
                engine_sequence_rest(x.engine, x.sequence);
        }
        scene_close(&x);
    }
}

// A guess costs what was guessed, however long the answer is.
static void a_guide_hears_only_what_changed(void **state)
{
    (void)state;
    scene x;
    scene_open(&x, 32);
    for (int32_t length = 4; length < ANSWER - 8; length += 4) {
        assert_int_equal(scene_rewind(&x, length > 4 ? length - 4 : 1, length > 4 ? 4 : 3, 9),
                         length > 4 ? 4 : 3);
        x.run.count = x.count - PROMPT;
        for (int i = 0; i < 4; i++) {
            fixture_step(x.engine);
            x.tokens[x.count++] = x.run.tokens[x.run.count - 1];
        }
    }
    x.tape.most = 2; // it remembers less
    int32_t kept = x.count - PROMPT - 3;
    assert_int_equal(scene_rewind(&x, kept, 1, 9), kept + 1);
    tape_expect(&x);
    scene_close(&x);
}

// Nor may one come that would have ended the answer.
static void a_token_that_the_guide_forbids_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        scene x;
        scene_open(&x, i % 2 ? 32 : 0);
        scene_rewind(&x, 1, 5, 3);
        x.tokens[PROMPT + 4] = i < 2 ? FORBIDDEN : END;
        assert_int_equal(engine_sequence_rewind(x.engine, x.sequence, x.tokens, x.count),
                         STATUS_INVALID);
        scene_close(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guide_has_heard_the_answer_and_nothing_else),
        cmocka_unit_test(a_guide_hears_only_what_changed),
        cmocka_unit_test(a_token_that_the_guide_forbids_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
