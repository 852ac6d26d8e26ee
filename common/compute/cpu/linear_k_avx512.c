// Tile kernels of the types with 5 and 6 bits and of those with blocks of 256 (K), AVX-512: as in
// linear_avx512.c, the weights are the unsigned operand of vpdpbusd and a lane is an output row.
#include "compute/cpu/linear_avx512.h"
#include "compute/cpu/tiles.h"

// ---- blocks of 32 -----------------------------------------------------------------------------

#define KERNELS_OF_ROWS(rows)                                                                      \
    QUANTISED_KERNEL(q5_0, rows, Q5_BYTES + SCALES_BYTES, Q5_BYTES, weights_of_5_bits, 16, false)  \
    QUANTISED_KERNEL(q5_1, rows, Q5_BYTES + 2 * SCALES_BYTES, Q5_BYTES, weights_of_5_bits, 0, true)

KERNELS_OF_ROWS(1)
KERNELS_OF_ROWS(2)
KERNELS_OF_ROWS(3)
KERNELS_OF_ROWS(4)
KERNELS_OF_ROWS(5)
KERNELS_OF_ROWS(6)
KERNELS_OF_ROWS(7)
KERNELS_OF_ROWS(8)
ENTRY(q5_0)
ENTRY(q5_1)

// ---- blocks of 256 ----------------------------------------------------------------------------

// A block of 6 bits: two halves of 16 inputs, each with a scale of its own. The surplus of 32 is
// taken off where a half's sum begins.
static inline __attribute__((always_inline)) void block_of_6_bits(const uint8_t *tile, __m512 d,
                                                                  inputs x, int rows, __m512 *sums)
{
    __m512 scales[2] = { _mm512_mul_ps(d, signed_at(tile + Q6_BYTES)),
                         _mm512_mul_ps(d, signed_at(tile + Q6_BYTES + T)) };
    __m512i w[8];
    weights_of_6_bits(tile, w);
    UNROLL for (int r = 0; r < rows; r++)
    {
        const cpu_panel_block *panel = panel_of(x, r);
        __m512 input = _mm512_set1_ps(panel->d[SLOT(r)]);
        __m512i whole[2];
        UNROLL for (int half = 0; half < 2; half++) whole[half] =
            _mm512_set1_epi32(-32 * panel->halves[SLOT(r)][half]);
        UNROLL for (int k = 0; k < 4; k++) UNROLL for (int half = 0; half < 2; half++) whole[half] =
            _mm512_dpbusd_epi32(whole[half], w[4 * half + k],
                                inputs_at(panel->q[SLOT(r)] + 16 * half + 4 * k));
        UNROLL for (int half = 0; half < 2; half++) sums[r] = _mm512_fmadd_ps(
            _mm512_mul_ps(scales[half], input), _mm512_cvtepi32_ps(whole[half]), sums[r]);
    }
}

// Eight blocks behind their header.
static inline __attribute__((always_inline)) void group_of_k(const cpu_tile_call *call,
                                                             fetching *fetch, const uint8_t *group,
                                                             inputs x, int bits, int rows,
                                                             __m512 *sums)
{
    const bool minima = bits != 6;
    const int quants = bits == 4 ? Q4_BYTES : bits == 5 ? Q5_BYTES : Q6_BYTES;
    const int block = quants + 2 * T;
    __m512 d = halves_at(group), m = minima ? halves_at(group + SCALES_BYTES) : d;
    const uint8_t *at = group + (minima ? 2 : 1) * SCALES_BYTES;
    for (int i = 0; i < CPU_K_BLOCKS; i++, at += block, x.low++, x.high++) {
        if (rows >= CPU_FETCH_ROWS)
            fetch_some(call, fetch);
        UNROLL for (int z = 0; z < block; z += 64)
            _mm_prefetch((const char *)at + PREFETCH_AHEAD + z, _MM_HINT_T0);
        if (bits == 6) {
            block_of_6_bits(at, d, x, rows, sums);
            continue;
        }
        __m512i w[8];
        if (bits == 4)
            weights_of_4_bits(at, w);
        else
            weights_of_5_bits(at, w);
        __m512 block_d = _mm512_mul_ps(d, small_at(at + quants));
        __m512 block_m = _mm512_mul_ps(m, small_at(at + quants + T));
        block_of_weights(w, block_d, block_m, x, rows, 0, true, sums);
    }
}

#define K_KERNEL(name, bits, rows, group_bytes)                                                    \
    static void name##_##rows(const cpu_tile_call *call)                                           \
    {                                                                                              \
        fetching fetch = { NULL, NULL, 0 };                                                        \
        for (int tile = 0; tile < call->tiles; tile++) {                                           \
            const uint8_t *group = call->weights + tile * call->tile_bytes;                        \
            __m512 sums[rows];                                                                     \
            UNROLL for (int r = 0; r < rows; r++) sums[r] = _mm512_setzero_ps();                   \
            for (int i = 0; i < call->blocks; i += CPU_K_BLOCKS, group += group_bytes) {           \
                inputs x = { call->panel + i, call->panel + call->blocks + i };                    \
                group_of_k(call, &fetch, group, x, bits, rows, sums);                              \
            }                                                                                      \
            UNROLL for (int r = 0; r < rows; r++)                                                  \
                _mm512_storeu_ps(call->out + ((int64_t)tile * rows + r) * T, sums[r]);             \
        }                                                                                          \
    }

#define K_KERNELS(rows)                                                                            \
    K_KERNEL(q4_k, 4, rows, 2 * SCALES_BYTES + CPU_K_BLOCKS * (Q4_BYTES + 2 * T))                  \
    K_KERNEL(q5_k, 5, rows, 2 * SCALES_BYTES + CPU_K_BLOCKS * (Q5_BYTES + 2 * T))                  \
    K_KERNEL(q6_k, 6, rows, SCALES_BYTES + CPU_K_BLOCKS * (Q6_BYTES + 2 * T))

K_KERNELS(1)
K_KERNELS(2)
K_KERNELS(3)
K_KERNELS(4)
K_KERNELS(5)
K_KERNELS(6)
K_KERNELS(7)
K_KERNELS(8)
ENTRY(q4_k)
ENTRY(q5_k)
ENTRY(q6_k)
