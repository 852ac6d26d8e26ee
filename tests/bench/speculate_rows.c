#include "speculate.h"

#include <math.h>
#include <stdio.h>

static double over(double a, double b)
{
    return b > 0 ? a / b : 0;
}

void speculate_row_fill(speculate_row *row, const speculate_pair *pair)
{
    const speculate_side *with = &pair->with, *without = &pair->without;
    double draws = with->tokens - pair->accepted; // of a sequence in a step
    double plain_us = over(without->plain_us, without->steps);
    double on_g = over(with->drafted, with->on_steps * row->batch), chance = 1, tokens = 1;
    row->rate = over(with->tokens, with->seconds);
    row->plain_rate = over(without->tokens, without->seconds);
    row->ratio = speculate_ratio(pair, &row->error);
    row->alpha = over(pair->accepted, pair->accepted + pair->rejected);
    row->share = over(pair->accepted, with->drafted);
    row->step_tokens = over(with->tokens, draws);
    row->g = over(with->drafted, draws);
    row->on = over(with->on_steps, with->steps);
    row->draft_cost = over(over(pair->drafting_us, with->on_steps * on_g), plain_us);
    row->verify_cost = over(over(with->on_us, with->on_steps), plain_us);
    for (double left = on_g; left > 0; left--)
        tokens += fmin(left, 1) * (chance *= row->alpha);
    row->predicted = over(tokens, row->draft_cost * on_g + row->verify_cost);
}

void speculate_heads_print(void)
{
    printf("%-8s %5s %4s  %-7s %4s  %8s %8s  %-14s  %5s %5s %6s %5s %5s  %5s %5s %9s\n", "prompt",
           "batch", "temp", "drafter", "g", "plain/s", "tokens/s", "gain", "alpha", "share",
           "a step", "mean", "on", "c", "v", "predicted");
}

void speculate_row_print(const speculate_row *r, bool json)
{
    char g[12] = "auto";
    if (json) {
        printf("{\"what\":\"speculate\",\"prompt\":\"%s\",\"batch\":%d,\"temperature\":%g,"
               "\"drafter\":\"%s\",\"fixed\":%d,\"plain_tokens_per_s\":%.2f,"
               "\"tokens_per_s\":%.2f,\"ratio\":%.4f,\"error\":%.4f,\"alpha\":%.3f,"
               "\"accepted_share\":%.3f,\"tokens_per_step\":%.3f,\"g\":%.3f,\"on\":%.3f,"
               "\"c\":%.4f,\"v\":%.4f,\"predicted\":%.3f}\n",
               r->name, r->batch, r->temperature, r->drafter, r->fixed, r->plain_rate, r->rate,
               r->ratio, isfinite(r->error) ? r->error : 0, r->alpha, r->share, r->step_tokens,
               r->g, r->on, r->draft_cost, r->verify_cost, r->predicted);
        fflush(stdout);
        return;
    }
    if (r->fixed > 0)
        snprintf(g, sizeof g, "%d", r->fixed);
    printf("%-8s %5d %4.1f  %-7s %4s  %8.1f %8.1f  %5.3fx +-%5.3f  %5.3f %5.3f %6.2f %5.2f %5.2f  "
           "%5.3f %5.2f %8.2fx\n",
           r->name, r->batch, r->temperature, r->drafter, g, r->plain_rate, r->rate, r->ratio,
           r->error, r->alpha, r->share, r->step_tokens, r->g, r->on, r->draft_cost, r->verify_cost,
           r->predicted);
    fflush(stdout);
}

// Whether the controller's mean is within one of the best number, or of one that cannot be told
// from it: whose gain is within the standard error of the best. None gains exactly 1. A controller
// that gains more than any fixed number is right too.
static bool controller_near(const speculate_row *rows, int count, int best)
{
    double least = best > 0 ? rows[best].ratio - rows[best].error : 1;
    bool near = (best > 0 && rows[0].ratio >= rows[best].ratio) || (rows[0].g <= 1 && least <= 1);
    for (int i = 1; i < count; i++)
        near = near || (rows[i].ratio >= least && fabs(rows[0].g - rows[i].g) <= 1);
    return near;
}

// A fixed number that loses is worse than none.
void speculate_best_print(const speculate_row *rows, int count, bool json)
{
    int best = 0;
    double gain = 1;
    if (count < 2)
        return;
    for (int i = 1; i < count; i++)
        if (rows[i].ratio > gain)
            gain = rows[best = i].ratio;
    int fixed = best > 0 ? rows[best].fixed : 0;
    double g = best > 0 ? rows[best].g : 0; // as many as there was something to guess for
    bool near = controller_near(rows, count, best);
    if (json)
        printf("{\"what\":\"speculate best\",\"prompt\":\"%s\",\"batch\":%d,\"temperature\":%g,"
               "\"drafter\":\"%s\",\"fixed\":%d,\"g\":%.3f,\"ratio\":%.4f,\"controller_g\":%.3f,"
               "\"controller_ratio\":%.4f,\"within_one\":%s}\n",
               rows->name, rows->batch, rows->temperature, rows->drafter, fixed, g, gain, rows->g,
               rows->ratio, near ? "true" : "false");
    else
        printf("    best measured: g %d (%.2f on average), %.2fx; the controller: %.2f on average, "
               "%.2fx: %s\n",
               fixed, g, gain, rows->g, rows->ratio,
               near ? "within one step" : "NOT within one step");
    fflush(stdout);
}
