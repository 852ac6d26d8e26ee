// Nondeterministic automata and how they become deterministic ones (subset construction; Rabin and
// Scott 1959). Characters are laid out as UTF-8, so that everything behind works on bytes.
#include "text/grammar_private.h"

#define NFA_NODES_MAX 400000
#define STATES_MAX 16384
#define TEXT_LENGTH_MAX 4096

void nfa_begin(grammar_task *t, nfa *n)
{
    *n = (nfa){ 0 };
    nfa_add(t, n, (nfa_node){ .kind = NFA_ACCEPT, .next = -1, .other = -1 });
}

int32_t nfa_add(grammar_task *t, nfa *n, nfa_node node)
{
    if (n->count >= NFA_NODES_MAX)
        grammar_fail(t, STATUS_TOO_LARGE, "", "a pattern or list of texts is too large");
    n->nodes = grammar_grow(t, n->nodes, n->count, &n->capacity, sizeof node);
    n->nodes[n->count] = node;
    grammar_work(t, 1);
    return (int32_t)n->count++;
}

static int32_t range_add(grammar_task *t, nfa *n, int low, int high, int32_t next)
{
    return nfa_add(t, n, (nfa_node){ NFA_RANGE, (uint8_t)low, (uint8_t)high, next, -1 });
}

static int32_t fork_add(grammar_task *t, nfa *n, int32_t one, int32_t other)
{
    if (one < 0 || other < 0)
        return one < 0 ? other : one;
    return nfa_add(t, n, (nfa_node){ NFA_FORK, 0, 0, one, other });
}

int32_t nfa_bytes(grammar_task *t, nfa *n, slice text, int32_t next)
{
    for (size_t i = text.size; i > 0; i--)
        next = range_add(t, n, (uint8_t)text.data[i - 1], (uint8_t)text.data[i - 1], next);
    return next;
}

// ---- characters --------------------------------------------------------------------------------

static int encode(int32_t c, uint8_t bytes[4])
{
    int size = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t leads[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (int i = size - 1; i > 0; i--) {
        bytes[i] = (uint8_t)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    bytes[0] = (uint8_t)(leads[size] | c);
    return size;
}

// Characters of one length whose first bytes may differ only where all that follows is complete.
static int32_t encoded_add(grammar_task *t, nfa *n, int32_t low, int32_t high, int32_t next)
{
    uint8_t a[4], b[4];
    int size = encode(low, a);
    encode(high, b);
    for (int i = size - 1; i >= 0; i--)
        next = range_add(t, n, a[i], b[i], next);
    return next;
}

// Cut off, at the granularity of `bits` below, what makes the range uneven; from the largest down.
int32_t nfa_characters(grammar_task *t, nfa *n, int32_t low, int32_t high, int32_t next)
{
    static const int32_t lasts[] = { 0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff, 0x10ffff };
    if (low > high)
        return -1;
    for (size_t i = 0; i < sizeof lasts / sizeof lasts[0]; i++)
        if (low <= lasts[i] && high > lasts[i]) {
            int32_t left = nfa_characters(t, n, low, lasts[i], next);
            return fork_add(t, n, left, nfa_characters(t, n, lasts[i] + 1, high, next));
        }
    if (low >= 0xd800 && high <= 0xdfff)
        return -1;
    for (int bits = 6; bits <= 18 && low >= 0x80; bits += 6) {
        int32_t mask = (1 << bits) - 1;
        if ((low | mask) == (high | mask))
            continue;
        int32_t cut = (low & mask) != 0       ? (low | mask)
                      : (high & mask) != mask ? (high & ~mask) - 1
                                              : high;
        if (cut < high && cut >= low) {
            int32_t left = nfa_characters(t, n, low, cut, next);
            return fork_add(t, n, left, nfa_characters(t, n, cut + 1, high, next));
        }
    }
    return encoded_add(t, n, low, high, next);
}

int32_t nfa_anything(grammar_task *t, nfa *n, int32_t next)
{
    int32_t loop = nfa_add(t, n, (nfa_node){ NFA_FORK, 0, 0, next, next });
    int32_t one = nfa_characters(t, n, 0, 0x10ffff, loop);
    n->nodes[loop].other = one;
    return loop;
}

// ---- subsets -----------------------------------------------------------------------------------

typedef struct subset {
    int32_t *nodes; // ascending
    int32_t count;
    uint32_t hash;
} subset;

typedef struct determiner {
    const nfa *n;
    automaton *made;
    uint8_t byte_of[256];
    int32_t *stamps; // [nodes] the last round in which a node was met
    int32_t round;
    int32_t *stack, *found; // [nodes]
    int32_t found_count;
    subset *subsets;
    size_t subset_capacity, next_capacity, accepts_capacity;
    int32_t *table;
    int32_t table_size;
} determiner;

static void classes_find(determiner *d)
{
    bool border[257] = { false };
    for (size_t i = 0; i < d->n->count; i++)
        if (d->n->nodes[i].kind == NFA_RANGE) {
            border[d->n->nodes[i].low] = true;
            border[d->n->nodes[i].high + 1] = true;
        }
    int c = -1;
    for (int byte = 0; byte < 256; byte++) {
        if (byte == 0 || border[byte])
            d->byte_of[++c] = (uint8_t)byte;
        d->made->class_of[byte] = (uint8_t)c;
    }
    d->made->classes = c + 1;
}

// Add what `node` leads to without a byte. NFA_BEGIN is passed only at the beginning; NFA_END is
// kept, and passed where it is asked whether the text may end.
static void closure_add(grammar_task *t, determiner *d, int32_t node, bool begin, bool end)
{
    int32_t height = 0;
    d->stack[height++] = node;
    while (height > 0) {
        int32_t at = d->stack[--height];
        if (at < 0 || d->stamps[at] == d->round)
            continue;
        const nfa_node *x = &d->n->nodes[at];
        d->stamps[at] = d->round;
        grammar_work(t, 1);
        if (x->kind == NFA_FORK) {
            d->stack[height++] = x->next;
            d->stack[height++] = x->other;
        } else if ((x->kind == NFA_BEGIN && begin) || (x->kind == NFA_END && end)) {
            d->stack[height++] = x->next;
        } else if (x->kind != NFA_BEGIN) {
            d->found[d->found_count++] = at;
        }
    }
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

// May the text end in these nodes? `first`: it is empty.
static bool subset_accepts(grammar_task *t, determiner *d, const subset *s, bool first)
{
    d->round++;
    d->found_count = 0;
    for (int32_t i = 0; i < s->count; i++)
        closure_add(t, d, s->nodes[i], first, true);
    for (int32_t i = 0; i < d->found_count; i++)
        if (d->n->nodes[d->found[i]].kind == NFA_ACCEPT)
            return true;
    return false;
}

static void subsets_rehash(grammar_task *t, determiner *d)
{
    d->table_size = d->table_size ? d->table_size * 2 : 64;
    d->table = grammar_allocate(t, (size_t)d->table_size * sizeof d->table[0]);
    for (int32_t s = 1; s < d->made->states; s++) {
        uint32_t at = d->subsets[s].hash;
        while (d->table[at & (uint32_t)(d->table_size - 1)])
            at++;
        d->table[at & (uint32_t)(d->table_size - 1)] = s + 1;
    }
}

// The state of the nodes found; 0 where there are none.
static int32_t subset_state(grammar_task *t, determiner *d, bool first)
{
    automaton *m = d->made;
    int32_t count = d->found_count;
    if (count == 0)
        return 0;
    qsort(d->found, (size_t)count, sizeof d->found[0], compare_ids);
    uint32_t hash = 2166136261u;
    for (int32_t i = 0; i < count; i++)
        hash = (hash ^ (uint32_t)d->found[i]) * 16777619u;
    hash ^= hash >> 15;
    if (m->states * 2 >= d->table_size)
        subsets_rehash(t, d);
    uint32_t mask = (uint32_t)(d->table_size - 1), at = hash & mask;
    for (; !first && d->table[at]; at = (at + 1) & mask) {
        const subset *s = &d->subsets[d->table[at] - 1];
        if (s->hash == hash && s->count == count &&
            memcmp(s->nodes, d->found, (size_t)count * sizeof d->found[0]) == 0)
            return d->table[at] - 1;
    }
    if (m->states >= STATES_MAX)
        grammar_fail(t, STATUS_TOO_LARGE, "", "a pattern needs more than %d states", STATES_MAX);
    d->subsets =
        grammar_grow(t, d->subsets, (size_t)m->states, &d->subset_capacity, sizeof(subset));
    m->accepts = grammar_grow(t, m->accepts, (size_t)m->states, &d->accepts_capacity, 1);
    m->next = grammar_grow(t, m->next, (size_t)m->states, &d->next_capacity,
                           (size_t)m->classes * sizeof(int32_t));
    subset *s = &d->subsets[m->states];
    *s = (subset){ grammar_allocate(t, (size_t)count * sizeof d->found[0]), count, hash };
    memcpy(s->nodes, d->found, (size_t)count * sizeof d->found[0]);
    // The empty text may pass NFA_BEGIN where it ends: its state is nobody else's.
    if (!first)
        d->table[at] = m->states + 1;
    m->accepts[m->states] = subset_accepts(t, d, s, first);
    return m->states++;
}

static int32_t subset_next(grammar_task *t, determiner *d, int32_t state, uint8_t byte)
{
    d->round++;
    d->found_count = 0;
    const subset *s = &d->subsets[state];
    for (int32_t i = 0; i < s->count; i++) {
        const nfa_node *x = &d->n->nodes[s->nodes[i]];
        grammar_work(t, 1);
        if (x->kind == NFA_RANGE && byte >= x->low && byte <= x->high)
            closure_add(t, d, x->next, false, false);
    }
    return subset_state(t, d, false);
}

automaton *nfa_determine(grammar_task *t, const nfa *n, int32_t start)
{
    determiner d = { .n = n };
    automaton *m = d.made = grammar_allocate(t, sizeof *m);
    size_t ids = n->count * sizeof(int32_t);
    classes_find(&d);
    d.stamps = grammar_allocate(t, ids);
    d.stack = grammar_allocate(t, 2 * ids + 16);
    d.found = grammar_allocate(t, ids);
    d.subsets = grammar_grow(t, NULL, 0, &d.subset_capacity, sizeof(subset));
    m->accepts = grammar_grow(t, NULL, 0, &d.accepts_capacity, 1);
    m->next = grammar_grow(t, NULL, 0, &d.next_capacity, (size_t)m->classes * sizeof(int32_t));
    m->states = 1;
    m->exact = true;
    d.round = 1;
    closure_add(t, &d, start, true, false);
    m->start = subset_state(t, &d, true);
    for (int32_t s = 1; s < m->states; s++)
        for (int32_t c = 0; c < m->classes; c++) {
            int32_t to = subset_next(t, &d, s, d.byte_of[c]);
            m->next[s * m->classes + c] = to;
        }
    automaton_trim(t, m);
    return m;
}

// ---- lists and lengths -------------------------------------------------------------------------

automaton *automaton_of_texts(grammar_task *t, const slice *texts, size_t count)
{
    nfa n;
    int32_t start = -1;
    nfa_begin(t, &n);
    for (size_t i = 0; i < count; i++)
        start = fork_add(t, &n, nfa_bytes(t, &n, texts[i], 0), start);
    return nfa_determine(t, &n, start);
}

automaton *automaton_of_length(grammar_task *t, int64_t min, int64_t max)
{
    nfa n;
    nfa_begin(t, &n);
    if ((max < 0 ? min : max) > TEXT_LENGTH_MAX)
        grammar_fail(t, STATUS_TOO_LARGE, max < 0 ? "minLength" : "maxLength",
                     "a length beside a pattern, format, enum or not is %lld; right is at most %d",
                     (long long)(max < 0 ? min : max), TEXT_LENGTH_MAX);
    int32_t start = max < 0 ? nfa_anything(t, &n, 0) : 0;
    for (int64_t i = max < 0 ? min : max; i > 0; i--) {
        int32_t one = nfa_characters(t, &n, 0, 0x10ffff, start);
        // Behind the first `min` characters it may end.
        start = i > min ? fork_add(t, &n, one, 0) : one;
    }
    return nfa_determine(t, &n, start);
}
