// Numbers within bounds, as automata over their decimal digits.
//
// A state knows what the digits so far say: how they compare with the digits of each bound, their
// remainder, and how many there are. Bounds are compared by magnitude and exactly, never as floats.
#include "text/grammar_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WHOLE_MAX 18
#define WHOLE_MAX_MULTIPLE 7 // digits of multiples of large numbers, whose remainders are many
#define MULTIPLE_SMALL 200
#define MULTIPLE_MAX 1000
#define FRACTION_MAX 16
#define EXPONENT_MAX 2
#define STATES_MAX 16384      // of multiples
#define STATES_MAX_PLAIN 2048 // of everything else
#define CLASSES 15            // a digit each, '-', '+', '.', e E, everything else

// ---- decimals ----------------------------------------------------------------------------------

// The shortest text that reads back as the same number.
static void real_format(double value, char text[32])
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, 32, "%.*e", digits - 1, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

decimal decimal_of(grammar_task *t, const json_t *number)
{
    char text[32], digits[32];
    decimal d = { 0 };
    int count = 0;
    if (json_is_integer(number))
        snprintf(text, sizeof text, "%llde0", (long long)json_integer_value(number));
    else
        real_format(json_real_value(number), text);
    const char *at = text;
    d.negative = *at == '-';
    at += d.negative;
    int point = -1;
    for (; *at != 'e'; at++) {
        if (*at == '.')
            point = count;
        else
            digits[count++] = *at;
    }
    int exponent = (point < 0 ? count : point) + atoi(at + 1); // digits before the point
    if (exponent > DECIMAL_DIGITS_MAX || exponent < -DECIMAL_DIGITS_MAX + 20)
        grammar_fail(t, STATUS_UNSUPPORTED, "", "a number is too large or too small");
    while (count > 1 && digits[count - 1] == '0' && count > exponent)
        count--;
    d.whole = exponent > 0 ? exponent : 1;
    for (int i = 0; i < d.whole; i++)
        d.digits[i] = exponent > 0 && i < count ? (uint8_t)(digits[i] - '0') : 0;
    d.fraction = count > exponent ? count - exponent : 0;
    for (int i = 0; i < d.fraction; i++) {
        int from = exponent + i;
        d.digits[d.whole + i] = from >= 0 ? (uint8_t)(digits[from] - '0') : 0;
    }
    while (d.fraction > 0 && d.digits[d.whole + d.fraction - 1] == 0)
        d.fraction--;
    return d;
}

static bool decimal_is_zero(const decimal *d)
{
    for (int i = 0; i < d->whole + d->fraction; i++)
        if (d->digits[i])
            return false;
    return true;
}

int decimal_compare(const decimal *a, const decimal *b)
{
    bool zero_a = decimal_is_zero(a), zero_b = decimal_is_zero(b);
    if (zero_a && zero_b)
        return 0;
    bool negative_a = a->negative && !zero_a, negative_b = b->negative && !zero_b;
    if (negative_a != negative_b)
        return negative_a ? -1 : 1;
    int sign = negative_a ? -1 : 1;
    if (a->whole != b->whole)
        return a->whole < b->whole ? -sign : sign;
    for (int i = 0; i < a->whole + (a->fraction > b->fraction ? a->fraction : b->fraction); i++) {
        int x = i < a->whole + a->fraction ? a->digits[i] : 0;
        int y = i < b->whole + b->fraction ? b->digits[i] : 0;
        if (x != y)
            return x < y ? -sign : sign;
    }
    return 0;
}

// ---- states ------------------------------------------------------------------------------------

typedef enum phase {
    PHASE_BEGIN,
    PHASE_MINUS,
    PHASE_ZERO, // the whole part is a single 0
    PHASE_WHOLE,
    PHASE_POINT,
    PHASE_FRACTION,
    PHASE_E,
    PHASE_SIGN,
    PHASE_EXPONENT,
    PHASE_DEAD,
} phase;

typedef struct place {
    uint8_t phase;
    bool negative, zero, last_zero; // all digits are 0; the last one is
    uint8_t whole, fraction; // digits of each; `fraction` counts the exponent's in its phases
    int8_t low, high;        // how the digits compare with the bound's
    uint16_t remainder;
} place;

typedef struct explorer {
    grammar_task *t;
    const number_rules *rules;
    bool canonical;
    int whole_max;
    place *places;
    int32_t *table; // [table_size] state by hash of its place; 0: none
    uint32_t table_size;
    int32_t states_max;
    automaton *made;
    size_t place_capacity, next_capacity, accepts_capacity;
} explorer;

static int8_t digit_compare(int8_t so_far, int digit, const decimal *bound, int at, int end)
{
    int other = at < end ? bound->digits[at] : 0;
    if (so_far != 0 || digit == other)
        return so_far;
    return digit < other ? -1 : 1;
}

// The comparison when the whole part has ended.
static int8_t whole_compare(int8_t so_far, int whole, const decimal *bound)
{
    return whole == bound->whole ? so_far : whole < bound->whole ? -1 : 1;
}

static place whole_digit(const explorer *x, place p, int digit)
{
    const number_rules *r = x->rules;
    if (p.phase == PHASE_ZERO || p.whole == x->whole_max)
        return (place){ .phase = PHASE_DEAD };
    if (r->has_low)
        p.low = digit_compare(p.low, digit, &r->low, p.whole, r->low.whole);
    if (r->has_high)
        p.high = digit_compare(p.high, digit, &r->high, p.whole, r->high.whole);
    if (r->multiple > 0)
        p.remainder = (uint16_t)((p.remainder * 10 + digit) % r->multiple);
    p.phase = p.whole == 0 && digit == 0 ? PHASE_ZERO : PHASE_WHOLE;
    p.zero = p.zero && digit == 0;
    p.whole++;
    return p;
}

static place fraction_digit(const explorer *x, place p, int digit)
{
    const number_rules *r = x->rules;
    if (p.fraction == FRACTION_MAX)
        return (place){ .phase = PHASE_DEAD };
    if (r->has_low)
        p.low = digit_compare(p.low, digit, &r->low, r->low.whole + p.fraction,
                              r->low.whole + r->low.fraction);
    if (r->has_high)
        p.high = digit_compare(p.high, digit, &r->high, r->high.whole + p.fraction,
                               r->high.whole + r->high.fraction);
    p.phase = PHASE_FRACTION;
    p.zero = p.zero && digit == 0;
    p.last_zero = x->canonical && digit == 0;
    p.fraction++;
    return p;
}

static place point(const explorer *x, place p)
{
    const number_rules *r = x->rules;
    if (r->integer || r->multiple > 0)
        return (place){ .phase = PHASE_DEAD };
    if (r->has_low)
        p.low = whole_compare(p.low, p.whole, &r->low);
    if (r->has_high)
        p.high = whole_compare(p.high, p.whole, &r->high);
    p.phase = PHASE_POINT;
    p.whole = 0; // counted no more
    return p;
}

static place step(const explorer *x, place p, int c)
{
    const number_rules *r = x->rules;
    bool digit = c < 10, number = p.phase == PHASE_ZERO || p.phase == PHASE_WHOLE;
    bool exponent = !r->integer && !r->has_low && !r->has_high && r->multiple == 0 && !x->canonical;
    if (digit && (p.phase <= PHASE_MINUS || number))
        return whole_digit(x, p, c);
    if (digit && (p.phase == PHASE_POINT || p.phase == PHASE_FRACTION))
        return fraction_digit(x, p, c);
    if (c == 10 && p.phase == PHASE_BEGIN) {
        p.phase = PHASE_MINUS;
        p.negative = true;
        return p;
    }
    if (c == 12 && number)
        return point(x, p);
    if (c == 13 && exponent && (number || p.phase == PHASE_FRACTION))
        return (place){ .phase = PHASE_E };
    if ((c == 10 || c == 11) && p.phase == PHASE_E)
        return (place){ .phase = PHASE_SIGN };
    if (digit && p.phase >= PHASE_E && p.phase <= PHASE_EXPONENT && p.fraction < EXPONENT_MAX)
        return (place){ .phase = PHASE_EXPONENT, .fraction = (uint8_t)(p.fraction + 1) };
    return (place){ .phase = PHASE_DEAD };
}

// How the magnitude compares with that of a bound, the text being over.
static int magnitude(const place *p, int8_t so_far, const decimal *bound)
{
    int result = so_far;
    if (p->phase != PHASE_FRACTION)
        result = whole_compare(so_far, p->whole, bound);
    int left = p->phase == PHASE_FRACTION ? bound->fraction - p->fraction : bound->fraction;
    return result == 0 && left > 0 ? -1 : result;
}

// How the value compares with a bound.
static int value_compare(const place *p, int8_t so_far, const decimal *bound)
{
    bool negative = p->negative && !p->zero, below_zero = bound->negative;
    if (decimal_is_zero(bound))
        return p->zero ? 0 : negative ? -1 : 1;
    if (p->zero || negative != below_zero)
        return below_zero ? 1 : -1;
    int by_size = magnitude(p, so_far, bound);
    return negative ? -by_size : by_size;
}

static bool place_accepts(const explorer *x, const place *p)
{
    const number_rules *r = x->rules;
    bool over = p->phase == PHASE_ZERO || p->phase == PHASE_WHOLE || p->phase == PHASE_FRACTION ||
                p->phase == PHASE_EXPONENT;
    if (!over || p->remainder != 0)
        return false;
    // One spelling for each: no zero at the end of a fraction, and no sign before the zero itself.
    if (x->canonical && ((p->phase == PHASE_FRACTION && p->last_zero) || (p->negative && p->zero)))
        return false;
    if (r->has_low) {
        int c = value_compare(p, p->low, &r->low);
        if (c < 0 || (c == 0 && r->low_exclusive))
            return false;
    }
    if (r->has_high) {
        int c = value_compare(p, p->high, &r->high);
        if (c > 0 || (c == 0 && r->high_exclusive))
            return false;
    }
    return true;
}

// ---- exploring ---------------------------------------------------------------------------------

static uint64_t place_key(const place *p)
{
    return (uint64_t)p->phase | (uint64_t)p->negative << 4 | (uint64_t)p->zero << 5 |
           (uint64_t)p->last_zero << 6 | (uint64_t)(p->low + 1) << 7 |
           (uint64_t)(p->high + 1) << 9 | (uint64_t)p->whole << 11 | (uint64_t)p->fraction << 17 |
           (uint64_t)p->remainder << 23;
}

// The state of a place, found by hash.
static int32_t place_state(explorer *x, place p)
{
    automaton *m = x->made;
    if (p.phase == PHASE_DEAD)
        return 0;
    uint64_t key = place_key(&p);
    uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 40) % x->table_size;
    for (; x->table[at]; at = (at + 1) % x->table_size)
        if (place_key(&x->places[x->table[at]]) == key)
            return x->table[at];
    if (m->states >= x->states_max)
        grammar_fail(x->t, STATUS_TOO_LARGE, x->rules->multiple > 0 ? "multipleOf" : "",
                     "the bounds of a number need more than %d states", x->states_max);
    x->places = grammar_grow(x->t, x->places, (size_t)m->states, &x->place_capacity, sizeof p);
    m->accepts = grammar_grow(x->t, m->accepts, (size_t)m->states, &x->accepts_capacity, 1);
    m->next = grammar_grow(x->t, m->next, (size_t)m->states, &x->next_capacity,
                           CLASSES * sizeof(int32_t));
    x->places[m->states] = p;
    m->accepts[m->states] = place_accepts(x, &p);
    x->table[at] = m->states;
    return m->states++;
}

static automaton *explore(grammar_task *t, const number_rules *rules, bool canonical)
{
    explorer x = { .t = t, .rules = rules, .canonical = canonical, .whole_max = WHOLE_MAX };
    automaton *m = x.made = grammar_allocate(t, sizeof *m);
    x.states_max = rules->multiple > 0 ? STATES_MAX : STATES_MAX_PLAIN;
    x.table_size = 2 * (uint32_t)x.states_max + 1;
    x.table = grammar_allocate(t, x.table_size * sizeof x.table[0]);
    if (rules->multiple > MULTIPLE_MAX)
        grammar_fail(t, STATUS_UNSUPPORTED, "multipleOf",
                     "multipleOf is %lld; served are integers "
                     "from 1 to %d",
                     (long long)rules->multiple, MULTIPLE_MAX);
    if (rules->multiple > MULTIPLE_SMALL)
        x.whole_max = WHOLE_MAX_MULTIPLE;
    for (int byte = 0; byte < 256; byte++) {
        bool digit = byte >= '0' && byte <= '9';
        m->class_of[byte] = digit ? (uint8_t)(byte - '0') : CLASSES - 1;
    }
    m->class_of['e'] = m->class_of['E'] = 13;
    m->class_of['-'] = 10;
    m->class_of['+'] = 11;
    m->class_of['.'] = 12;
    m->classes = CLASSES;
    m->states = 1;
    m->exact = x.whole_max == WHOLE_MAX; // else longer multiples are left out
    x.places = grammar_grow(t, NULL, 0, &x.place_capacity, sizeof(place));
    m->accepts = grammar_grow(t, NULL, 0, &x.accepts_capacity, 1);
    m->next = grammar_grow(t, NULL, 0, &x.next_capacity, CLASSES * sizeof(int32_t));
    m->start = place_state(&x, (place){ .zero = true });
    for (int32_t s = 1; s < m->states; s++) {
        grammar_work(t, CLASSES);
        for (int c = 0; c < CLASSES - 1; c++) {
            int32_t to = place_state(&x, step(&x, x.places[s], c));
            m->next[s * CLASSES + c] = to;
        }
    }
    automaton_trim(t, m);
    return m;
}

automaton *number_compile(grammar_task *t, const number_rules *rules)
{
    return explore(t, rules, false);
}

automaton *number_canonical(grammar_task *t)
{
    number_rules none = { 0 };
    return explore(t, &none, true);
}

automaton *number_constant(grammar_task *t, const json_t *number)
{
    char text[64];
    double value = json_number_value(number);
    if (json_is_integer(number))
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(number));
    else if (fabs(value) < 1e15 && value == floor(value))
        snprintf(text, sizeof text, "%.0f", value == 0 ? 0.0 : value); // -0 is 0
    else
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, value);
            if (strtod(text, NULL) == value)
                break;
        }
    slice one = slice_of(text);
    automaton *a = automaton_of_texts(t, &one, 1);
    a->exact = strchr(text, 'e') == NULL;
    return a;
}
