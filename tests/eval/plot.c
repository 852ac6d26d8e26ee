#include "eval/plot.h"

#include "bench/chart.h"

#include <math.h>
#include <stdio.h>

// Pixels.
#define PANEL_WIDTH 400
#define PANEL_HEIGHT 290
#define PANEL_GAP 92
#define LEGEND_TOP 412

static double memory_of(const table_row *row, const plot_labels *labels)
{
    double tokens = (double)labels->sequences * labels->sequence_tokens;
    return row->weight_mib + row->kv_token_bytes * tokens / (1 << 20);
}

static double value_of(const table_row *row, const plot_labels *labels, bool speed)
{
    return speed ? row->decode_32 : memory_of(row, labels);
}

static void range_of(const table_row *rows, int count, const plot_labels *labels, bool speed,
                     double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (int i = 0; i < count; i++) {
        double value = value_of(&rows[i], labels, speed);
        *low = fmin(*low, value); // fmin and fmax pass NAN over
        *high = fmax(*high, value);
    }
}

// The number of the first row that has the same model (or type): its colour (or shape) counts from
// the order of first appearance.
static int order_of(const table_row *rows, int index, bool of_type)
{
    int order = 0;
    for (int i = 0; i <= index; i++) {
        int first = 0;
        while (strcmp(of_type ? rows[first].kv_type : rows[first].model,
                      of_type ? rows[i].kv_type : rows[i].model) != 0)
            first++;
        if (first == i && strcmp(of_type ? rows[i].kv_type : rows[i].model,
                                 of_type ? rows[index].kv_type : rows[index].model) == 0)
            return order;
        order += first == i;
    }
    return order;
}

// The standard error of a point's height.
static void bar_draw(const chart_axis *y, double x, const table_row *row, const char *class,
                     buffer *out)
{
    if (!isnan(row->bits_error))
        chart_bar(y, x, row->bits_per_byte - row->bits_error, row->bits_per_byte + row->bits_error,
                  class, out);
}

static void points_draw(const chart_panel *p, const table_row *rows, int count,
                        const plot_labels *labels, bool speed, buffer *out)
{
    for (int i = 0; i < count; i++) {
        double value = value_of(&rows[i], labels, speed);
        int shape = order_of(rows, i, true) % CHART_SHAPES;
        char class[8];
        if (isnan(value) || isnan(rows[i].bits_per_byte))
            continue;
        snprintf(class, sizeof class, "c%d", order_of(rows, i, false) % CHART_COLOURS);
        bar_draw(&p->y, chart_place(&p->x, value), &rows[i], class, out);
        chart_mark_begin(chart_place(&p->x, value), chart_place(&p->y, rows[i].bits_per_byte),
                         shape, class, out);
        buffer_append_text(out, "<title>");
        chart_escape(rows[i].model, out);
        buffer_printf(out, ", kv %s: %.4f bits per byte, %.6g</title>", rows[i].kv_type,
                      rows[i].bits_per_byte, value);
        chart_mark_end(shape, out);
    }
}

// Returns where it ends.
static double legend_draw(const table_row *rows, int count, double right, buffer *out)
{
    chart_legend l = { CHART_LEFT, LEGEND_TOP, right };
    for (int of_type = 0; of_type < 2; of_type++) {
        int next = 0;
        for (int i = 0; i < count; i++) {
            char class[8], text[160];
            int order = order_of(rows, i, of_type);
            if (order != next)
                continue;
            next++;
            snprintf(class, sizeof class, "c%d", order % CHART_COLOURS);
            snprintf(text, sizeof text, "%s%s", of_type ? "kv " : "",
                     of_type ? rows[i].kv_type : rows[i].model);
            chart_legend_entry(&l, of_type ? order % CHART_SHAPES : 0, of_type ? "kv" : class, text,
                               out);
        }
        if (of_type == 0)
            chart_legend_line(&l);
    }
    return l.y;
}

static void panel_draw(const table_row *rows, int count, const plot_labels *labels, bool speed,
                       double left, buffer *out)
{
    double low, high, quality_low = INFINITY, quality_high = -INFINITY;
    char label[128];
    range_of(rows, count, labels, speed, &low, &high);
    for (int i = 0; i < count; i++) {
        double bar = isnan(rows[i].bits_error) ? 0 : rows[i].bits_error;
        quality_low = fmin(quality_low, rows[i].bits_per_byte - bar);
        quality_high = fmax(quality_high, rows[i].bits_per_byte + bar);
    }
    snprintf(label, sizeof label,
             speed ? "tokens/s, decoding %d sequences (more is better)"
                   : "MiB of weights and KV, %d sequences of %d tokens (less is better)",
             labels->sequences, labels->sequence_tokens);
    chart_panel p = { label, "bits per byte (less is better)",
                      chart_axis_of(low, high, true, left, left + PANEL_WIDTH),
                      chart_axis_of(quality_low, quality_high, false, CHART_TOP + PANEL_HEIGHT,
                                    CHART_TOP) };
    chart_panel_draw(&p, out);
    points_draw(&p, rows, count, labels, speed, out);
}

void plot_svg(const table_row *rows, int count, const plot_labels *labels, buffer *out)
{
    buffer body = { 0 };
    double low, high;
    range_of(rows, count, labels, true, &low, &high);
    bool speed = low <= high;
    int panels = speed ? 2 : 1;
    int width = CHART_LEFT + panels * PANEL_WIDTH + (panels - 1) * PANEL_GAP + 36;
    double bottom = legend_draw(rows, count, width - 16, &body);
    if (speed)
        panel_draw(rows, count, labels, true, CHART_LEFT, &body);
    panel_draw(rows, count, labels, false, CHART_LEFT + (panels - 1) * (PANEL_WIDTH + PANEL_GAP),
               &body);
    int height = (int)bottom + 20;
    chart_begin(width, height,
                speed ? "Quality against speed and memory" : "Quality against memory",
                "bars: standard error of the difference to the first model", out);
    buffer_append_slice(out, buffer_slice(&body));
    chart_end(out);
    buffer_close(&body);
}
