// The rows of penstock-eval table, and their two plain forms: aligned columns and CSV (RFC 4180).
#pragma once

#include "base/buffer.h"

#include <stdint.h>

// One model with one type of KV cache. NAN: not measured.
typedef struct table_row {
    char model[128], kv_type[16];
    double weight_mib;                   // of all weights in memory
    double kv_token_bytes;               // of a token in all layers
    double resident;                     // sequences that the pool of the command line holds
    double prefill, decode_1, decode_32; // tokens/s
    double perplexity, bits_per_byte;
    double bits_error;                   // of its difference to the first row's; only drawn
    double difference, difference_error; // of the perplexity, per cent of the first row's; paired
    double kl_mean, top_same;            // against the first row; its own are 0 and 100
    double accuracy, accuracy_by_bytes;  // per cent of the questions
    double accuracy_low, accuracy_high;  // 95 % interval of `accuracy`
} table_row;

void table_print(const table_row *rows, int count, buffer *out);
// One line of headings, then one a row; what was not measured is empty.
void table_csv(const table_row *rows, int count, buffer *out);
