// Products of tiles and rows, one number at a time: the readable form of every tile kernel. The
// arithmetic of a block is y += (d_w d_a) * integer sum (+ m_w s_a for Q4_1), blocks ascending.
#include "compute/cpu/levels.h"

#define T CPU_SCALAR_TILE_ROWS

static float scale_of(const uint8_t *scales, int i)
{
    uint16_t bits;
    memcpy(&bits, scales + 2 * i, 2);
    return tensor_f16_to_f32(bits);
}

static int32_t sum_of_4_bit(const uint8_t *tile, const int8_t *q, int lane)
{
    int32_t sum = 0;
    for (int i = 0; i < 16; i++) {
        int byte = tile[i / 4 * T * 4 + lane * 4 + i % 4];
        sum += (byte & 15) * q[i] + (byte >> 4) * q[16 + i];
    }
    return sum;
}

static int32_t sum_of_8_bit(const uint8_t *tile, const int8_t *q, int lane)
{
    int32_t sum = 0;
    for (int i = 0; i < 32; i++)
        sum += (int8_t)tile[i / 4 * T * 4 + lane * 4 + i % 4] * q[i];
    return sum;
}

// out[lane] of one tile column and one row of the panel.
static void quantised_row(const cpu_tile_call *call, tensor_type type, const uint8_t *tile, int row,
                          float *out)
{
    const int quant_bytes = type == TENSOR_Q8_0 ? T * 32 : T * 16;
    const int tile_bytes = quant_bytes + (type == TENSOR_Q4_1 ? 4 : 2) * T;
    const cpu_panel_block *panel = call->panel + row / CPU_PANEL_ROWS * call->blocks;
    int slot = row % CPU_PANEL_ROWS;
    for (int lane = 0; lane < T; lane++)
        out[lane] = 0;
    for (int block = 0; block < call->blocks; block++, panel++, tile += tile_bytes)
        for (int lane = 0; lane < T; lane++) {
            float d = scale_of(tile + quant_bytes, lane) * panel->d[slot];
            int32_t sum = type == TENSOR_Q8_0 ? sum_of_8_bit(tile, panel->q[slot], lane)
                                              : sum_of_4_bit(tile, panel->q[slot], lane);
            if (type == TENSOR_Q4_0)
                sum -= 8 * panel->sum[slot];
            out[lane] += d * (float)sum;
            if (type == TENSOR_Q4_1)
                out[lane] += scale_of(tile + quant_bytes + 2 * T, lane) * panel->s[slot];
        }
}

static void quantised(const cpu_tile_call *call, tensor_type type)
{
    for (int tile = 0; tile < call->tiles; tile++)
        for (int row = 0; row < call->rows; row++)
            quantised_row(call, type, call->weights + tile * call->tile_bytes, row,
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
