#include "chart.h"

#include <math.h>
#include <string.h>

#define LEGEND_LINE 22
#define CHARACTER 6.9 // of the legend's text, wide
#define TICKS_ABOUT 5

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

void chart_escape(const char *text, buffer *out)
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

chart_axis chart_axis_of(double low, double high, bool from_zero, double from, double to)
{
    double room = high > low ? (high - low) * 0.12 : fabs(high) * 0.05 + 1e-9;
    double begin = from_zero ? 0 : low - room, end = high + (from_zero ? 0.06 * high : room);
    double raw = (end - begin) / TICKS_ABOUT, power = pow(10, floor(log10(raw)));
    double share = raw / power;
    double step = power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
    return (chart_axis){ floor(begin / step) * step, ceil(end / step) * step, step, from, to };
}

double chart_place(const chart_axis *a, double value)
{
    return a->from + (value - a->low) / (a->high - a->low) * (a->to - a->from);
}

// Digits behind the point that tell two ticks apart.
static int axis_decimals(const chart_axis *a)
{
    double digits = ceil(-log10(a->step) - 1e-9);
    return digits < 0 ? 0 : digits > 9 ? 9 : (int)digits;
}

void chart_panel_draw(const chart_panel *p, buffer *out)
{
    const chart_axis *x = &p->x, *y = &p->y;
    for (double v = y->low; v < y->high + y->step / 2; v += y->step)
        buffer_printf(out,
                      "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>\n",
                      x->from, x->to, chart_place(y, v), chart_place(y, v), x->from - 8,
                      chart_place(y, v) + 4, axis_decimals(y), v);
    for (double v = x->low; v < x->high + x->step / 2; v += x->step)
        buffer_printf(out,
                      "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.*f</text>\n",
                      chart_place(x, v), chart_place(x, v), y->from, y->to, chart_place(x, v),
                      y->from + 18, axis_decimals(x), v);
    buffer_printf(out,
                  "<rect class=\"frame\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n",
                  x->from, y->to, x->to - x->from, y->from - y->to);
    buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                  (x->from + x->to) / 2, y->from + 40, p->x_label);
    buffer_printf(out,
                  "<text transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\">"
                  "%s</text>\n",
                  x->from - 54, (y->from + y->to) / 2, p->y_label);
}

// Corners of the shapes, around 0, in pixels; the first is the circle.
static const char *const shapes[CHART_SHAPES] = {
    NULL,
    "-5,-5 5,-5 5,5 -5,5",
    "0,-7 6.5,5 -6.5,5",
    "0,-7.5 7.5,0 0,7.5 -7.5,0",
    "0,7 6.5,-5 -6.5,-5",
    "-2,-7 2,-7 2,-2 7,-2 7,2 2,2 2,7 -2,7 -2,2 -7,2 -7,-2 -2,-2",
    "-7,0 5,-6.5 5,6.5",
    "7,0 -5,-6.5 -5,6.5",
};

void chart_mark_begin(double x, double y, int shape, const char *class, buffer *out)
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

void chart_mark_end(int shape, buffer *out)
{
    buffer_append_text(out, shapes[shape] ? "</polygon>\n" : "</circle>\n");
}

void chart_bar(const chart_axis *y, double x, double low, double high, const char *class,
               buffer *out)
{
    buffer_printf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"2\" height=\"%.1f\"/>\n",
                  class, x - 1, chart_place(y, high), chart_place(y, low) - chart_place(y, high));
}

void chart_legend_line(chart_legend *l)
{
    l->x = CHART_LEFT;
    l->y += LEGEND_LINE;
}

void chart_legend_entry(chart_legend *l, int shape, const char *class, const char *text,
                        buffer *out)
{
    double width = 34 + CHARACTER * (double)strlen(text);
    if (l->x + width > l->right && l->x > CHART_LEFT)
        chart_legend_line(l);
    chart_mark_begin(l->x, l->y - 4, shape, class, out);
    chart_mark_end(shape, out);
    buffer_printf(out, "<text x=\"%.1f\" y=\"%.1f\">", l->x + 13, l->y);
    chart_escape(text, out);
    buffer_append_text(out, "</text>\n");
    l->x += width;
}

void chart_begin(int width, int height, const char *title, const char *subtitle, buffer *out)
{
    buffer_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                  "height=\"%d\" role=\"img\">\n<title>%s</title>\n%s"
                  "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n"
                  "<text class=\"title\" x=\"%d\" y=\"26\">%s</text>\n"
                  "<text x=\"%d\" y=\"44\">%s</text>\n",
                  width, height, width, height, title, style, width, height, CHART_LEFT, title,
                  CHART_LEFT, subtitle);
}

void chart_end(buffer *out)
{
    buffer_append_text(out, "</svg>\n");
}
