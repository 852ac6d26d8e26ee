// The rows of penstock-eval table as a picture: quality (bits per byte) against speed and against
// memory, side by side. One SVG file without references to others, readable on light and dark
// pages; a point's colour is its model, its shape the type of KV cache, and its tooltip says both.
#pragma once

#include "eval/table.h"

typedef struct plot_labels {
    int sequences, sequence_tokens; // whose KV the memory counts
} plot_labels;

// The panel of speed is left out where no row has one.
void plot_svg(const table_row *rows, int count, const plot_labels *labels, buffer *out);
