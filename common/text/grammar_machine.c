// The life of machines and places, and what is kept when the tables fill.
#include "text/grammar_machine.h"

#include <stdlib.h>

// ---- machines ----------------------------------------------------------------------------------

// Pages of these arrays are touched only when they are used.
static bool space_open(machine_space *s)
{
    s->states = calloc(MACHINE_STATES, sizeof s->states[0]);
    s->threads = calloc(MACHINE_THREADS, sizeof s->threads[0]);
    s->frames = calloc(MACHINE_FRAMES, sizeof s->frames[0]);
    return s->states && s->threads && s->frames;
}

static void space_close(machine_space *s)
{
    free(s->states);
    free(s->threads);
    free(s->frames);
}

static void space_clear(grammar_machine *m)
{
    m->space.state_count = 1; // STATE_DEAD
    m->space.frame_count = 1; // the end of the text
    m->space.thread_count = 0;
    m->space.frames[0] = (machine_frame){ 0 };
    m->space.states[0] = (machine_state){ .mask = -1 };
    for (int32_t c = 0; c < m->g->classes; c++)
        m->rows[c] = STATE_DEAD;
    memset(m->state_table, 0, 2 * MACHINE_STATES * sizeof m->state_table[0]);
    memset(m->frame_table, 0, 2 * MACHINE_FRAMES * sizeof m->frame_table[0]);
    m->mask_count = 0;
}

// One byte of each class that has some of the kind.
static int bytes_choose(const grammar *g, const bool wanted[256], uint8_t *chosen)
{
    bool seen[256] = { false };
    int count = 0;
    for (int byte = 0; byte < 256; byte++) {
        if (!wanted[byte] || seen[g->class_of[byte]])
            continue;
        seen[g->class_of[byte]] = true;
        chosen[count++] = (uint8_t)byte;
    }
    return count;
}

static void bytes_find(grammar_machine *m)
{
    bool plain[256] = { false };
    for (int byte = 0x20; byte < 0x80; byte++)
        plain[byte] = byte != '"' && byte != '\\';
    m->plain_count = bytes_choose(m->g, plain, m->plain_bytes);
    m->lead_count = 0;
    // Leads that allow unlike second bytes stand for themselves, whatever the grammar says of them.
    for (int byte = 0xc2; byte <= 0xf4; byte++) {
        bool odd = byte == 0xe0 || byte == 0xed || byte == 0xf0 || byte == 0xf4;
        bool first = byte == 0xc2 || byte == 0xe1 || byte == 0xee || byte == 0xf1;
        if (odd || first || m->g->class_of[byte] != m->g->class_of[byte - 1])
            m->lead_bytes[m->lead_count++] = (uint8_t)byte;
    }
    m->tail_count = 0;
    for (int byte = 0x80; byte <= 0xbf; byte++)
        if (byte % 16 == 0 || m->g->class_of[byte] != m->g->class_of[byte - 1])
            m->tail_bytes[m->tail_count++] = (uint8_t)byte;
}

grammar_machine *grammar_machine_open(grammar *g, const grammar_vocabulary *v)
{
    grammar_machine *m = calloc(1, sizeof *m);
    size_t mask_size = v->words * sizeof(uint64_t);
    if (!m)
        return NULL;
    m->g = grammar_hold(g);
    m->v = v;
    m->mask_max = (int32_t)(MACHINE_MASK_BYTES / (mask_size + 1)) + 2;
    m->rows = malloc((size_t)MACHINE_STATES * (size_t)g->classes * sizeof m->rows[0]);
    m->state_table = malloc(2 * MACHINE_STATES * sizeof m->state_table[0]);
    m->frame_table = malloc(2 * MACHINE_FRAMES * sizeof m->frame_table[0]);
    m->set = malloc(MACHINE_SET_MAX * sizeof m->set[0]);
    m->masks = malloc((size_t)m->mask_max * (mask_size + 1));
    bool fine = space_open(&m->space) && space_open(&m->other);
    if (!fine || !m->rows || !m->state_table || !m->frame_table || !m->set || !m->masks) {
        grammar_machine_close(m);
        return NULL;
    }
    bytes_find(m);
    space_clear(m);
    m->begin = machine_begin(m);
    return m;
}

void grammar_machine_close(grammar_machine *m)
{
    if (!m)
        return;
    CHECK(!m->places);
    space_close(&m->space);
    space_close(&m->other);
    free(m->rows);
    free(m->state_table);
    free(m->frame_table);
    free(m->set);
    free(m->masks);
    grammar_release(m->g);
    free(m);
}

// ---- collecting --------------------------------------------------------------------------------

// A frame of the old half in the new one; the way back to frame 0 is short (GRAMMAR_DEPTH_MAX).
static int32_t frame_move(grammar_machine *m, int32_t frame)
{
    const machine_frame *f = &m->other.frames[frame];
    int32_t parent = frame == 0 ? 0 : frame_move(m, f->parent);
    return frame == 0 || parent == STATE_FULL ? parent : machine_frame_of(m, f->node, parent);
}

static int32_t state_move(grammar_machine *m, int32_t state)
{
    if (state <= STATE_DEAD)
        return state;
    const machine_state *s = &m->other.states[state];
    m->set_count = s->count;
    m->set_full = false;
    for (int32_t i = 0; i < s->count; i++) {
        m->set[i] = m->other.threads[s->first + i];
        m->set[i].frame = frame_move(m, m->set[i].frame);
        m->set_full |= m->set[i].frame == STATE_FULL;
    }
    return machine_intern(m);
}

void machine_collect(grammar_machine *m)
{
    machine_space old = m->space;
    m->space = m->other;
    m->other = old;
    space_clear(m);
    m->begin = machine_begin(m);
    // One that finds no room among very many others is lost (STATE_FULL), and says so when used.
    for (grammar_place *p = m->places; p; p = p->next) {
        p->state = state_move(m, p->state);
        p->past_count = 0;
    }
}

// ---- places ------------------------------------------------------------------------------------

grammar_place *grammar_place_open(grammar_machine *m)
{
    grammar_place *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->machine = m;
    p->state = m->begin;
    p->next = m->places;
    p->back = &m->places;
    if (p->next)
        p->next->back = &p->next;
    m->places = p;
    return p;
}

void grammar_place_close(grammar_place *p)
{
    if (!p)
        return;
    *p->back = p->next;
    if (p->next)
        p->next->back = p->back;
    free(p);
}

void grammar_place_begin(grammar_place *p)
{
    p->state = p->machine->begin;
    p->past_count = 0;
}

bool grammar_place_complete(grammar_place *p)
{
    return p->state > STATE_DEAD && p->machine->space.states[p->state].complete;
}

bool grammar_place_advance_bytes(grammar_place *p, slice bytes)
{
    grammar_machine *m = p->machine;
    // Registered like any place, so that it survives a collection half-way. So is p, whose state is
    // the one before this advance even then.
    grammar_place way = { .machine = m, .next = p->next, .back = &p->next, .state = p->state };
    if (way.next)
        way.next->back = &way.next;
    p->next = &way;
    for (size_t i = 0; i < bytes.size && way.state > STATE_DEAD; i++) {
        int32_t next = machine_step(m, way.state, (uint8_t)bytes.data[i]);
        if (next == STATE_FULL) {
            machine_collect(m);
            next = way.state > STATE_DEAD ? machine_step(m, way.state, (uint8_t)bytes.data[i])
                                          : STATE_FULL;
        }
        way.state = next;
    }
    p->next = way.next;
    if (p->next)
        p->next->back = &p->next;
    if (way.state <= STATE_DEAD)
        return false;
    p->past[p->past_end++ % GRAMMAR_REWIND_MAX] = p->state;
    p->past_count += p->past_count < GRAMMAR_REWIND_MAX;
    p->state = way.state;
    return true;
}

bool grammar_place_rewind(grammar_place *p, int32_t count)
{
    if (p->state <= STATE_DEAD || count > p->past_count)
        return false;
    if (count == 0)
        return true;
    p->past_count -= count;
    p->past_end -= (uint32_t)count;
    p->state = p->past[p->past_end % GRAMMAR_REWIND_MAX];
    return true;
}

// The bytes of a token; none of one that is never allowed.
static slice token_bytes(const grammar_vocabulary *v, int32_t token)
{
    return token < 0 || (size_t)token >= v->token_count ? (slice){ 0 } : v->tokens[token];
}

bool grammar_place_advance(grammar_place *p, int32_t token)
{
    slice bytes = token_bytes(p->machine->v, token);
    return bytes.size > 0 && grammar_place_advance_bytes(p, bytes);
}

// States are never collected for a look: whoever only looks must not cost a place its state.
int32_t grammar_place_follows(const grammar_place *p, const int32_t *tokens, int32_t count)
{
    int32_t state = p->state;
    for (int32_t i = 0; i < count; i++) {
        slice bytes = token_bytes(p->machine->v, tokens[i]);
        for (size_t k = 0; k < bytes.size && state > STATE_DEAD; k++)
            state = machine_step(p->machine, state, (uint8_t)bytes.data[k]);
        if (bytes.size == 0 || state <= STATE_DEAD)
            return i;
    }
    return count;
}

// ---- for tests and tools -----------------------------------------------------------------------

grammar_match grammar_match_of(const grammar *g, slice text)
{
    grammar_vocabulary *none;
    grammar_match match = GRAMMAR_NO;
    if (grammar_vocabulary_open(NULL, 0, &none) != STATUS_OK)
        return GRAMMAR_NO;
    grammar_machine *m = grammar_machine_open((grammar *)g, none);
    grammar_place *p = m ? grammar_place_open(m) : NULL;
    if (p && grammar_place_advance_bytes(p, text))
        match = grammar_place_complete(p) ? GRAMMAR_COMPLETE : GRAMMAR_PREFIX;
    grammar_place_close(p);
    grammar_machine_close(m);
    grammar_vocabulary_close(none);
    return match;
}
