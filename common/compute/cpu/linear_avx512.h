// What the AVX-512 files of tile kernels share: linear_avx512.c, linear_k_avx512.c and
// linear_wide_avx512.c. Private to them.
//
// A tile is T output rows and 32 inputs (tiles.c draws it): the quants, for 5 and 6 bits then
// planes with the high bits, then T scales and, where the type has any, T minima. A lane is an
// output row, so nothing is summed across lanes. Register k of a tile's eight holds inputs 4k ..
// 4k+3 of all rows as unsigned bytes, which is what vpdpbusd wants on that side; signed types lie
// higher by `surplus`, which the start of each integer sum takes back.
#pragma once

#include "compute/cpu/levels.h"

#include <immintrin.h>

#define T CPU_AVX512_TILE_ROWS
// Without this gcc keeps the sums in memory. Sanitizer builds optimise too little to follow it, and
// say so.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define Q4_BYTES (T * 16)
#define Q8_BYTES (T * 32)
#define SCALES_BYTES (T * 2)
#define PLANE_BYTES (T * 4)
#define Q5_BYTES (Q4_BYTES + PLANE_BYTES)
#define Q6_BYTES (Q4_BYTES + 2 * PLANE_BYTES)

// One register of a tile; T scales or minima; four inputs of one row in every lane.
static inline __m512i bytes_at(const void *p)
{
    return _mm512_loadu_si512(p);
}

static inline __m512 halves_at(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline __m512i inputs_at(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, 4);
    return _mm512_set1_epi32(four);
}

// Sixteen unsigned, or signed, bytes as float.
static inline __m512 small_at(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

static inline __m512 signed_at(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

// `panel` of rows 0..3 and, `blocks` later, of rows 4..7.
typedef struct inputs {
    const cpu_panel_block *low, *high;
} inputs;

static inline __attribute__((always_inline)) const cpu_panel_block *panel_of(inputs x, int row)
{
    return row < CPU_PANEL_ROWS ? x.low : x.high;
}

#define SLOT(row) ((row) % CPU_PANEL_ROWS)

// Far enough that memory has answered, near enough to stay in the nearest cache.
#define PREFETCH_AHEAD 8192

// How far a call has come with what it fetches.
typedef struct fetching {
    const uint8_t *at, *end;
    int next;
} fetching;

static inline __attribute__((always_inline)) void fetch_some(const cpu_tile_call *call, fetching *f)
{
    if (f->at >= f->end) {
        if (f->next >= call->fetch_count)
            return;
        f->at = call->fetch[f->next++] + call->fetch_offset;
        f->end = f->at + call->fetch_bytes;
    }
    UNROLL for (int i = 0; i < CPU_FETCH_LINES; i++)
        _mm_prefetch((const char *)f->at + 64 * i, _MM_HINT_T1);
    f->at += 64 * CPU_FETCH_LINES;
}

// Eight registers of weights against all rows, then the block's scales `d` and, where it has any,
// minima `m`. `surplus`: by how much the weights are too high.
static inline __attribute__((always_inline)) void block_of_weights(const __m512i *w, __m512 d,
                                                                   __m512 m, inputs x, int rows,
                                                                   int surplus, bool minima,
                                                                   __m512 *sums)
{
    UNROLL for (int r = 0; r < rows; r++)
    {
        const cpu_panel_block *panel = panel_of(x, r);
        // Two sums, so that a row alone does not wait for each product.
        __m512i b = _mm512_setzero_si512();
        __m512i a = _mm512_set1_epi32(-surplus * panel->sum[SLOT(r)]);
        UNROLL for (int k = 0; k < 8; k += 2)
        {
            a = _mm512_dpbusd_epi32(a, w[k], inputs_at(panel->q[SLOT(r)] + 4 * k));
            b = _mm512_dpbusd_epi32(b, w[k + 1], inputs_at(panel->q[SLOT(r)] + 4 * k + 4));
        }
        __m512 whole = _mm512_cvtepi32_ps(_mm512_add_epi32(a, b));
        __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(panel->d[SLOT(r)]));
        sums[r] = _mm512_fmadd_ps(scale, whole, sums[r]);
    }
    if (minima) {
        UNROLL for (int r = 0; r < rows; r++) sums[r] =
            _mm512_fmadd_ps(m, _mm512_set1_ps(panel_of(x, r)->s[SLOT(r)]), sums[r]);
    }
}

// The eight registers of a tile, by type. Low nibbles are inputs 0..15, high ones 16..31.
static inline __attribute__((always_inline)) void weights_of_4_bits(const uint8_t *tile, __m512i *w)
{
    const __m512i low = _mm512_set1_epi8(15);
    UNROLL for (int k = 0; k < 4; k++)
    {
        __m512i both = bytes_at(tile + 64 * k);
        w[k] = _mm512_and_si512(both, low);
        w[k + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
}

static inline __attribute__((always_inline)) void weights_of_8_bits(const uint8_t *tile, __m512i *w)
{
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    UNROLL for (int k = 0; k < 8; k++) w[k] = _mm512_xor_si512(bytes_at(tile + 64 * k), sign);
}

// x shifted left by `by`, right where that is negative.
static inline __m512i shifted(__m512i x, int by)
{
    return by == 0  ? x
           : by > 0 ? _mm512_slli_epi16(x, (unsigned)by)
                    : _mm512_srli_epi16(x, (unsigned)-by);
}

static inline __attribute__((always_inline)) void weights_of_5_bits(const uint8_t *tile, __m512i *w)
{
    const __m512i fifth = _mm512_set1_epi8(16);
    __m512i plane = bytes_at(tile + Q4_BYTES);
    weights_of_4_bits(tile, w);
    UNROLL for (int k = 0; k < 8; k++) w[k] =
        _mm512_or_si512(w[k], _mm512_and_si512(shifted(plane, 4 - k), fifth));
}

static inline __attribute__((always_inline)) void weights_of_6_bits(const uint8_t *tile, __m512i *w)
{
    const __m512i high = _mm512_set1_epi8(0x30);
    weights_of_4_bits(tile, w);
    UNROLL for (int k = 0; k < 8; k++)
    {
        __m512i plane = bytes_at(tile + Q4_BYTES + PLANE_BYTES * (k / 4));
        __m512i bits = _mm512_and_si512(shifted(plane, 4 - k % 4 * 2), high);
        w[k] = _mm512_or_si512(w[k], bits);
    }
}

// The kernel `name` for `rows` input rows: `bytes` of a tile, of which `quant_bytes` come before
// the scales, made registers by `unpack`.
#define QUANTISED_KERNEL(name, rows, bytes, quant_bytes, unpack, surplus, minima)                  \
    static void name##_##rows(const cpu_tile_call *call)                                           \
    {                                                                                              \
        fetching fetch = { NULL, NULL, 0 };                                                        \
        for (int tile = 0; tile < call->tiles; tile++) {                                           \
            const uint8_t *at = call->weights + tile * call->tile_bytes;                           \
            inputs x = { call->panel, call->panel + call->blocks };                                \
            __m512 sums[rows];                                                                     \
            UNROLL for (int r = 0; r < rows; r++) sums[r] = _mm512_setzero_ps();                   \
            for (int i = 0; i < call->blocks; i++, at += bytes, x.low++, x.high++) {               \
                __m512i w[8];                                                                      \
                if (rows >= CPU_FETCH_ROWS)                                                        \
                    fetch_some(call, &fetch);                                                      \
                UNROLL for (int z = 0; z < bytes; z += 64)                                         \
                    _mm_prefetch((const char *)at + PREFETCH_AHEAD + z, _MM_HINT_T0);              \
                unpack(at, w);                                                                     \
                __m512 d = halves_at(at + quant_bytes);                                            \
                __m512 m = minima ? halves_at(at + quant_bytes + SCALES_BYTES) : d;                \
                block_of_weights(w, d, m, x, rows, surplus, minima, sums);                         \
            }                                                                                      \
            UNROLL for (int r = 0; r < rows; r++)                                                  \
                _mm512_storeu_ps(call->out + ((int64_t)tile * rows + r) * T, sums[r]);             \
        }                                                                                          \
    }

// A kernel of the table out of those for 1 to 8 rows.
#define ENTRY(name)                                                                                \
    void cpu_##name##_avx512(const cpu_tile_call *call)                                            \
    {                                                                                              \
        static const cpu_tile_kernel by_rows[] = { name##_1, name##_2, name##_3, name##_4,         \
                                                   name##_5, name##_6, name##_7, name##_8 };       \
        by_rows[call->rows - 1](call);                                                             \
    }
