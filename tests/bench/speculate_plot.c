#include "chart.h"
#include "speculate.h"

#include <math.h>
#include <stdio.h>

#define PANEL_WIDTH 560
#define PANEL_HEIGHT 320
#define LEGEND_GAP 62
#define SHAPE_MEASURED 0
#define SHAPE_CONTROLLER 3
#define SHAPE_PREDICTED 5

static bool row_alike(const speculate_row *a, const speculate_row *b)
{
    return a->name == b->name && a->drafter == b->drafter && a->batch == b->batch &&
           a->temperature == b->temperature;
}

// The rows of a prompt, batch, temperature and drafter have one colour.
static int colour_of(const speculate_row *rows, int index)
{
    int colour = 0;
    for (int i = 1; i <= index; i++)
        colour += !row_alike(&rows[i], &rows[i - 1]);
    return colour % CHART_COLOURS;
}

static void mark(const chart_panel *p, const speculate_row *r, double gain, int shape,
                 const char *class, buffer *out)
{
    chart_mark_begin(chart_place(&p->x, r->g), chart_place(&p->y, gain), shape, class, out);
    buffer_append_text(out, "<title>");
    chart_escape(r->name, out);
    buffer_printf(out,
                  ", batch %d, temperature %g, %s: %s %.2f of %.1f guesses (alpha %.2f, c %.2f, v "
                  "%.2f)</title>",
                  r->batch, r->temperature, r->drafter,
                  shape == SHAPE_PREDICTED ? "predicted gain" : "gain", gain, r->g, r->alpha,
                  r->draft_cost, r->verify_cost);
    chart_mark_end(shape, out);
}

static void row_draw(const chart_panel *p, const speculate_row *r, const char *class, buffer *out)
{
    double x = chart_place(&p->x, r->g);
    if (isfinite(r->error))
        chart_bar(&p->y, x, r->ratio - r->error, r->ratio + r->error, class, out);
    if (r->fixed > 0 && r->predicted > 0)
        mark(p, r, r->predicted, SHAPE_PREDICTED, class, out);
    mark(p, r, r->ratio, r->fixed > 0 ? SHAPE_MEASURED : SHAPE_CONTROLLER, class, out);
}

// Returns where it ends.
static double legend_draw(const speculate_row *rows, int count, buffer *out)
{
    static const struct {
        int shape;
        const char *text;
    } kinds[] = { { SHAPE_MEASURED, "so many guesses, measured" },
                  { SHAPE_PREDICTED, "the same, from alpha, c and v" },
                  { SHAPE_CONTROLLER, "the controller" } };
    chart_legend l = { CHART_LEFT, CHART_TOP + PANEL_HEIGHT + LEGEND_GAP,
                       CHART_LEFT + PANEL_WIDTH };
    for (int i = 0; i < count; i++) {
        char class[8], text[160];
        if (i > 0 && row_alike(&rows[i], &rows[i - 1]))
            continue;
        snprintf(class, sizeof class, "c%d", colour_of(rows, i));
        snprintf(text, sizeof text, "%.60s, batch %d, temperature %g, %.20s", rows[i].name,
                 rows[i].batch, rows[i].temperature, rows[i].drafter);
        chart_legend_entry(&l, SHAPE_MEASURED, class, text, out);
    }
    chart_legend_line(&l);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        chart_legend_entry(&l, kinds[i].shape, "kv", kinds[i].text, out);
    return l.y;
}

void speculate_plot(const speculate_row *rows, int count, buffer *out)
{
    buffer body = { 0 };
    double most_g = 1, low = 1, high = 1;
    for (int i = 0; i < count; i++) {
        double bar = isfinite(rows[i].error) ? rows[i].error : 0;
        most_g = fmax(most_g, rows[i].g);
        low = fmin(low, rows[i].ratio - bar);
        high = fmax(high, fmax(rows[i].ratio + bar, rows[i].predicted));
    }
    chart_panel p = { "guessed tokens, by sequence and step",
                      "tokens/s, as a multiple of none guessed",
                      chart_axis_of(0, most_g, true, CHART_LEFT, CHART_LEFT + PANEL_WIDTH),
                      chart_axis_of(low, high, false, CHART_TOP + PANEL_HEIGHT, CHART_TOP) };
    double bottom = legend_draw(rows, count, &body);
    chart_begin(CHART_LEFT + PANEL_WIDTH + 36, (int)bottom + 20, "What guessing tokens gains",
                "bars: standard error", out);
    chart_panel_draw(&p, out);
    buffer_printf(out, "<line class=\"frame\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                  p.x.from, p.x.to, chart_place(&p.y, 1), chart_place(&p.y, 1));
    for (int i = 0; i < count; i++) {
        char class[8];
        snprintf(class, sizeof class, "c%d", colour_of(rows, i));
        row_draw(&p, &rows[i], class, out);
    }
    buffer_append_slice(out, buffer_slice(&body));
    chart_end(out);
    buffer_close(&body);
}
