#include "model/rope.h"

#include <math.h>

// Long double: x87 functions do not depend on the CPU's level, as the double ones of libm do, and
// the table is a part of what must be equal bit for bit between machines.
#define PI 3.14159265358979323846264338327950288L

// The pair (as a fraction) that turns `turns` times in `original` positions.
static long double pair_of(const model_rope *rope, double turns, double original)
{
    return rope->dims * logl(original / (turns * 2 * PI)) / (2 * logl(rope->base));
}

void model_rope_set_parts(model_rope *rope, double fast, double slow, double original)
{
    long double first = floorl(pair_of(rope, fast, original));
    long double last = ceill(pair_of(rope, slow, original));
    rope->by_parts = true;
    rope->whole_below = (double)fmaxl(first, 0);
    rope->all_above = (double)fminl(last, rope->dims - 1);
}

long double model_rope_frequency(const model_rope *rope, double divisor, int32_t pair)
{
    long double exponent = -2.0L * pair / rope->dims;
    long double frequency = powl(rope->base, exponent) / divisor, scaled = frequency / rope->factor;
    if (!rope->by_parts)
        return scaled;
    long double width = fmaxl(0.001L, (long double)rope->all_above - rope->whole_below);
    long double part = fminl(1, fmaxl(0, (pair - rope->whole_below) / width));
    return scaled * part + frequency * (1 - part);
}

void model_rope_rotation(const model_rope *rope, long double frequency, int32_t position,
                         float *cosine, float *sine)
{
    *cosine = (float)(rope->magnitude * cosl(position * frequency));
    *sine = (float)(rope->magnitude * sinl(position * frequency));
}
