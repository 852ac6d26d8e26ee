#include "decode_worker/speculate/controller.h"

#include <math.h>

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
    if (rows > COST_ROWS_MAX)
        return true;
    int32_t above = point_near(c, rows, 1), below = point_near(c, rows, -1);
    return (above > 0 && above - rows <= rows / 8) || (below > 0 && rows - below <= rows / 8);
}

// Points above the last one go on with the slope from the first to the last.
static double beyond(const cost_curve *c, int32_t last, int32_t rows)
{
    int32_t first = point_near(c, 1, 1);
    double slope = c->us[last] / last;
    if (first < last)
        slope = fmax(0, (c->us[last] - c->us[first]) / (last - first));
    return c->us[last] + slope * (rows - last);
}

double cost_curve_us(const cost_curve *c, int32_t rows)
{
    if (rows < 1)
        return 0;
    int32_t within = rows < COST_ROWS_MAX ? rows : COST_ROWS_MAX;
    int32_t below = point_near(c, within, -1), above = point_near(c, within, 1);
    if (!below)
        return above ? c->us[above] : 0; // fewer rows than any known: as much as those
    if (!above || rows > COST_ROWS_MAX)
        return beyond(c, below, rows);
    if (below == above)
        return c->us[below];
    double share = (double)(rows - below) / (above - below);
    return c->us[below] + share * fmax(0, c->us[above] - c->us[below]);
}

// ---- what came of it --------------------------------------------------------------------------

#define LEDGER_KEEP 0.97  // about 33 steps count
#define LEDGER_LOSS 0.02  // of the tokens drawn meanwhile
#define LEDGER_CHANCE 1.5 // steps' worth of tokens that slow steps may cost
#define LEDGER_FORGIVE 0.99

void ledger_add(ledger *l, int32_t rows, double plain_us, double tokens, double us)
{
    if (plain_us <= 0 || us <= 0 || rows < 1)
        return;
    double gained = tokens - rows * us / plain_us;
    if (gained < -rows) // somebody else had the processor
        gained = -rows;
    l->gained = l->gained * LEDGER_KEEP + gained / rows;
    l->tokens = l->tokens * LEDGER_KEEP + tokens / rows;
}

void ledger_forgive(ledger *l)
{
    l->gained *= LEDGER_FORGIVE;
    l->tokens *= LEDGER_FORGIVE;
}

bool ledger_loses(const ledger *l)
{
    return l->gained < -LEDGER_CHANCE - LEDGER_LOSS * l->tokens;
}

// ---- choice -----------------------------------------------------------------------------------

// The offer whose next guess is most likely right for its price; -1: none is left.
static int32_t best_next(const offer *offers, const int32_t *taken, int32_t count)
{
    int32_t best = -1;
    double most = 0;
    for (int32_t i = 0; i < count; i++) {
        if (taken[i] >= offers[i].count)
            continue;
        double chance = pow(offers[i].alpha, taken[i] + 1);
        if (chance > most) {
            most = chance;
            best = i;
        }
    }
    return best;
}

// The chances of one more guess fall with every guess, so taking the likeliest next one each time
// passes through the best choice for every number of rows; the curve need not be smooth.
double controller_choose(const cost_curve *c, const step_facts *step, offer *offers, int32_t count)
{
    int32_t taken[COST_ROWS_MAX] = { 0 }, rows = step->rows;
    double base_us = cost_curve_us(c, rows), tokens = rows, added_us = step->fixed_us;
    double best = 1 + step->margin;
    bool found = false;
    for (int32_t i = 0; i < count; i++)
        offers[i].chosen = 0;
    if (base_us <= 0 || rows < 1 || count > COST_ROWS_MAX)
        return 1;
    base_us += step->fixed_us;
    for (int32_t k = 1; k <= step->room; k++) {
        int32_t next = best_next(offers, taken, count);
        if (next < 0)
            break;
        taken[next]++;
        tokens += pow(offers[next].alpha, taken[next]);
        added_us += offers[next].draft_us;
        double us = cost_curve_us(c, rows + k) + added_us;
        if (step->limit_us > 0 && us > step->limit_us)
            break;
        double gain = tokens / rows * base_us / us;
        if (gain < best)
            continue;
        best = gain;
        found = true;
        for (int32_t i = 0; i < count; i++)
            offers[i].chosen = taken[i];
    }
    return found ? best : 1;
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

double controller_break_even(const cost_curve *c, const step_facts *step, int32_t g,
                             double draft_us)
{
    double base_us = cost_curve_us(c, step->rows), low = 0, high = 1;
    if (base_us <= 0)
        return 0;
    double us = cost_curve_us(c, step->rows * (1 + g)) + step->rows * g * draft_us;
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
