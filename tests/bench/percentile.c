#include "percentile.h"

#include <math.h>
#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_percentile(double *values, size_t count, double p)
{
    if (count == 0)
        return NAN;
    qsort(values, count, sizeof *values, compare_doubles);
    double place = (double)(count - 1) * p / 100.0;
    size_t low = (size_t)place, high = low + 1 < count ? low + 1 : low;
    return values[low] + (values[high] - values[low]) * (place - (double)low);
}
