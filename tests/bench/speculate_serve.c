#include "speculate.h"

#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TURN_TOKENS 2 // of each sequence that a turn draws

typedef struct client {
    sequence *sequence;
    int32_t slot, drawn, prompt_count;
    bool ended;
} client;

// One side: the same sequences as the other's, and its own figures.
typedef struct side {
    engine *engine;
    speculation *speculation; // NULL: without
    client clients[SPECULATE_BATCH_MAX];
    int batch;
    speculate_side done;
} side;

static void client_begin(side *s, client *c, const speculate_work *w, int number)
{
    error failure = { 0 };
    const speculate_prompt *p = &w->prompts[number % w->prompt_count];
    sequence_request r = {
        .tokens = p->tokens.ids,
        .token_count = (int32_t)p->tokens.count,
        .prompt_count = (int32_t)p->tokens.count,
        .max_tokens = p->max_tokens,
        .owner = c,
        .sampling = { .temperature = (float)w->temperature,
                      .top_p = 1,
                      .typical_p = 1,
                      .repetition_penalty = 1,
                      .seed = (uint64_t)number + 1 },
    };
    *c = (client){ .slot = -1, .prompt_count = (int32_t)p->tokens.count };
    if (engine_sequence_open(s->engine, &r, &c->sequence, &failure) != STATUS_OK) {
        fprintf(stderr, "penstock-bench speculate: %s\n", failure.text);
        exit(1);
    }
    engine_sequence_start(s->engine, c->sequence);
    if (s->speculation)
        c->slot = speculation_begin(s->speculation, &r, "");
}

static void step_count(side *s, const engine_report *report)
{
    speculate_side *d = &s->done;
    d->tokens += report->token_count;
    d->steps++;
    d->drafted += report->draft_rows;
    if (report->draft_rows > 0) {
        d->on_steps++;
        d->on_us += (double)report->duration_us;
    } else {
        d->plain_us += (double)report->duration_us;
    }
}

static void step(side *s)
{
    engine_report report;
    speculation_item items[SPECULATE_BATCH_MAX];
    int32_t running = 0;
    bool prompts = false;
    for (int i = 0; i < s->batch; i++) {
        client *c = &s->clients[i];
        if (c->drawn > 0 && !c->ended)
            items[running++] = (speculation_item){ .sequence = c->sequence, .slot = c->slot };
        prompts = prompts || c->drawn == 0;
    }
    if (s->speculation)
        speculation_guess(s->speculation, s->engine, items, running, prompts);
    engine_step(s->engine, &report);
    if (s->speculation)
        speculation_learn(s->speculation, &report);
    for (int32_t i = 0; i < report.token_count; i++) {
        client *c = report.tokens[i].owner;
        int32_t token = report.tokens[i].sampled.token;
        c->drawn++;
        c->ended = report.tokens[i].finish != SEQUENCE_UNFINISHED;
        s->done.text +=
            hash64_of(&token, sizeof token, (uint64_t)(c - s->clients) << 32 | (uint32_t)c->drawn);
    }
    step_count(s, &report);
}

// Compute the prompts; the small model's too, as while a seat waits for its pages.
static void side_begin(side *s, engine *e, speculation *guesses, const speculate_work *w)
{
    bool all = false;
    *s = (side){ .engine = e, .speculation = guesses, .batch = w->batch };
    for (int i = 0; i < w->batch; i++)
        client_begin(s, &s->clients[i], w, i);
    while (!all && engine_has_work(e)) {
        step(s);
        all = true;
        for (int i = 0; i < s->batch; i++)
            all = all && s->clients[i].drawn > 0;
    }
    while (guesses && speculation_work(guesses))
        ;
    s->done = (speculate_side){ .text = s->done.text };
}

static void side_rest(side *s)
{
    for (int i = 0; i < s->batch; i++)
        if (!s->clients[i].ended)
            engine_sequence_rest(s->engine, s->clients[i].sequence);
}

static void side_end(side *s)
{
    double begun = bench_now();
    for (int i = 0; i < s->batch; i++) {
        const client *c = &s->clients[i];
        int32_t count;
        const int32_t *tokens = sequence_tokens(c->sequence, &count);
        if (s->speculation)
            speculation_end(s->speculation, c->slot, tokens, c->prompt_count, count);
    }
    s->done.seconds += bench_now() - begun; // what the drafters learn from it costs too
    for (int i = 0; i < s->batch; i++)
        engine_sequence_close(s->engine, s->clients[i].sequence, false);
}

void speculate_serve(engine *e, speculation *s, const speculate_work *w)
{
    static side alone;
    side_begin(&alone, e, s, w);
    while (engine_has_work(e))
        step(&alone);
    side_end(&alone);
    engine_prefixes_drop(e);
}

// ---- turns ------------------------------------------------------------------------------------

// Draw until the side has `goal` tokens or ends. Returns the seconds it took.
static double turn(side *s, double goal)
{
    if (s->done.tokens >= goal)
        return 0; // its last turn went so far
    for (int i = 0; i < s->batch; i++)
        if (!s->clients[i].ended)
            engine_sequence_resume(s->engine, s->clients[i].sequence);
    double begun = bench_now();
    while (s->done.tokens < goal && engine_has_work(s->engine))
        step(s);
    double seconds = bench_now() - begun;
    s->done.seconds += seconds;
    side_rest(s);
    return seconds;
}

static bool side_ended(const side *s)
{
    bool all = true;
    for (int i = 0; i < s->batch; i++)
        all = all && s->clients[i].ended;
    return all;
}

static void turns_add(speculate_turns *t, double with, double without)
{
    t->count++;
    t->with += with;
    t->without += without;
    t->with_squares += with * with;
    t->without_squares += without * without;
    t->products += with * without;
}

// Of a ratio of sums (Cochran 1977, "Sampling Techniques", section 6.4).
double speculate_ratio(const speculate_pair *pair, double *deviation)
{
    const speculate_turns *t = &pair->turns;
    const speculate_side *with = &pair->with, *without = &pair->without;
    double ratio = t->without / t->with;
    double squares = t->without_squares - 2 * ratio * t->products + ratio * ratio * t->with_squares;
    *deviation =
        t->count < 2 ? INFINITY : sqrt(fmax(0, squares) * t->count / (t->count - 1)) / t->with;
    return with->tokens / with->seconds * without->seconds / without->tokens;
}

static void side_sum(speculate_side *sum, const speculate_side *s)
{
    sum->seconds += s->seconds;
    sum->tokens += s->tokens;
    sum->steps += s->steps;
    sum->on_steps += s->on_steps;
    sum->on_us += s->on_us;
    sum->drafted += s->drafted;
    sum->plain_us += s->plain_us;
    sum->text += s->text;
}

static void outcomes(const speculation *s, speculate_pair *p, double sign)
{
    speculation_stats stats;
    speculation_stats_of(s, &stats);
    for (int i = 0; i < SPECULATION_DRAFTERS; i++) {
        p->accepted += sign * (double)stats.drafters[i].accepted;
        p->rejected += sign * (double)stats.drafters[i].rejected;
    }
    p->drafting_us += sign * (double)stats.drafting_us;
}

// Make the prompts known prefixes. Else the side that comes first computes and holds each of equal
// prompts, the other shares their pages, and reads less in every step.
static void prompts_compute(engine *e, const speculate_work *w)
{
    static side alone;
    speculate_work once = *w;
    if (once.batch > once.prompt_count)
        once.batch = once.prompt_count;
    side_begin(&alone, e, NULL, &once);
    for (int i = 0; i < once.batch; i++)
        engine_sequence_close(e, alone.clients[i].sequence, true);
}

void speculate_serve_pair(engine *e, speculation *s, const speculate_work *w, speculate_pair *pair)
{
    static side with, without;
    double goal = 0;
    prompts_compute(e, w);
    side_begin(&with, e, s, w);
    side_rest(&with);
    side_begin(&without, e, NULL, w);
    side_rest(&without);
    outcomes(s, pair, -1);
    for (int i = 0; !side_ended(&with) || !side_ended(&without); i++) {
        goal += TURN_TOKENS * w->batch;
        bool first = i % 2 == 0;
        double took = first ? turn(&with, goal) : 0;
        double plain = turn(&without, goal);
        took = first ? took : turn(&with, goal);
        turns_add(&pair->turns, took, plain);
    }
    outcomes(s, pair, 1);
    side_end(&with);
    side_end(&without);
    engine_prefixes_drop(e);
    side_sum(&pair->with, &with.done);
    side_sum(&pair->without, &without.done);
}
