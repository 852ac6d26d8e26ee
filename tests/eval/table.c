#include "eval/table.h"

#include <math.h>
#include <stdio.h>

typedef struct column {
    const char *heading, *unit; // two lines above the column
    const char *name;           // in the CSV
    size_t offset;
    int decimals;
} column;

#define AT(field) offsetof(table_row, field)
static const column columns[] = {
    { "weights", "MiB", "weights_mib", AT(weight_mib), 1 },
    { "KV", "bytes/token", "kv_bytes_per_token", AT(kv_token_bytes), 0 },
    { "resident", "sequences", "resident_sequences", AT(resident), 0 },
    { "prefill", "tokens/s", "prefill_tokens_per_s", AT(prefill), 0 },
    { "decode 1", "tokens/s", "decode_1_tokens_per_s", AT(decode_1), 1 },
    { "decode 32", "tokens/s", "decode_32_tokens_per_s", AT(decode_32), 0 },
    { "perplexity", "", "perplexity", AT(perplexity), 4 },
    { "to first", "%", "perplexity_difference_percent", AT(difference), 2 },
    { "+-", "%", "perplexity_difference_error_percent", AT(difference_error), 2 },
    { "bits", "a byte", "bits_per_byte", AT(bits_per_byte), 4 },
    { "KL mean", "nats", "kl_mean", AT(kl_mean), 6 },
    { "top-1", "same, %", "top_1_same_percent", AT(top_same), 2 },
    { "choices", "right, %", "choices_percent", AT(accuracy), 1 },
    { "95 %", "from", "choices_low_percent", AT(accuracy_low), 1 },
    { "interval", "to", "choices_high_percent", AT(accuracy_high), 1 },
    { "by bytes", "right, %", "choices_by_bytes_percent", AT(accuracy_by_bytes), 1 },
};
#undef AT
#define COLUMNS (sizeof columns / sizeof columns[0])

// A figure as the terminal shows it.
static void cell_format(const table_row *row, const column *c, char text[32])
{
    double value = *(const double *)((const char *)row + c->offset);
    if (isnan(value))
        snprintf(text, 32, "-");
    else
        snprintf(text, 32, "%.*f", c->decimals, value);
}

static int larger(int a, size_t b)
{
    return a > (int)b ? a : (int)b;
}

// 0: no row has a figure, so the column is left out.
static int column_width(const table_row *rows, int count, const column *c)
{
    int width = larger((int)strlen(c->heading), strlen(c->unit));
    bool seen = false;
    for (int i = 0; i < count; i++) {
        char text[32];
        cell_format(&rows[i], c, text);
        width = larger(width, strlen(text));
        seen = seen || strcmp(text, "-") != 0;
    }
    return seen ? width : 0;
}

static void cell_print(int width, const char *text, buffer *out)
{
    if (width > 0)
        buffer_printf(out, "  %*s", width, text);
}

void table_print(const table_row *rows, int count, buffer *out)
{
    int widths[COLUMNS], model = 5, kv = 2;
    for (size_t c = 0; c < COLUMNS; c++)
        widths[c] = column_width(rows, count, &columns[c]);
    for (int i = 0; i < count; i++) {
        model = larger(model, strlen(rows[i].model));
        kv = larger(kv, strlen(rows[i].kv_type));
    }
    buffer_printf(out, "%-*s  %-*s", model, "model", kv, "kv");
    for (size_t c = 0; c < COLUMNS; c++)
        cell_print(widths[c], columns[c].heading, out);
    buffer_printf(out, "\n%-*s  %-*s", model, "", kv, "");
    for (size_t c = 0; c < COLUMNS; c++)
        cell_print(widths[c], columns[c].unit, out);
    for (int i = 0; i < count; i++) {
        buffer_printf(out, "\n%-*s  %-*s", model, rows[i].model, kv, rows[i].kv_type);
        for (size_t c = 0; c < COLUMNS; c++) {
            char text[32];
            cell_format(&rows[i], &columns[c], text);
            cell_print(widths[c], text, out);
        }
    }
    buffer_append_text(out, "\n");
}

static void csv_text(const char *text, buffer *out)
{
    if (!strpbrk(text, "\",\r\n")) {
        buffer_append_text(out, text);
        return;
    }
    buffer_append_text(out, "\"");
    for (; *text; text++) {
        if (*text == '"')
            buffer_append_text(out, "\"");
        buffer_append_byte(out, *text);
    }
    buffer_append_text(out, "\"");
}

void table_csv(const table_row *rows, int count, buffer *out)
{
    buffer_append_text(out, "model,kv_type");
    for (size_t c = 0; c < COLUMNS; c++)
        buffer_printf(out, ",%s", columns[c].name);
    for (int i = 0; i < count; i++) {
        buffer_append_text(out, "\r\n");
        csv_text(rows[i].model, out);
        buffer_printf(out, ",%s", rows[i].kv_type);
        for (size_t c = 0; c < COLUMNS; c++) {
            double value = *(const double *)((const char *)&rows[i] + columns[c].offset);
            buffer_printf(out, isnan(value) ? "," : ",%.9g", value);
        }
    }
    buffer_append_text(out, "\r\n");
}
