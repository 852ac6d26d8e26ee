// Masks: which tokens a state allows.
#include "text/grammar_machine.h"

// Whether a token of one byte goes on from a state, or the text may end there: a token that left
// the text where none does (half a character whose other bytes the vocabulary lacks) is not
// allowed.
static int32_t spelled(grammar_machine *m, int32_t state)
{
    machine_state *s = &m->space.states[state];
    if (s->spelled < 0) {
        bool found = s->complete;
        for (int byte = 0; byte < 256 && !found; byte++) {
            if (!m->v->one_byte[byte])
                continue;
            int32_t next = machine_step(m, state, (uint8_t)byte);
            if (next == STATE_FULL)
                return STATE_FULL;
            found = next != STATE_DEAD;
        }
        s->spelled = found;
    }
    return s->spelled;
}

static void mask_set(const grammar_vocabulary *v, uint64_t *mask, int32_t token)
{
    for (; token >= 0; token = v->same[token])
        mask[token / 64] |= 1ull << (token % 64);
}

// Down a trie along the states; false: the tables are full.
static bool walk(grammar_machine *m, const trie *t, int32_t state, uint64_t *mask)
{
    int32_t states[256];
    states[0] = state;
    for (int32_t i = 0; i < t->count;) {
        const trie_node *n = &t->nodes[i];
        int32_t next = machine_step(m, states[n->depth - 1], n->byte);
        if (next == STATE_FULL)
            return false;
        if (next == STATE_DEAD) {
            i = n->skip;
            continue;
        }
        states[n->depth] = next;
        i++;
        if (n->token < 0)
            continue;
        int32_t fine = spelled(m, next);
        if (fine == STATE_FULL)
            return false;
        if (fine)
            mask_set(m->v, mask, n->token);
    }
    return true;
}

// ---- plain characters --------------------------------------------------------------------------

// Where a whole character leads by any of its remaining `tails` bytes from low..high on;
// STATE_MIXED where they part.
static int32_t tails_lead(grammar_machine *m, int32_t state, int tails, uint8_t low, uint8_t high)
{
    int32_t all = STATE_UNKNOWN;
    for (int i = 0; i < m->tail_count; i++) {
        uint8_t byte = m->tail_bytes[i];
        if (byte < low || byte > high)
            continue;
        int32_t next = machine_step(m, state, byte);
        if (next == STATE_FULL)
            return next;
        if (next != STATE_DEAD && tails > 1)
            next = tails_lead(m, next, tails - 1, 0x80, 0xbf);
        if (next == STATE_FULL || next == STATE_MIXED)
            return next;
        if (all != STATE_UNKNOWN && next != all)
            return STATE_MIXED;
        all = next;
    }
    return all;
}

static int32_t lead_leads(grammar_machine *m, int32_t state, uint8_t lead)
{
    int tails = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    int32_t next = machine_step(m, state, lead);
    return next <= STATE_DEAD ? next : tails_lead(m, next, tails, low, high);
}

// Where every plain character leads, whichever it is; STATE_MIXED where they part.
static int32_t plain_leads(grammar_machine *m, int32_t state)
{
    int32_t all = STATE_UNKNOWN, known = m->space.states[state].plain;
    if (known != STATE_UNKNOWN)
        return known;
    for (int i = 0; i < m->plain_count + m->lead_count && all != STATE_MIXED; i++) {
        int32_t next = i < m->plain_count ? machine_step(m, state, m->plain_bytes[i])
                                          : lead_leads(m, state, m->lead_bytes[i - m->plain_count]);
        if (next == STATE_FULL)
            return STATE_FULL;
        all = all == STATE_UNKNOWN || all == next ? next : STATE_MIXED;
    }
    m->space.states[state].plain = all;
    return all;
}

// How many plain characters the state takes, whichever they are; *only: and no plain token that has
// more. STATE_FULL where the tables are full.
static int32_t plain_depth(grammar_machine *m, int32_t state, bool *only)
{
    int32_t depth = 0;
    *only = false;
    while (depth < PLAIN_MAX) {
        int32_t next = plain_leads(m, state);
        *only = next == STATE_DEAD;
        int32_t fine = next > STATE_DEAD ? spelled(m, next) : 0;
        if (next == STATE_FULL || fine == STATE_FULL)
            return STATE_FULL;
        if (!fine)
            return depth;
        depth = next == state ? PLAIN_MAX : depth + 1;
        state = next;
    }
    *only = true; // no plain token is longer
    return depth;
}

// ---- masks -------------------------------------------------------------------------------------

static bool mask_fill(grammar_machine *m, int32_t state, uint64_t *mask)
{
    const grammar_vocabulary *v = m->v;
    bool only;
    int32_t depth = plain_depth(m, state, &only);
    if (depth == STATE_FULL)
        return false;
    memcpy(mask, v->by_length + (size_t)depth * v->words, v->words * sizeof mask[0]);
    return (only || walk(m, &v->plain, state, mask)) && walk(m, &v->others, state, mask);
}

const uint64_t *grammar_place_mask(grammar_place *p, size_t *mask_words, bool *some)
{
    grammar_machine *m = p->machine;
    size_t words = *mask_words = m->v->words;
    uint64_t any = 0;
    if (p->state <= STATE_DEAD)
        return NULL;
    if (m->space.states[p->state].mask < 0) {
        if (m->mask_count == m->mask_max) {
            for (int32_t i = 0; i < m->space.state_count; i++)
                m->space.states[i].mask = -1;
            m->mask_count = 0;
        }
        if (!mask_fill(m, p->state, m->masks + (size_t)m->mask_count * words)) {
            machine_collect(m);
            if (p->state <= STATE_DEAD || !mask_fill(m, p->state, m->masks))
                return NULL;
        }
        m->space.states[p->state].mask = m->mask_count++;
    }
    const uint64_t *mask = m->masks + (size_t)m->space.states[p->state].mask * words;
    for (size_t i = 0; i < words; i++)
        any |= mask[i];
    *some = any != 0;
    return mask;
}
