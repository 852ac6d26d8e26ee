#include "model/cost.h"

#include <math.h>

#define STEPS_NEEDED 8  // before a prediction is given
#define FORGETTING 0.98 // weight of a step after the next one
// Added to what is known of every price, and a part of the mean besides: a step with next to
// nothing of a term must not move its price far, nor noise the difference between two prices that
// nothing tells apart.
#define KNOWN_LEAST 0.05
#define DAMPING 0.01

// Terms in units that make each of them about 1 in a usual step, so that the sums stay well
// conditioned.
static void terms_of(const cost_work *w, double terms[COST_TERMS])
{
    terms[0] = 1;
    terms[1] = w->rows / 64;
    terms[2] = w->decode_context / 4096;
    terms[3] = w->prompt_pairs / 65536;
}

void cost_begin(cost_model *m)
{
    *m = (cost_model){ 0 };
}

static double price_of(const cost_model *m, const double terms[COST_TERMS])
{
    double sum = 0;
    for (int i = 0; i < COST_TERMS; i++)
        sum += m->price[i] * terms[i];
    return sum;
}

static void known_update(cost_model *m, const double terms[COST_TERMS])
{
    double keeps = sqrt(FORGETTING);
    for (int i = 0; i < COST_TERMS; i++)
        for (int k = 0; k < COST_TERMS; k++) {
            double left = (terms[i] != 0 ? keeps : 1) * (terms[k] != 0 ? keeps : 1);
            m->known[i][k] = m->known[i][k] * left + terms[i] * terms[k];
        }
}

// x = a^-1 x for a symmetric, positive definite a (Cholesky), which is lost.
static void solve(double a[COST_TERMS][COST_TERMS], double x[COST_TERMS])
{
    for (int i = 0; i < COST_TERMS; i++)
        for (int k = 0; k <= i; k++) {
            double sum = a[i][k];
            for (int n = 0; n < k; n++)
                sum -= a[i][n] * a[k][n];
            a[i][k] = i == k ? sqrt(sum) : sum / a[k][k];
        }
    for (int i = 0; i < COST_TERMS; i++) {
        for (int k = 0; k < i; k++)
            x[i] -= a[i][k] * x[k];
        x[i] /= a[i][i];
    }
    for (int i = COST_TERMS - 1; i >= 0; i--) {
        for (int k = i + 1; k < COST_TERMS; k++)
            x[i] -= a[k][i] * x[k];
        x[i] /= a[i][i];
    }
}

// The change of prices that answers a step best: the least of change' damped change / 2 - change'
// terms wrong. Nothing makes a step shorter: where a price would fall below 0 it becomes 0, and the
// others are changed as if that had been known, or they would drift away together.
static void change_find(const cost_model *m, double damped[COST_TERMS][COST_TERMS],
                        const double terms[COST_TERMS], double wrong, double change[COST_TERMS])
{
    bool fixed[COST_TERMS] = { false };
    for (bool again = true; again;) {
        double a[COST_TERMS][COST_TERMS];
        again = false;
        for (int i = 0; i < COST_TERMS; i++) {
            change[i] = fixed[i] ? -m->price[i] : terms[i] * wrong;
            for (int k = 0; k < COST_TERMS; k++) {
                a[i][k] = fixed[i] || fixed[k] ? i == k : damped[i][k];
                if (!fixed[i] && fixed[k])
                    change[i] += damped[i][k] * m->price[k];
            }
        }
        solve(a, change);
        for (int i = 0; i < COST_TERMS; i++)
            if (!fixed[i] && m->price[i] + change[i] < 0)
                fixed[i] = again = true;
    }
}

void cost_learn(cost_model *m, const cost_work *work, double duration_us)
{
    double terms[COST_TERMS], change[COST_TERMS], damped[COST_TERMS][COST_TERMS], mean = 0;
    terms_of(work, terms);
    double predicted = price_of(m, terms), wrong = duration_us * 1e-3 - predicted;
    if (m->steps >= STEPS_NEEDED && wrong > predicted)
        wrong = predicted;
    known_update(m, terms);
    for (int i = 0; i < COST_TERMS; i++)
        mean += m->known[i][i] / COST_TERMS;
    for (int i = 0; i < COST_TERMS; i++)
        for (int k = 0; k < COST_TERMS; k++)
            damped[i][k] = m->known[i][k] + (i == k ? KNOWN_LEAST + DAMPING * mean : 0);
    change_find(m, damped, terms, wrong, change);
    for (int i = 0; i < COST_TERMS; i++)
        m->price[i] = m->price[i] + change[i] < 0 ? 0 : m->price[i] + change[i];
    m->steps++;
}

double cost_predict(const cost_model *m, const cost_work *work)
{
    double terms[COST_TERMS];
    if (m->steps < STEPS_NEEDED)
        return 0;
    terms_of(work, terms);
    return price_of(m, terms) * 1e3;
}

int32_t cost_rows(const cost_model *m, const cost_work *work, double context, double limit_us,
                  int32_t rows_max)
{
    int32_t low = 0, high = rows_max;
    if (m->steps < STEPS_NEEDED)
        return rows_max;
    while (low < high) { // the prices are not negative, so more rows never take less
        int32_t rows = low + (high - low + 1) / 2;
        cost_work more = *work;
        more.rows += rows;
        more.prompt_pairs += rows * (context + rows);
        if (cost_predict(m, &more) <= limit_us)
            low = rows;
        else
            high = rows - 1;
    }
    return low;
}
