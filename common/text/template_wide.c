// Integers beyond 64 bits: order, by their digits.
#include "text/template_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { DIGITS_MAX = 320 }; // of the largest double

// The integer as text. A double below 2^63 stands for zero of its sign: beside a wide integer only
// the sign counts.
static slice digits_of(jinja_value v, char text[DIGITS_MAX])
{
    int64_t integer;
    if (v.type == JINJA_WIDE)
        return jinja_slice(v.string);
    if (v.type == JINJA_FLOAT)
        snprintf(text, DIGITS_MAX, "%.0f", fabs(v.real) < 0x1p63 ? 0.0 : v.real);
    else
        snprintf(text, DIGITS_MAX, "%" PRId64, jinja_integral(v, &integer) ? integer : 0);
    return slice_of(text);
}

int jinja_order_wide(jinja_value a, jinja_value b)
{
    char texts[2][DIGITS_MAX];
    jinja_value other = a.type == JINJA_WIDE ? b : a;
    if (other.type == JINJA_FLOAT && isnan(other.real))
        return 2;
    if (other.type == JINJA_FLOAT && isinf(other.real))
        return (a.type == JINJA_WIDE) == (other.real < 0) ? 1 : -1;
    slice x = digits_of(a, texts[0]), y = digits_of(b, texts[1]);
    bool x_below = x.data[0] == '-', y_below = y.data[0] == '-';
    if (x_below != y_below)
        return x_below ? -1 : 1;
    int order = x.size < y.size ? -1 : x.size > y.size;
    if (order == 0) {
        order = memcmp(x.data, y.data, x.size);
        order = order < 0 ? -1 : order > 0;
    }
    return x_below ? -order : order;
}
