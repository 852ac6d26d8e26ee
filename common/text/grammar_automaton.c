// Deterministic automata: asking, trimming and combining them. How they come to be is in
// grammar_nfa.c and grammar_number.c.
#include "text/grammar_private.h"

#define STATES_MAX 16384

bool automaton_accepts(const automaton *a, slice text)
{
    int32_t state = a->start;
    for (size_t i = 0; i < text.size && state != 0; i++)
        state = automaton_next(a, state, (uint8_t)text.data[i]);
    return a->accepts[state];
}

// Walk back from the accepting states until nothing new is found. Rounds are few: states are
// numbered from the start outwards, so going from the last to the first nearly orders them.
void automaton_trim(grammar_task *t, automaton *a)
{
    bool *alive = grammar_allocate(t, (size_t)a->states);
    bool changed = true;
    while (changed) {
        changed = false;
        grammar_work(t, (uint64_t)a->states * (uint64_t)a->classes);
        for (int32_t s = a->states - 1; s > 0; s--) {
            bool lives = alive[s] || a->accepts[s];
            for (int32_t c = 0; !lives && c < a->classes; c++)
                lives = alive[a->next[s * a->classes + c]];
            changed |= lives && !alive[s];
            alive[s] = lives;
        }
    }
    for (int32_t i = 0; i < a->states * a->classes; i++)
        if (!alive[a->next[i]])
            a->next[i] = 0;
    if (!alive[a->start])
        a->start = 0;
}

// ---- two at a time -----------------------------------------------------------------------------

typedef struct pair {
    int32_t a, b;
} pair;

typedef struct product {
    const automaton *a, *b;
    automaton_operation operation;
    automaton *made;
    uint8_t byte_of[256]; // one of each class
    pair *pairs;
    size_t pair_capacity, next_capacity, accepts_capacity;
    int32_t *table; // [table_size] state + 1, by hash of its pair
    int32_t table_size;
} product;

// Classes of bytes that neither automaton tells apart.
static void classes_join(product *p)
{
    int32_t seen[256][2];
    automaton *m = p->made;
    for (int byte = 0; byte < 256; byte++) {
        int32_t a = p->a->class_of[byte], b = p->b->class_of[byte], c = 0;
        while (c < m->classes && (seen[c][0] != a || seen[c][1] != b))
            c++;
        if (c == m->classes) {
            seen[c][0] = a;
            seen[c][1] = b;
            p->byte_of[c] = (uint8_t)byte;
            m->classes++;
        }
        m->class_of[byte] = (uint8_t)c;
    }
}

static bool pair_accepts(const product *p, pair x)
{
    bool a = p->a->accepts[x.a], b = p->b->accepts[x.b];
    switch (p->operation) {
    case AUTOMATON_BOTH:
        return a && b;
    case AUTOMATON_EITHER:
        return a || b;
    default:
        return a && !b;
    }
}

static bool pair_dead(const product *p, pair x)
{
    if (p->operation == AUTOMATON_BOTH)
        return x.a == 0 || x.b == 0;
    return x.a == 0 && (x.b == 0 || p->operation == AUTOMATON_FIRST_ONLY);
}

static void table_grow(grammar_task *t, product *p)
{
    automaton *m = p->made;
    p->table_size = p->table_size ? p->table_size * 2 : 64;
    p->table = grammar_allocate(t, (size_t)p->table_size * sizeof p->table[0]);
    for (int32_t s = 1; s < m->states; s++) {
        uint32_t at = (uint32_t)(p->pairs[s].a * 31 + p->pairs[s].b) * 2654435761u;
        while (p->table[at & (uint32_t)(p->table_size - 1)])
            at++;
        p->table[at & (uint32_t)(p->table_size - 1)] = s + 1;
    }
}

static int32_t pair_state(grammar_task *t, product *p, pair x)
{
    automaton *m = p->made;
    if (pair_dead(p, x))
        return 0;
    if (m->states * 2 >= p->table_size)
        table_grow(t, p);
    uint32_t mask = (uint32_t)(p->table_size - 1), at;
    at = (uint32_t)(x.a * 31 + x.b) * 2654435761u & mask;
    for (; p->table[at]; at = (at + 1) & mask) {
        pair *known = &p->pairs[p->table[at] - 1];
        if (known->a == x.a && known->b == x.b)
            return p->table[at] - 1;
    }
    if (m->states >= STATES_MAX)
        grammar_fail(t, STATUS_TOO_LARGE, "",
                     "what its parts allow together needs more than %d "
                     "states",
                     STATES_MAX);
    p->pairs = grammar_grow(t, p->pairs, (size_t)m->states, &p->pair_capacity, sizeof x);
    m->accepts = grammar_grow(t, m->accepts, (size_t)m->states, &p->accepts_capacity, 1);
    m->next = grammar_grow(t, m->next, (size_t)m->states, &p->next_capacity,
                           (size_t)m->classes * sizeof(int32_t));
    p->pairs[m->states] = x;
    m->accepts[m->states] = pair_accepts(p, x);
    p->table[at] = m->states + 1;
    return m->states++;
}

automaton *automaton_combine(grammar_task *t, const automaton *a, const automaton *b,
                             automaton_operation operation)
{
    product p = { .a = a, .b = b, .operation = operation };
    automaton *m = p.made = grammar_allocate(t, sizeof *m);
    classes_join(&p);
    p.pairs = grammar_grow(t, NULL, 0, &p.pair_capacity, sizeof(pair));
    m->accepts = grammar_grow(t, NULL, 0, &p.accepts_capacity, 1);
    m->next = grammar_grow(t, NULL, 0, &p.next_capacity, (size_t)m->classes * sizeof(int32_t));
    m->states = 1;
    m->exact = a->exact && b->exact;
    m->start = pair_state(t, &p, (pair){ a->start, b->start });
    for (int32_t s = 1; s < m->states; s++) {
        grammar_work(t, (uint64_t)m->classes);
        for (int32_t c = 0; c < m->classes; c++) {
            pair x = { automaton_next(a, p.pairs[s].a, p.byte_of[c]),
                       automaton_next(b, p.pairs[s].b, p.byte_of[c]) };
            int32_t to = pair_state(t, &p, x);
            m->next[s * m->classes + c] = to;
        }
    }
    automaton_trim(t, m);
    return m;
}
