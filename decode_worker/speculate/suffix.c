// Past answers lie in a few automata, each of one tenant and of a fixed size. A tenant fills its
// newest one and then takes over the one that was used least recently, whoever owned it: the oldest
// answers are forgotten together, and a busy tenant can hold them all.
#include "decode_worker/speculate/drafter.h"

#include "base/random.h"

#include <stdlib.h>
#include <string.h>

#define AUTOMATA 8
#define LEAD 16         // tokens of the prompt kept before an answer, so that it is found early
#define ANSWER_MAX 2048 // latest tokens of an answer that are kept: an insertion is no pause
#define LINKS_MAX 32    // suffixes of a new position whose latest occurrence is noted
#define LENGTH_MIN 3    // shorter matches say nothing
#define CATCH_UP 32     // tokens that a sequence is followed back in an automaton that is new to it
#define END (-1)        // in the text, behind every answer

typedef struct state {
    int32_t length; // of its longest string
    int32_t link;   // the state of the longest suffix that is in another one; -1: the root's
    int32_t latest; // where in the text its strings last ended
    int32_t edges;  // first of its list; -1: none
} state;

typedef struct edge {
    int32_t from, token, to;
    int32_t next; // of the same state; -1: none
} edge;

typedef struct automaton {
    hash128 tenant;
    uint64_t epoch;   // changes when it is emptied
    uint64_t used_at; // counter of ends and matches; 0: never
    int32_t text_count, state_count, edge_count;
    int32_t *text;  // [tokens]
    state *states;  // [2 * tokens]
    edge *edges;    // [3 * tokens]
    int32_t *table; // [table_size] by hash of (state, token): edge + 1; 0: none
} automaton;

// Where a sequence stands in one automaton.
typedef struct place {
    uint64_t epoch;
    int32_t state, length; // of the longest suffix that is in it
    int32_t followed;      // tokens of the sequence taken in
} place;

typedef struct slot {
    hash128 tenant;
    place places[AUTOMATA];
} slot;

typedef struct suffix {
    int32_t tokens, table_size; // of each automaton
    uint64_t now;
    automaton automata[AUTOMATA];
    slot *slots;
} suffix;

// ---- one automaton ----------------------------------------------------------------------------

static int32_t *cell_of(const suffix *x, const automaton *a, int32_t from, int32_t token)
{
    uint64_t key = random_mix((uint64_t)(uint32_t)from << 32 | (uint32_t)token);
    for (;; key++) {
        int32_t *cell = &a->table[key & (uint64_t)(x->table_size - 1)];
        if (*cell == 0)
            return cell;
        const edge *e = &a->edges[*cell - 1];
        if (e->from == from && e->token == token)
            return cell;
    }
}

// -1: there is none.
static int32_t edge_to(const suffix *x, const automaton *a, int32_t from, int32_t token)
{
    int32_t cell = *cell_of(x, a, from, token);
    return cell ? a->edges[cell - 1].to : -1;
}

static void edge_set(const suffix *x, automaton *a, int32_t from, int32_t token, int32_t to)
{
    int32_t *cell = cell_of(x, a, from, token);
    if (*cell == 0) {
        a->edges[a->edge_count] = (edge){ from, token, to, a->states[from].edges };
        a->states[from].edges = a->edge_count++;
        *cell = a->edge_count;
    }
    a->edges[*cell - 1].to = to;
}

static int32_t state_new(automaton *a, int32_t length, int32_t link, int32_t latest)
{
    a->states[a->state_count] = (state){ length, link, latest, -1 };
    return a->state_count++;
}

// The part of `whole` that is no longer than `length` becomes a state of its own.
static int32_t state_split(const suffix *x, automaton *a, int32_t whole, int32_t length,
                           int32_t from, int32_t token)
{
    int32_t part = state_new(a, length, a->states[whole].link, a->states[whole].latest);
    for (int32_t i = a->states[whole].edges; i >= 0; i = a->edges[i].next)
        edge_set(x, a, part, a->edges[i].token, a->edges[i].to);
    a->states[whole].link = part;
    for (; from >= 0 && edge_to(x, a, from, token) == whole; from = a->states[from].link)
        edge_set(x, a, from, token, part);
    return part;
}

// One more token behind `last`; returns the state of the whole answer so far.
static int32_t automaton_extend(const suffix *x, automaton *a, int32_t last, int32_t token)
{
    int32_t position = a->text_count, to = edge_to(x, a, last, token);
    a->text[a->text_count++] = token;
    if (to >= 0 && a->states[to].length != a->states[last].length + 1)
        to = state_split(x, a, to, a->states[last].length + 1, last, token);
    if (to < 0) {
        int32_t from = last, known = -1;
        to = state_new(a, a->states[last].length + 1, 0, position);
        for (; from >= 0 && (known = edge_to(x, a, from, token)) < 0; from = a->states[from].link)
            edge_set(x, a, from, token, to);
        if (from >= 0 && a->states[known].length == a->states[from].length + 1)
            a->states[to].link = known;
        else if (from >= 0)
            a->states[to].link = state_split(x, a, known, a->states[from].length + 1, from, token);
    }
    int32_t noted = to;
    for (int32_t i = 0; i < LINKS_MAX && noted > 0; i++, noted = a->states[noted].link)
        a->states[noted].latest = position;
    return to;
}

static void automaton_empty(suffix *x, automaton *a, hash128 tenant)
{
    a->tenant = tenant;
    a->epoch++;
    a->text_count = a->state_count = a->edge_count = 0;
    memset(a->table, 0, (size_t)x->table_size * sizeof a->table[0]);
    state_new(a, 0, -1, 0);
}

static void place_follow(const suffix *x, const automaton *a, place *p, int32_t token)
{
    int32_t to = -1;
    while ((to = edge_to(x, a, p->state, token)) < 0 && p->state > 0) {
        p->state = a->states[p->state].link;
        p->length = a->states[p->state].length;
    }
    p->length = to < 0 ? 0 : p->length + 1;
    p->state = to < 0 ? 0 : to;
}

// ---- the drafter ------------------------------------------------------------------------------

static void suffix_close(void *drafter)
{
    suffix *x = drafter;
    if (!x)
        return;
    for (int i = 0; i < AUTOMATA; i++) {
        free(x->automata[i].text);
        free(x->automata[i].states);
        free(x->automata[i].edges);
        free(x->automata[i].table);
    }
    free(x->slots);
    free(x);
}

static status suffix_open(const drafter_limits *limits, void **opened, error *failure)
{
    suffix *x = calloc(1, sizeof *x);
    bool taken = x != NULL;
    if (x) {
        int64_t tokens = limits->memory / AUTOMATA;
        x->tokens = (int32_t)(tokens < 2 * ANSWER_MAX ? 2 * ANSWER_MAX : tokens);
        for (x->table_size = 1; x->table_size < 6 * x->tokens;)
            x->table_size *= 2;
        x->slots = calloc((size_t)limits->slots, sizeof x->slots[0]);
        taken = x->slots != NULL;
    }
    for (int i = 0; taken && i < AUTOMATA; i++) {
        automaton *a = &x->automata[i];
        size_t n = (size_t)x->tokens;
        a->text = malloc(n * sizeof a->text[0]);
        a->states = malloc(2 * n * sizeof a->states[0]);
        a->edges = malloc(3 * n * sizeof a->edges[0]);
        a->table = malloc((size_t)x->table_size * sizeof a->table[0]);
        taken = a->text && a->states && a->edges && a->table;
        if (taken)
            automaton_empty(x, a, (hash128){ 0 });
    }
    if (!taken) {
        suffix_close(x);
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short for suffix drafts");
    }
    *opened = x;
    return STATUS_OK;
}

static void suffix_begin(void *drafter, int32_t index, hash128 tenant)
{
    suffix *x = drafter;
    x->slots[index] = (slot){ .tenant = tenant };
}

// Take in what the sequence has drawn since; false: the automaton is another tenant's.
static bool place_update(const suffix *x, slot *s, int i, const int32_t *tokens, int32_t count)
{
    const automaton *a = &x->automata[i];
    place *p = &s->places[i];
    if (a->used_at == 0 || !hash128_equal(a->tenant, s->tenant))
        return false;
    if (p->epoch != a->epoch)
        *p = (place){ .epoch = a->epoch, .followed = count > CATCH_UP ? count - CATCH_UP : 0 };
    while (p->followed < count)
        place_follow(x, a, p, tokens[p->followed++]);
    // An answer that came since may have split the state: the match is the shorter part's now.
    while (p->state > 0 && p->length <= a->states[a->states[p->state].link].length)
        p->state = a->states[p->state].link;
    return true;
}

static void suffix_guess(void *drafter, int32_t index, const int32_t *tokens, int32_t count,
                         int32_t limit, draft *guess)
{
    suffix *x = drafter;
    slot *s = &x->slots[index];
    int32_t best = -1, length = LENGTH_MIN - 1;
    guess->count = 0;
    for (int i = 0; i < AUTOMATA; i++)
        if (place_update(x, s, i, tokens, count) && s->places[i].length > length) {
            best = i;
            length = s->places[i].length;
        }
    if (best < 0)
        return;
    automaton *a = &x->automata[best];
    int32_t at = a->states[s->places[best].state].latest + 1;
    while (guess->count < limit && at < a->text_count && a->text[at] != END)
        guess->tokens[guess->count++] = a->text[at++];
    guess->band = drafter_band(length);
    a->used_at = ++x->now;
}

// The automaton of the tenant that has room for `count` more tokens, or the least used one,
// emptied.
static automaton *automaton_for(suffix *x, hash128 tenant, int32_t count)
{
    automaton *oldest = &x->automata[0];
    for (int i = 0; i < AUTOMATA; i++) {
        automaton *a = &x->automata[i];
        if (a->used_at > 0 && hash128_equal(a->tenant, tenant) &&
            a->text_count + count <= x->tokens)
            return a;
        if (a->used_at < oldest->used_at)
            oldest = a;
    }
    automaton_empty(x, oldest, tenant);
    return oldest;
}

static void suffix_end(void *drafter, int32_t index, const int32_t *tokens, int32_t prompt_count,
                       int32_t count)
{
    suffix *x = drafter;
    int32_t first = prompt_count > LEAD ? prompt_count - LEAD : 0, last = 0;
    if (count - prompt_count < LENGTH_MIN)
        return;
    if (first < count - ANSWER_MAX)
        first = count - ANSWER_MAX;
    automaton *a = automaton_for(x, x->slots[index].tenant, count - first + 1);
    for (int32_t i = first; i < count; i++)
        last = automaton_extend(x, a, last, tokens[i]);
    a->text[a->text_count++] = END;
    a->used_at = ++x->now;
}

const drafter_kind drafter_suffix = {
    .name = "suffix",
    .open = suffix_open,
    .close = suffix_close,
    .begin = suffix_begin,
    .guess = suffix_guess,
    .end = suffix_end,
};
