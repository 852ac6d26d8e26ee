#include "model/cost.h"

#define STEPS_NEEDED 8      // before a prediction is given
#define FORGETTING 0.99     // weight of a step after the next one
#define SPREAD_FIRST 1000.0 // how unsure the first prices are, in square milliseconds
#define SPREAD_MAX 1e5      // the sum of the diagonal: forgetting without news must not grow it

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
    for (int i = 0; i < COST_TERMS; i++)
        m->spread[i][i] = SPREAD_FIRST;
}

static double price_of(const cost_model *m, const double terms[COST_TERMS])
{
    double sum = 0;
    for (int i = 0; i < COST_TERMS; i++)
        sum += m->price[i] * terms[i];
    return sum;
}

static void spread_update(cost_model *m, const double gain[COST_TERMS],
                          const double spread_terms[COST_TERMS])
{
    double sum = 0;
    for (int i = 0; i < COST_TERMS; i++)
        for (int k = 0; k < COST_TERMS; k++)
            m->spread[i][k] = (m->spread[i][k] - gain[i] * spread_terms[k]) / FORGETTING;
    for (int i = 0; i < COST_TERMS; i++)
        sum += m->spread[i][i];
    double shrink = sum > SPREAD_MAX ? SPREAD_MAX / sum : 1;
    for (int i = 0; i < COST_TERMS; i++)
        for (int k = 0; k < COST_TERMS; k++)
            m->spread[i][k] *= shrink;
}

void cost_learn(cost_model *m, const cost_work *work, double duration_us)
{
    double terms[COST_TERMS], spread_terms[COST_TERMS], gain[COST_TERMS];
    terms_of(work, terms);
    double predicted = price_of(m, terms), wrong = duration_us * 1e-3 - predicted;
    if (m->steps >= STEPS_NEEDED && wrong > predicted)
        wrong = predicted;
    double divisor = FORGETTING;
    for (int i = 0; i < COST_TERMS; i++) {
        spread_terms[i] = 0;
        for (int k = 0; k < COST_TERMS; k++)
            spread_terms[i] += m->spread[i][k] * terms[k];
        divisor += terms[i] * spread_terms[i];
    }
    for (int i = 0; i < COST_TERMS; i++) {
        gain[i] = spread_terms[i] / divisor;
        m->price[i] += gain[i] * wrong;
        if (m->price[i] < 0) // nothing makes a step shorter
            m->price[i] = 0;
    }
    spread_update(m, gain, spread_terms);
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
