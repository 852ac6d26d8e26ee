// Pictures of measurements: panels with axes, marks and a legend in one SVG file without references
// to others, readable on light and dark pages. Lengths are pixels.
#pragma once

#include "base/buffer.h"

#include <stdbool.h>

#define CHART_LEFT 74 // of the first panel
#define CHART_TOP 56
#define CHART_COLOURS 8
#define CHART_SHAPES 8 // the first is a circle

typedef struct chart_axis {
    double low, high, step;
    double from, to; // pixels of low and high
} chart_axis;

typedef struct chart_panel {
    const char *x_label, *y_label;
    chart_axis x, y;
} chart_panel;

// Round steps of 1, 2 or 5 times a power of ten, around the values low .. high; an axis that begins
// at 0 shows proportions.
chart_axis chart_axis_of(double low, double high, bool from_zero, double from, double to);
double chart_place(const chart_axis *a, double value);
// Grid, frame, numbers and labels.
void chart_panel_draw(const chart_panel *p, buffer *out);
// A mark of the CSS class; between the two calls its <title> may be written.
void chart_mark_begin(double x, double y, int shape, const char *class, buffer *out);
void chart_mark_end(int shape, buffer *out);
// A vertical bar from `low` to `high` at `x`.
void chart_bar(const chart_axis *y, double x, double low, double high, const char *class,
               buffer *out);
void chart_escape(const char *text, buffer *out);

// Where the next entry of the legend goes.
typedef struct chart_legend {
    double x, y, right;
} chart_legend;

void chart_legend_line(chart_legend *l); // go on in a line of its own
void chart_legend_entry(chart_legend *l, int shape, const char *class, const char *text,
                        buffer *out);

// The file around them.
void chart_begin(int width, int height, const char *title, const char *subtitle, buffer *out);
void chart_end(buffer *out);
