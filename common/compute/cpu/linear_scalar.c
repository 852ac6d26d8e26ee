// Products of tiles and rows, one number at a time: the readable form of every tile kernel. The
// arithmetic of a block is y += (d_w d_a) * integer sum (+ m_w s_a where the type has a minimum),
// blocks ascending; a K type's integer scales are part of the integer sum.
#include "compute/cpu/levels.h"
#include "compute/cpu/tiles.h"

#define T CPU_SCALAR_TILE_ROWS

// out[lane] of one tile column and one row of the panel.
static void quantised_row(const cpu_tile_call *call, const cpu_format *format,
                          const uint8_t *column, int row, float *out)
{
    const cpu_panel_block *panel = call->panel + row / CPU_PANEL_ROWS * call->blocks;
    int slot = row % CPU_PANEL_ROWS;
    for (int lane = 0; lane < T; lane++)
        out[lane] = 0;
    for (int block = 0; block < call->blocks; block++, panel++)
        for (int lane = 0; lane < T; lane++) {
            cpu_tile_block w;
            int32_t sums[2] = { 0 };
            cpu_tiles_take_block(format, T, lane, column, block, &w);
            for (int i = 0; i < CPU_BLOCK; i++)
                sums[i / 16] += w.q[i] * panel->q[slot][i];
            int32_t sum = w.k[0] * sums[0] + w.k[1] * sums[1];
            out[lane] += w.d * panel->d[slot] * (float)sum;
            if (format->minimum)
                out[lane] += w.minimum * panel->s[slot];
        }
}

static void quantised(const cpu_tile_call *call, tensor_type type)
{
    const cpu_format *format = cpu_format_of(type);
    for (int tile = 0; tile < call->tiles; tile++)
        for (int row = 0; row < call->rows; row++)
            quantised_row(call, format, call->weights + tile * call->tile_bytes, row,
                          call->out + ((int64_t)tile * call->rows + row) * T);
}

static void floating(const cpu_tile_call *call, tensor_type type)
{
    size_t size = (size_t)tensor_block_bytes(type);
    for (int tile = 0; tile < call->tiles; tile++)
        for (int row = 0; row < call->rows; row++) {
            const uint8_t *weights = call->weights + tile * call->tile_bytes;
            const float *x = call->x + row * call->x_stride;
            float *out = call->out + ((int64_t)tile * call->rows + row) * T;
            for (int lane = 0; lane < T; lane++)
                out[lane] = 0;
            for (int i = 0; i < call->columns; i++)
                for (int lane = 0; lane < T; lane++, weights += size) {
                    float value;
                    tensor_decode(type, weights, 1, &value);
                    out[lane] += value * x[i];
                }
        }
}

void cpu_f32_scalar(const cpu_tile_call *call)
{
    floating(call, TENSOR_F32);
}

void cpu_f16_scalar(const cpu_tile_call *call)
{
    floating(call, TENSOR_F16);
}

void cpu_bf16_scalar(const cpu_tile_call *call)
{
    floating(call, TENSOR_BF16);
}

void cpu_q4_0_scalar(const cpu_tile_call *call)
{
    quantised(call, TENSOR_Q4_0);
}

void cpu_q4_1_scalar(const cpu_tile_call *call)
{
    quantised(call, TENSOR_Q4_1);
}

void cpu_q8_0_scalar(const cpu_tile_call *call)
{
    quantised(call, TENSOR_Q8_0);
}

void cpu_q5_0_scalar(const cpu_tile_call *call)
{
    quantised(call, TENSOR_Q5_0);
}

void cpu_q5_1_scalar(const cpu_tile_call *call)
{
    quantised(call, TENSOR_Q5_1);
}

void cpu_q4_k_scalar(const cpu_tile_call *call)
{
    quantised(call, TENSOR_Q4_K);
}

void cpu_q5_k_scalar(const cpu_tile_call *call)
{
    quantised(call, TENSOR_Q5_K);
}

void cpu_q6_k_scalar(const cpu_tile_call *call)
{
    quantised(call, TENSOR_Q6_K);
}
