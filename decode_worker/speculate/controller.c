#include "decode_worker/speculate/controller.h"

#include <math.h>
#include <string.h>

acceptance acceptance_begin(double outcomes)
{
    return (acceptance){ .keep = 1 - 1 / outcomes };
}

static void outcome_add(acceptance *a, double accepted)
{
    a->accepted = a->accepted * a->keep + accepted;
    a->rejected = a->rejected * a->keep + 1 - accepted;
}

void acceptance_add(acceptance *a, int32_t drafted, int32_t accepted)
{
    for (int32_t i = 0; i < accepted; i++)
        outcome_add(a, 1);
    if (accepted < drafted)
        outcome_add(a, 0);
}

double acceptance_alpha(const acceptance *a, double prior, double weight)
{
    double total = a->accepted + a->rejected + weight;
    return total > 0 ? (a->accepted + prior * weight) / total : prior;
}

void acceptance_interval(const acceptance *a, double *low, double *high)
{
    const double z = 1.96;
    double n = a->accepted + a->rejected;
    *low = 0;
    *high = 1;
    if (n <= 0)
        return;
    double p = a->accepted / n, spread = 1 + z * z / n;
    double middle = (p + z * z / (2 * n)) / spread;
    double half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / spread;
    *low = fmax(0, fmin(p, middle - half)); // rounding must not put the estimate outside
    *high = fmin(1, fmax(p, middle + half));
}

// ---- cost -------------------------------------------------------------------------------------

#define COST_MEMORY 32 // measurements that a point remembers
#define COST_KNOWN 4   // that say what a step takes: one alone may have been slow

// The nearest curve that never falls, by weight: neighbours that fall are pooled until none does
// (Ayer et al. 1955, "An empirical distribution function for sampling with incomplete
// information").
static void curve_fit(cost_curve *c)
{
    int32_t firsts[COST_ROWS_MAX + 1], pools = 0;
    double us[COST_ROWS_MAX + 1], weight[COST_ROWS_MAX + 1];
    for (int32_t rows = 1; rows <= COST_ROWS_MAX; rows++) {
        if (c->count[rows] <= 0)
            continue;
        firsts[pools] = rows;
        us[pools] = c->us[rows];
        weight[pools++] = c->count[rows];
        for (; pools > 1 && us[pools - 2] > us[pools - 1]; pools--) {
            double both = weight[pools - 2] + weight[pools - 1];
            us[pools - 2] += (us[pools - 1] - us[pools - 2]) * weight[pools - 1] / both;
            weight[pools - 2] = both;
        }
    }
    for (int32_t i = 0; i < pools; i++)
        for (int32_t k = firsts[i]; k < (i + 1 < pools ? firsts[i + 1] : COST_ROWS_MAX + 1); k++)
            c->fitted[k] = us[i];
}

void cost_curve_add(cost_curve *c, int32_t rows, double us)
{
    if (rows < 1 || rows > COST_ROWS_MAX || !(us > 0))
        return;
    double known = c->us[rows];
    if (c->count[rows] > 0 && us > 2 * known)
        us = 2 * known;
    if (c->count[rows] < COST_MEMORY)
        c->count[rows]++;
    c->us[rows] += (us - known) / c->count[rows];
    curve_fit(c);
}

// The nearest measured point at or beyond `rows` in a direction; 0: none.
static int32_t point_near(const cost_curve *c, int32_t rows, int32_t direction)
{
    for (int32_t i = rows; i >= 1 && i <= COST_ROWS_MAX; i += direction)
        if (c->count[i] > 0)
            return i;
    return 0;
}

double cost_curve_count(const cost_curve *c, int32_t rows)
{
    return rows >= 1 && rows <= COST_ROWS_MAX ? c->count[rows] : 0;
}

bool cost_curve_knows(const cost_curve *c, int32_t rows)
{
    double count = 0;
    for (int32_t i = rows - rows / 16; i <= rows + rows / 16 && i <= COST_ROWS_MAX; i++)
        count += i > 0 ? c->count[i] : 0;
    return rows > COST_ROWS_MAX || count >= COST_KNOWN;
}

int32_t cost_curve_reach(const cost_curve *c, int32_t rows)
{
    int32_t last = point_near(c, COST_ROWS_MAX, -1), step = rows < 8 ? 1 : rows / 8;
    if (last <= rows)
        return rows + step;
    return last + (last - rows > step ? last - rows : step);
}

// Points above the last one go on with the slope from the first to the last.
static double beyond(const cost_curve *c, int32_t last, int32_t rows)
{
    int32_t first = point_near(c, 1, 1);
    double slope = c->fitted[last] / last;
    if (first < last)
        slope = (c->fitted[last] - c->fitted[first]) / (last - first);
    return c->fitted[last] + slope * (rows - last);
}

double cost_curve_us(const cost_curve *c, int32_t rows)
{
    if (rows < 1)
        return 0;
    int32_t within = rows < COST_ROWS_MAX ? rows : COST_ROWS_MAX;
    int32_t below = point_near(c, within, -1), above = point_near(c, within, 1);
    if (!below)
        return above ? c->fitted[above] : 0; // fewer rows than any known: as much as those
    if (!above || rows > COST_ROWS_MAX)
        return beyond(c, below, rows);
    if (below == above)
        return c->fitted[below];
    double share = (double)(rows - below) / (above - below);
    return c->fitted[below] + share * (c->fitted[above] - c->fitted[below]);
}

// ---- what came of it --------------------------------------------------------------------------

#define LEDGER_KEEP 0.97  // about 33 steps count
#define LEDGER_LOSS 0.02  // of what was drawn meanwhile
#define LEDGER_CHANCE 1.0 // that slow steps may cost
#define LEDGER_FORGIVE 0.99

double controller_gained(int32_t rows, double plain_us, double tokens, double us)
{
    if (plain_us <= 0 || us <= 0 || rows < 1)
        return 0;
    return fmax(tokens / rows - us / plain_us, -1); // somebody else had the processor
}

void ledger_add(ledger *l, double gained, double steps)
{
    l->gained = l->gained * LEDGER_KEEP + gained;
    l->steps = l->steps * LEDGER_KEEP + steps;
}

void ledger_forgive(ledger *l)
{
    l->gained *= LEDGER_FORGIVE;
    l->steps *= LEDGER_FORGIVE;
}

bool ledger_loses(const ledger *l)
{
    return l->gained < -LEDGER_CHANCE - LEDGER_LOSS * l->steps;
}

void allowance_earn(allowance *a, double percent)
{
    allowance_add(a, percent / 100);
}

void allowance_add(allowance *a, double steps)
{
    a->steps = fmax(fmin(a->steps + steps, ALLOWANCE_MOST), -ALLOWANCE_DEBT);
}

#define PRICE_PERCENT (PROBE_PRICE / 100) // of a step of which one percent may be probes
#define PRICE_UNKNOWN (PROBE_PRICE / 16)
#define HOPELESS_TIMES 8

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

probes probes_begin(void)
{
    return (probes){ .left = PROBES_FIRST * PROBE_PRICE };
}

void probes_earn(probes *b, int64_t percent)
{
    b->left = smaller(b->left + PRICE_PERCENT * percent, PROBES_FIRST * PROBE_PRICE);
}

bool probes_due(probes *b, int64_t percent, probe_pace pace)
{
    int64_t more = PRICE_PERCENT * percent;
    if (pace == PROBE_UNKNOWN && more < PRICE_UNKNOWN)
        more = PRICE_UNKNOWN;
    if (pace == PROBE_HOPELESS)
        more /= HOPELESS_TIMES;
    if (b->due < PROBE_PRICE)
        b->due += more; // what is too much counts for the next one, so that the share is exact
    return percent > 0 && b->due >= PROBE_PRICE && b->left >= PROBE_PRICE;
}

void probes_spend(probes *b)
{
    b->due -= PROBE_PRICE;
    b->left -= PROBE_PRICE;
}

// ---- choice -----------------------------------------------------------------------------------

double controller_round_us(const cost_curve *c, const step_facts *step, int32_t sequences)
{
    int32_t n = sequences > step->sharers ? sequences : step->sharers;
    if (!step->draft || sequences < 1)
        return 0;
    double us = cost_curve_us(step->draft, n);
    us = us > 0 ? us : step->draft_share * (cost_curve_us(c, n) + step->fixed_us);
    return us * sequences / n;
}

double controller_rounds_us(const cost_curve *c, const step_facts *step, const offer *offers,
                            int32_t count)
{
    double us = 0;
    for (int32_t round = 1, sequences = count; sequences > 0; round++) {
        sequences = 0;
        for (int32_t i = 0; i < count; i++)
            sequences += offers[i].drafted && offers[i].chosen >= round;
        us += controller_round_us(c, step, sequences);
    }
    return us;
}

// A choice under way.
typedef struct choice {
    const cost_curve *cost;
    const step_facts *step;
    int32_t taken[COST_ROWS_MAX];  // of each offer
    double chance[COST_ROWS_MAX];  // that its next token is right; 0: it has no more
    int32_t rounds[DRAFT_MAX + 1]; // sequences in each round of the draft model
    double tokens, drafting_us;
} choice;

// The offer whose next guess is most likely right; -1: none is left.
static int32_t best_next(const choice *x, int32_t count)
{
    int32_t best = -1;
    double most = 0;
    for (int32_t i = 0; i < count; i++)
        if (x->chance[i] > most) {
            most = x->chance[i];
            best = i;
        }
    return best;
}

// The rounds of the draft model grow by this sequence's next token.
static void choice_take(choice *x, const offer *o, int32_t index)
{
    int32_t at = x->taken[index]++;
    x->tokens += x->chance[index];
    x->chance[index] = x->taken[index] < o->count ? x->chance[index] * o->alpha : 0;
    if (!o->drafted)
        return;
    int32_t n = x->rounds[at]++;
    x->drafting_us += controller_round_us(x->cost, x->step, n + 1) -
                      (n > 0 ? controller_round_us(x->cost, x->step, n) : 0);
}

// The chances of one more guess fall with every guess, so taking the likeliest next one each time
// passes through the best choice for every number of rows; the curve need not be smooth.
double controller_choose(const cost_curve *c, const step_facts *step, offer *offers, int32_t count)
{
    choice x = { .cost = c, .step = step, .tokens = step->rows };
    double base_us = cost_curve_us(c, step->rows) + step->fixed_us, best = 1 + step->margin;
    int32_t reach = cost_curve_reach(c, step->rows) - step->rows;
    bool found = false;
    for (int32_t i = 0; i < count; i++)
        offers[i].chosen = 0;
    if (cost_curve_us(c, step->rows) <= 0 || count > COST_ROWS_MAX)
        return 1;
    for (int32_t i = 0; i < count; i++)
        x.chance[i] = offers[i].count > 0 ? offers[i].alpha : 0;
    for (int32_t k = 1; k <= step->room && k <= reach; k++) {
        int32_t next = best_next(&x, count);
        if (next < 0)
            break;
        choice_take(&x, &offers[next], next);
        double us = cost_curve_us(c, step->rows + k) + step->fixed_us + x.drafting_us;
        if (step->limit_us > 0 && us > step->limit_us)
            break;
        double gain = x.tokens / step->rows * base_us / us;
        if (gain < best)
            continue;
        best = gain;
        found = true;
        for (int32_t i = 0; i < count; i++)
            offers[i].chosen = x.taken[i];
    }
    return found ? best : 1;
}

static int32_t widened(const offer *o, int32_t times)
{
    int64_t all = (int64_t)o->chosen * times;
    return all < o->count ? (int32_t)all : o->count;
}

bool controller_widen(const cost_curve *c, const step_facts *step, offer *offers, int32_t count)
{
    int32_t times = 1, rows = 0, last, reach = cost_curve_reach(c, step->rows);
    do {
        last = rows;
        rows = step->rows;
        times *= 2;
        for (int32_t i = 0; i < count; i++)
            rows += widened(&offers[i], times);
    } while (rows > last && cost_curve_knows(c, rows));
    if (rows == last || rows > step->rows + step->room || rows > reach)
        return false;
    offer wider[COST_ROWS_MAX];
    for (int32_t i = 0; i < count; i++) {
        wider[i] = offers[i];
        wider[i].chosen = widened(&offers[i], times);
    }
    double us =
        cost_curve_us(c, rows) + step->fixed_us + controller_rounds_us(c, step, wider, count);
    if (step->limit_us > 0 && us > step->limit_us)
        return false;
    memcpy(offers, wider, (size_t)count * sizeof *offers);
    return true;
}

double controller_gain(const cost_curve *c, const step_facts *step, const offer *o)
{
    offer alone = *o;
    return controller_choose(c, step, &alone, 1);
}

static double gain_of(double alpha, int32_t g, double ratio)
{
    double tokens = 1, chance = 1;
    for (int32_t i = 0; i < g; i++)
        tokens += chance *= alpha;
    return tokens / ratio;
}

double controller_break_even(const cost_curve *c, const step_facts *step, int32_t g, bool drafted)
{
    double base_us = cost_curve_us(c, step->rows), low = 0, high = 1;
    if (base_us <= 0)
        return 0;
    double us = cost_curve_us(c, step->rows * (1 + g));
    us += drafted ? g * controller_round_us(c, step, step->rows) : 0;
    double ratio = (us + step->fixed_us) / (base_us + step->fixed_us);
    if (gain_of(1, g, ratio) <= 1 + step->margin)
        return 1;
    for (int i = 0; i < 40; i++) {
        double middle = (low + high) / 2;
        if (gain_of(middle, g, ratio) < 1 + step->margin)
            low = middle;
        else
            high = middle;
    }
    return high;
}
