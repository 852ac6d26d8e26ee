// From state to state: what a byte does to each thread.
#include "text/grammar_machine.h"

// ---- sets --------------------------------------------------------------------------------------

static void set_begin(grammar_machine *m)
{
    m->set_count = m->entered = 0;
    m->set_full = false;
}

static void thread_add(grammar_machine *m, int32_t node, uint32_t value, int32_t frame)
{
    for (int32_t i = 0; i < m->set_count; i++)
        if (m->set[i].node == node && m->set[i].value == value && m->set[i].frame == frame)
            return;
    if (m->set_count == MACHINE_SET_MAX) {
        m->set_full = true;
        return;
    }
    m->set[m->set_count++] = (machine_thread){ node, value, frame };
}

int32_t machine_frame_of(grammar_machine *m, int32_t node, int32_t parent)
{
    machine_space *s = &m->space;
    uint32_t at = ((uint32_t)node * 31 + (uint32_t)parent) * 2654435761u >> 16;
    for (;; at++) {
        int32_t *cell = &m->frame_table[at % (2 * MACHINE_FRAMES)];
        const machine_frame *f = &s->frames[*cell];
        if (*cell != 0 && f->node == node && f->parent == parent)
            return *cell;
        if (*cell != 0)
            continue;
        if (s->frame_count == MACHINE_FRAMES)
            return STATE_FULL;
        s->frames[s->frame_count] = (machine_frame){ node, parent, s->frames[parent].depth + 1 };
        return *cell = s->frame_count++;
    }
}

// A thread comes to a node: it goes on through what consumes nothing. Ways that could not be ended
// within the depth that is left are not taken, so no thread ever stands where it cannot go on. Ways
// that part and meet again are gone twice, hence the bound.
static void enter(grammar_machine *m, int32_t node, int32_t frame)
{
    const grammar *g = m->g;
    for (;;) {
        const program_node *n = &g->nodes[node];
        m->set_full |= ++m->entered > MACHINE_ENTERED_MAX;
        if (m->set_full || n->need >= GRAMMAR_DEPTH_MAX - m->space.frames[frame].depth)
            return;
        switch (n->kind) {
        case NODE_RETURN:
            if (frame == 0) {
                thread_add(m, NODE_ACCEPT, 0, 0);
                return;
            }
            node = m->space.frames[frame].node;
            frame = m->space.frames[frame].parent;
            break;
        case NODE_FORK:
            enter(m, n->next, frame);
            node = n->a;
            break;
        case NODE_CALL:
            if (g->nodes[n->next].kind != NODE_RETURN)
                frame = machine_frame_of(m, n->next, frame);
            if (frame == STATE_FULL) {
                m->set_full = true;
                return;
            }
            node = g->rules[n->a];
            break;
        case NODE_RAW:
            thread_add(m, node, (uint32_t)g->automata[n->a].start, frame);
            if (!g->automata[n->a].accepts[g->automata[n->a].start])
                return;
            node = n->next;
            break;
        default:
            thread_add(m, node, 0, frame);
            return;
        }
    }
}

static int compare_threads(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(machine_thread));
}

int32_t machine_intern(grammar_machine *m)
{
    machine_space *s = &m->space;
    size_t count = (size_t)m->set_count, size = count * sizeof(machine_thread);
    uint32_t hash = 2166136261u;
    if (m->set_full)
        return STATE_FULL;
    if (count == 0)
        return STATE_DEAD;
    qsort(m->set, count, sizeof(machine_thread), compare_threads);
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (uint32_t)m->set[i].node) * 16777619u;
        hash = (hash ^ m->set[i].value) * 16777619u;
        hash = (hash ^ (uint32_t)m->set[i].frame) * 16777619u;
        hash ^= hash >> 13;
    }
    uint32_t at = hash % (2 * MACHINE_STATES);
    for (; m->state_table[at]; at = (at + 1) % (2 * MACHINE_STATES)) {
        const machine_state *known = &s->states[m->state_table[at]];
        if (known->hash == hash && known->count == (int32_t)count &&
            memcmp(&s->threads[known->first], m->set, size) == 0)
            return m->state_table[at];
    }
    if (s->state_count == MACHINE_STATES || s->thread_count + (int32_t)count > MACHINE_THREADS)
        return STATE_FULL;
    int32_t state = s->state_count++;
    machine_state *made = &s->states[state];
    *made = (machine_state){ s->thread_count, (int32_t)count, hash, STATE_UNKNOWN, -1, false, -1 };
    memcpy(&s->threads[made->first], m->set, size);
    s->thread_count += (int32_t)count;
    for (size_t i = 0; i < count; i++)
        made->complete |= m->set[i].node == NODE_ACCEPT;
    for (int32_t c = 0; c < m->g->classes; c++)
        m->rows[state * m->g->classes + c] = STATE_UNKNOWN;
    return m->state_table[at] = state;
}

// ---- strings whose content an automaton accepts ------------------------------------------------

// The value of such a thread: the automaton's state, and what of the JSON string came last.
enum {
    TEXT_QUOTE, // its first quote is due
    TEXT_INSIDE,
    TEXT_BACKSLASH,
    TEXT_U,
    TEXT_U0,
    TEXT_U00,
    TEXT_U000, // the last digit of \u000X is due
    TEXT_U001,
    TEXT_BITS = 3
};

static const char escape_letters[] = "bfnrt\"\\", escape_means[] = "\b\f\n\r\t\"\\";

// Control characters without a letter are written as \u00XX.
static bool is_hex_control(int byte)
{
    return byte < 0x20 && !memchr(escape_means, byte, 5);
}

static bool some_hex_control(const automaton *a, int32_t state, int low, int high)
{
    for (int byte = low; byte <= high; byte++)
        if (is_hex_control(byte) && automaton_next(a, state, (uint8_t)byte) != 0)
            return true;
    return false;
}

static bool some_escape(const automaton *a, int32_t state)
{
    for (const char *c = escape_means; *c; c++)
        if (automaton_next(a, state, (uint8_t)*c) != 0)
            return true;
    return some_hex_control(a, state, 0, 0x1f);
}

// Behind a backslash. The value that it leads to; 0: dead.
static uint32_t text_escape(const automaton *a, int32_t state, uint32_t part, uint8_t byte)
{
    uint32_t here = (uint32_t)state << TEXT_BITS;
    const char *letter = byte ? strchr(escape_letters, byte) : NULL;
    int digit = hex_digit(byte), next = 0;
    switch (part) {
    case TEXT_BACKSLASH:
        if (byte == 'u')
            return some_hex_control(a, state, 0, 0x1f) ? here | TEXT_U : 0;
        if (letter)
            next = automaton_next(a, state, (uint8_t)escape_means[letter - escape_letters]);
        break;
    case TEXT_U:
    case TEXT_U0:
        return byte == '0' ? here | (part + 1) : 0;
    case TEXT_U00:
        if (byte == '0')
            return some_hex_control(a, state, 0, 0xf) ? here | TEXT_U000 : 0;
        if (byte == '1')
            return some_hex_control(a, state, 0x10, 0x1f) ? here | TEXT_U001 : 0;
        return 0;
    default:
        digit += part == TEXT_U001 && digit >= 0 ? 16 : 0;
        if (digit >= 0 && is_hex_control(digit))
            next = automaton_next(a, state, (uint8_t)digit);
    }
    return next ? (uint32_t)next << TEXT_BITS | TEXT_INSIDE : 0;
}

static void text_step(grammar_machine *m, const machine_thread *th, uint8_t byte)
{
    const program_node *n = &m->g->nodes[th->node];
    const automaton *a = &m->g->automata[n->a];
    uint32_t part = th->value & ((1u << TEXT_BITS) - 1), value = 0;
    int32_t state = (int32_t)(th->value >> TEXT_BITS);
    if (part == TEXT_QUOTE) {
        value = byte == '"' ? (uint32_t)a->start << TEXT_BITS | TEXT_INSIDE : 0;
    } else if (part != TEXT_INSIDE) {
        value = text_escape(a, state, part, byte);
    } else if (byte == '"') {
        if (a->accepts[state])
            enter(m, n->next, th->frame);
    } else if (byte == '\\') {
        value = some_escape(a, state) ? (uint32_t)state << TEXT_BITS | TEXT_BACKSLASH : 0;
    } else if (byte >= 0x20 && (state = automaton_next(a, state, byte)) != 0) {
        value = (uint32_t)state << TEXT_BITS | TEXT_INSIDE;
    }
    if (value)
        thread_add(m, th->node, value, th->frame);
}

// ---- free strings ------------------------------------------------------------------------------

// The value of such a thread: the characters so far (not counted beyond the least where there is no
// most), and what of a character came last. FREE_E0 and so on: that lead byte limits the next one.
enum {
    FREE_QUOTE,
    FREE_INSIDE,
    FREE_TAIL1, // bytes of the character that are due
    FREE_TAIL2,
    FREE_TAIL3,
    FREE_E0,
    FREE_ED,
    FREE_F0,
    FREE_F4,
    FREE_BACKSLASH,
    FREE_HEX4, // hexadecimal digits that are due
    FREE_HEX3,
    FREE_HEX2,
    FREE_HEX1,
    FREE_HEX_D, // behind \uD
    FREE_PAIR2, // digits of the first half of a pair that are due
    FREE_PAIR1,
    FREE_PAIR_BACKSLASH,
    FREE_PAIR_U,
    FREE_PAIR_D,
    FREE_PAIR_C, // C to F is due
    FREE_DONE,   // the character is complete
    FREE_DEAD,
    FREE_BITS = 5
};

static int free_lead(uint8_t byte)
{
    if (byte < 0x80)
        return byte < 0x20 ? FREE_DEAD : byte == '\\' ? FREE_BACKSLASH : FREE_DONE;
    if (byte < 0xc2 || byte > 0xf4)
        return FREE_DEAD;
    if (byte < 0xe0)
        return FREE_TAIL1;
    if (byte < 0xf0)
        return byte == 0xe0 ? FREE_E0 : byte == 0xed ? FREE_ED : FREE_TAIL2;
    return byte == 0xf0 ? FREE_F0 : byte == 0xf4 ? FREE_F4 : FREE_TAIL3;
}

static int free_tail(int part, uint8_t byte)
{
    static const struct {
        uint8_t low, high, next;
    } rules[] = {
        [FREE_TAIL1] = { 0x80, 0xbf, FREE_DONE },  [FREE_TAIL2] = { 0x80, 0xbf, FREE_TAIL1 },
        [FREE_TAIL3] = { 0x80, 0xbf, FREE_TAIL2 }, [FREE_E0] = { 0xa0, 0xbf, FREE_TAIL1 },
        [FREE_ED] = { 0x80, 0x9f, FREE_TAIL1 },    [FREE_F0] = { 0x90, 0xbf, FREE_TAIL2 },
        [FREE_F4] = { 0x80, 0x8f, FREE_TAIL2 },
    };
    return byte >= rules[part].low && byte <= rules[part].high ? rules[part].next : FREE_DEAD;
}

// Escapes; a \uD8 to \uDB is the first half of a pair and wants its second.
static int free_escape(int part, uint8_t byte)
{
    int digit = hex_digit(byte);
    switch (part) {
    case FREE_BACKSLASH:
        return byte == 'u'                            ? FREE_HEX4
               : byte == '/'                          ? FREE_DONE
               : byte && strchr(escape_letters, byte) ? FREE_DONE
                                                      : FREE_DEAD;
    case FREE_HEX4:
        return digit < 0 ? FREE_DEAD : digit == 13 ? FREE_HEX_D : FREE_HEX3;
    case FREE_HEX3:
    case FREE_HEX2:
        return digit < 0 ? FREE_DEAD : part + 1;
    case FREE_HEX1:
        return digit < 0 ? FREE_DEAD : FREE_DONE;
    case FREE_HEX_D:
        return digit < 0 || digit > 11 ? FREE_DEAD : digit < 8 ? FREE_HEX2 : FREE_PAIR2;
    case FREE_PAIR2:
    case FREE_PAIR1:
        return digit < 0 ? FREE_DEAD : part + 1;
    case FREE_PAIR_BACKSLASH:
        return byte == '\\' ? FREE_PAIR_U : FREE_DEAD;
    case FREE_PAIR_U:
        return byte == 'u' ? FREE_PAIR_D : FREE_DEAD;
    case FREE_PAIR_D:
        return digit == 13 ? FREE_PAIR_C : FREE_DEAD;
    default:
        return digit >= 12 ? FREE_HEX2 : FREE_DEAD;
    }
}

static void free_step(grammar_machine *m, const machine_thread *th, uint8_t byte)
{
    const program_node *n = &m->g->nodes[th->node];
    int part = (int)(th->value & ((1u << FREE_BITS) - 1)), next;
    int32_t count = (int32_t)(th->value >> FREE_BITS), min = n->a, max = n->b;
    if (part == FREE_QUOTE) {
        next = byte == '"' ? FREE_INSIDE : FREE_DEAD;
    } else if (part == FREE_INSIDE && byte == '"') {
        if (count >= min)
            enter(m, n->next, th->frame);
        return;
    } else if (part == FREE_INSIDE) {
        next = max < 0 || count < max ? free_lead(byte) : FREE_DEAD;
    } else {
        next = part < FREE_BACKSLASH ? free_tail(part, byte) : free_escape(part, byte);
    }
    if (next == FREE_DONE) {
        count += max >= 0 || count < min;
        next = FREE_INSIDE;
    }
    if (next != FREE_DEAD)
        thread_add(m, th->node, (uint32_t)count << FREE_BITS | (uint32_t)next, th->frame);
}

// ---- steps -------------------------------------------------------------------------------------

static void thread_step(grammar_machine *m, const machine_thread *th, uint8_t byte)
{
    const grammar *g = m->g;
    const program_node *n = &g->nodes[th->node];
    int32_t next;
    switch (n->kind) {
    case NODE_BYTES:
        if ((uint8_t)g->literals[n->a + (int32_t)th->value] != byte)
            return;
        if ((int32_t)th->value + 1 == n->b)
            enter(m, n->next, th->frame);
        else
            thread_add(m, th->node, th->value + 1, th->frame);
        return;
    case NODE_RAW:
        next = automaton_next(&g->automata[n->a], (int32_t)th->value, byte);
        if (next == 0)
            return;
        thread_add(m, th->node, (uint32_t)next, th->frame);
        if (g->automata[n->a].accepts[next])
            enter(m, n->next, th->frame);
        return;
    case NODE_TEXT:
        text_step(m, th, byte);
        return;
    default:
        free_step(m, th, byte);
    }
}

int32_t machine_step(grammar_machine *m, int32_t state, uint8_t byte)
{
    int32_t *cell = &m->rows[state * m->g->classes + m->g->class_of[byte]];
    if (*cell != STATE_UNKNOWN)
        return *cell;
    const machine_state *s = &m->space.states[state];
    set_begin(m);
    for (int32_t i = 0; i < s->count && !m->set_full; i++) {
        machine_thread th = m->space.threads[s->first + i];
        if (th.node != NODE_ACCEPT)
            thread_step(m, &th, byte);
    }
    int32_t next = machine_intern(m);
    if (next >= 0)
        *cell = next;
    return next;
}

int32_t machine_begin(grammar_machine *m)
{
    set_begin(m);
    enter(m, m->g->start, 0);
    return machine_intern(m);
}
