#include "eval/plot.h"

#include <math.h>
#include <stdio.h>

// Pixels.
#define PANEL_WIDTH 400
#define PANEL_HEIGHT 290
#define MARGIN_LEFT 74
#define MARGIN_TOP 56
#define PANEL_GAP 92
#define LEGEND_TOP 412
#define LEGEND_LINE 22
#define CHARACTER 6.9 // of the legend's text, wide
#define TICKS_ABOUT 5
#define COLOURS 8
#define SHAPES 8

typedef struct axis {
    double low, high, step;
    double from, to; // pixels of low and high
} axis;

typedef struct panel {
    const char *label;
    axis x, y;
} panel;

static const char style[] =
    "<style>\n"
    "text{font:12px system-ui,sans-serif;fill:#57606a}.title{font-size:15px;font-weight:600;"
    "fill:#1f2328}\n"
    ".page{fill:#ffffff}.grid{stroke:#d8dee4}.frame{stroke:#8c959f;fill:none}.mark{stroke:#ffffff}"
    ".kv{fill:#57606a}\n"
    ".c0{fill:#0969da}.c1{fill:#bc4c00}.c2{fill:#1a7f37}.c3{fill:#8250df}.c4{fill:#bf3989}"
    ".c5{fill:#9a6700}.c6{fill:#0a7a8c}.c7{fill:#cf222e}\n"
    "@media (prefers-color-scheme:dark){text{fill:#9da7b3}.title{fill:#f0f6fc}.page{fill:#0d1117}"
    ".grid{stroke:#2a313a}.frame{stroke:#6e7681}.mark{stroke:#0d1117}.kv{fill:#9da7b3}\n"
    ".c0{fill:#58a6ff}.c1{fill:#f0883e}.c2{fill:#3fb950}.c3{fill:#bc8cff}.c4{fill:#f778ba}"
    ".c5{fill:#d29922}.c6{fill:#39c5cf}.c7{fill:#ff7b72}}\n"
    "</style>\n";

static void append_escaped(buffer *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            buffer_append_text(out, "&lt;");
        else if (*text == '&')
            buffer_append_text(out, "&amp;");
        else
            buffer_append_byte(out, *text);
    }
}

// Round steps of 1, 2 or 5 times a power of ten, around the values low .. high; an axis that begins
// at 0 shows proportions.
static axis axis_of(double low, double high, bool from_zero, double from, double to)
{
    double room = high > low ? (high - low) * 0.12 : fabs(high) * 0.05 + 1e-9;
    double begin = from_zero ? 0 : low - room, end = high + (from_zero ? 0.06 * high : room);
    double raw = (end - begin) / TICKS_ABOUT, power = pow(10, floor(log10(raw)));
    double share = raw / power;
    double step = power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
    return (axis){ floor(begin / step) * step, ceil(end / step) * step, step, from, to };
}

static double axis_place(const axis *a, double value)
{
    return a->from + (value - a->low) / (a->high - a->low) * (a->to - a->from);
}

// Digits behind the point that tell two ticks apart.
static int axis_decimals(const axis *a)
{
    double digits = ceil(-log10(a->step) - 1e-9);
    return digits < 0 ? 0 : digits > 9 ? 9 : (int)digits;
}

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

static void axes_draw(const panel *p, buffer *out)
{
    const axis *x = &p->x, *y = &p->y;
    for (double v = y->low; v < y->high + y->step / 2; v += y->step)
        buffer_printf(out,
                      "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n",
                      x->from, x->to, axis_place(y, v), axis_place(y, v), x->from - 8,
                      axis_place(y, v) + 4, axis_decimals(y), v);
    for (double v = x->low; v < x->high + x->step / 2; v += x->step)
        buffer_printf(out,
                      "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.*f</text>\n",
                      axis_place(x, v), axis_place(x, v), y->from, y->to, axis_place(x, v),
                      y->from + 18, axis_decimals(x), v);
    buffer_printf(out,
                  "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                  x->from, y->to, x->to - x->from, y->from - y->to);
    buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                  (x->from + x->to) / 2, y->from + 40, p->label);
    buffer_printf(out,
                  "<text transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\">"
                  "bits per byte (less is better)</text>\n",
                  x->from - 54, (y->from + y->to) / 2);
}

// Corners of the shapes, around 0, in pixels; the first is the circle.
static const char *const shapes[SHAPES] = {
    NULL,
    "-5,-5 5,-5 5,5 -5,5",
    "0,-7 6.5,5 -6.5,5",
    "0,-7.5 7.5,0 0,7.5 -7.5,0",
    "0,7 6.5,-5 -6.5,-5",
    "-2,-7 2,-7 2,-2 7,-2 7,2 2,2 2,7 -2,7 -2,2 -7,2 -7,-2 -2,-2",
    "-7,0 5,-6.5 5,6.5",
    "7,0 -5,-6.5 -5,6.5",
};

static void mark_draw(double x, double y, int shape, const char *class, buffer *out)
{
    if (shapes[shape])
        buffer_printf(out,
                      "<polygon class=\"mark %s\" transform=\"translate(%.1f %.1f)\" "
                      "points=\"%s\">",
                      class, x, y, shapes[shape]);
    else
        buffer_printf(out, "<circle class=\"mark %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\">", class, x,
                      y);
}

static void mark_end(int shape, buffer *out)
{
    buffer_append_text(out, shapes[shape] ? "</polygon>\n" : "</circle>\n");
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

// The standard error of a point's height, as a bar.
static void bar_draw(const axis *y, double x, const table_row *row, const char *class, buffer *out)
{
    if (isnan(row->bits_error))
        return;
    buffer_printf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"2\" height=\"%.1f\"/>\n",
                  class, x - 1, axis_place(y, row->bits_per_byte + row->bits_error),
                  axis_place(y, row->bits_per_byte - row->bits_error) -
                      axis_place(y, row->bits_per_byte + row->bits_error));
}

static void points_draw(const panel *p, const table_row *rows, int count, const plot_labels *labels,
                        bool speed, buffer *out)
{
    for (int i = 0; i < count; i++) {
        double value = value_of(&rows[i], labels, speed);
        int shape = order_of(rows, i, true) % SHAPES;
        char class[8];
        if (isnan(value) || isnan(rows[i].bits_per_byte))
            continue;
        snprintf(class, sizeof class, "c%d", order_of(rows, i, false) % COLOURS);
        bar_draw(&p->y, axis_place(&p->x, value), &rows[i], class, out);
        mark_draw(axis_place(&p->x, value), axis_place(&p->y, rows[i].bits_per_byte), shape, class,
                  out);
        buffer_append_text(out, "<title>");
        append_escaped(out, rows[i].model);
        buffer_printf(out, ", kv %s: %.4f bits per byte, %.6g</title>", rows[i].kv_type,
                      rows[i].bits_per_byte, value);
        mark_end(shape, out);
    }
}

// Where the next entry of the legend goes.
typedef struct legend {
    double x, y, right;
} legend;

static void legend_entry(legend *l, int shape, const char *class, const char *text, buffer *out)
{
    double width = 34 + CHARACTER * (double)strlen(text);
    if (l->x + width > l->right && l->x > MARGIN_LEFT) {
        l->x = MARGIN_LEFT;
        l->y += LEGEND_LINE;
    }
    mark_draw(l->x, l->y - 4, shape, class, out);
    mark_end(shape, out);
    buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\">", l->x + 13, l->y);
    append_escaped(out, text);
    buffer_append_text(out, "</text>\n");
    l->x += width;
}

// Returns where it ends.
static double legend_draw(const table_row *rows, int count, double right, buffer *out)
{
    legend l = { MARGIN_LEFT, LEGEND_TOP, right };
    for (int of_type = 0; of_type < 2; of_type++) {
        int next = 0;
        for (int i = 0; i < count; i++) {
            char class[8], text[160];
            int order = order_of(rows, i, of_type);
            if (order != next)
                continue;
            next++;
            snprintf(class, sizeof class, "c%d", order % COLOURS);
            snprintf(text, sizeof text, "%s%s", of_type ? "kv " : "",
                     of_type ? rows[i].kv_type : rows[i].model);
            legend_entry(&l, of_type ? order % SHAPES : 0, of_type ? "kv" : class, text, out);
        }
        if (of_type == 0) {
            l.x = MARGIN_LEFT;
            l.y += LEGEND_LINE;
        }
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
    panel p = { label, axis_of(low, high, true, left, left + PANEL_WIDTH),
                axis_of(quality_low, quality_high, false, MARGIN_TOP + PANEL_HEIGHT, MARGIN_TOP) };
    axes_draw(&p, out);
    points_draw(&p, rows, count, labels, speed, out);
}

void plot_svg(const table_row *rows, int count, const plot_labels *labels, buffer *out)
{
    buffer body = { 0 };
    double low, high;
    range_of(rows, count, labels, true, &low, &high);
    bool speed = low <= high;
    int panels = speed ? 2 : 1;
    int width = MARGIN_LEFT + panels * PANEL_WIDTH + (panels - 1) * PANEL_GAP + 36;
    double bottom = legend_draw(rows, count, width - 16, &body);
    if (speed)
        panel_draw(rows, count, labels, true, MARGIN_LEFT, &body);
    panel_draw(rows, count, labels, false, MARGIN_LEFT + (panels - 1) * (PANEL_WIDTH + PANEL_GAP),
               &body);
    int height = (int)bottom + 20;
    buffer_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                  "height=\"%d\" role=\"img\">\n<title>Quality against %smemory</title>\n%s"
                  "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n"
                  "<text class=\"title\" x=\"%d\" y=\"26\">Quality against %smemory</text>\n"
                  "<text x=\"%d\" y=\"44\">bars: standard error of the difference to the first "
                  "model</text>\n",
                  width, height, width, height, speed ? "speed and " : "", style, width, height,
                  MARGIN_LEFT, speed ? "speed and " : "", MARGIN_LEFT);
    buffer_append_slice(out, buffer_slice(&body));
    buffer_append_text(out, "</svg>\n");
    buffer_close(&body);
}
