// Products of tiles of 16 rows with 1 to 8 activation rows, AVX-512 with VNNI.
//
// vpdpbusd sums four products of an unsigned weight and a signed input into a 32-bit lane. 8-bit
// weights are made unsigned by 128 more, 4-bit weights of Q4_0 lie 8 too high: the start of a
// block's integer sum takes that back. The lanes are output rows, so nothing is summed across them,
// and each row's chain of multiply-adds is the same in the kernels of 1 to 8 rows.
#include "compute/cpu/linear_avx512.h"

#define KERNELS_OF_ROWS(rows)                                                                      \
    QUANTISED_KERNEL(q4_0, rows, Q4_BYTES + SCALES_BYTES, Q4_BYTES, weights_of_4_bits, 8, false)   \
    QUANTISED_KERNEL(q4_1, rows, Q4_BYTES + 2 * SCALES_BYTES, Q4_BYTES, weights_of_4_bits, 0,      \
                     true)                                                                         \
    QUANTISED_KERNEL(q8_0, rows, Q8_BYTES + SCALES_BYTES, Q8_BYTES, weights_of_8_bits, 128, false)

KERNELS_OF_ROWS(1)
KERNELS_OF_ROWS(2)
KERNELS_OF_ROWS(3)
KERNELS_OF_ROWS(4)
KERNELS_OF_ROWS(5)
KERNELS_OF_ROWS(6)
KERNELS_OF_ROWS(7)
KERNELS_OF_ROWS(8)

ENTRY(q4_0)
ENTRY(q4_1)
ENTRY(q8_0)

// ---- floats -----------------------------------------------------------------------------------

static inline __m512 weights_at(const uint8_t *p, tensor_type type)
{
    if (type == TENSOR_F32)
        return _mm512_loadu_ps((const float *)p);
    if (type == TENSOR_F16)
        return halves_at(p);
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

// `tiles` tile columns at once where a row alone has too few chains of multiply-adds, which would
// wait for themselves.
static inline __attribute__((always_inline)) void float_tiles(const cpu_tile_call *call, int tile,
                                                              int tiles, int rows, tensor_type type)
{
    const int step = T * (type == TENSOR_F32 ? 4 : 2);
    const uint8_t *w = call->weights + tile * call->tile_bytes;
    __m512 sums[8];
    UNROLL for (int i = 0; i < tiles * rows; i++) sums[i] = _mm512_setzero_ps();
    for (int i = 0; i < call->columns; i++, w += step) {
        UNROLL for (int t = 0; t < tiles; t++)
        {
            __m512 value = weights_at(w + t * call->tile_bytes, type);
            UNROLL for (int r = 0; r < rows; r++) sums[t * rows + r] = _mm512_fmadd_ps(
                value, _mm512_set1_ps(call->x[r * call->x_stride + i]), sums[t * rows + r]);
        }
    }
    UNROLL for (int i = 0; i < tiles * rows; i++)
        _mm512_storeu_ps(call->out + ((int64_t)tile * rows + i) * T, sums[i]);
}

#define FLOAT_KERNEL(name, type, rows, together)                                                   \
    static void name##_##rows(const cpu_tile_call *call)                                           \
    {                                                                                              \
        int tile = 0;                                                                              \
        for (; tile + together <= call->tiles; tile += together)                                   \
            float_tiles(call, tile, together, rows, type);                                         \
        for (; tile < call->tiles; tile++)                                                         \
            float_tiles(call, tile, 1, rows, type);                                                \
    }

#define FLOAT_KERNELS(name, type)                                                                  \
    FLOAT_KERNEL(name, type, 1, 4)                                                                 \
    FLOAT_KERNEL(name, type, 2, 4)                                                                 \
    FLOAT_KERNEL(name, type, 3, 2)                                                                 \
    FLOAT_KERNEL(name, type, 4, 2)                                                                 \
    FLOAT_KERNEL(name, type, 5, 1)                                                                 \
    FLOAT_KERNEL(name, type, 6, 1)                                                                 \
    FLOAT_KERNEL(name, type, 7, 1)                                                                 \
    FLOAT_KERNEL(name, type, 8, 1)                                                                 \
    ENTRY(name)

FLOAT_KERNELS(f32, TENSOR_F32)
FLOAT_KERNELS(f16, TENSOR_F16)
FLOAT_KERNELS(bf16, TENSOR_BF16)
