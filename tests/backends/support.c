#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const support_levels[SUPPORT_LEVELS] = { "scalar", "avx2", "avx512" };

bool support_level_wanted(const char *level)
{
#ifdef PENSTOCK_ONLY_LEVEL
    const char *only = PENSTOCK_ONLY_LEVEL;
#else
    const char *only = getenv("PENSTOCK_LEVEL");
#endif
    return only == NULL || strcmp(only, level) == 0;
}

bool device_open(device *d, const char *level, int threads)
{
    error failure = { 0 };
    if (!support_level_wanted(level))
        return false;
    backend_settings settings = { .level = level, .threads = threads, .cores = "" };
    d->table = &backend_cpu;
    status result = d->table->open(&settings, &d->b, &failure);
    if (result == STATUS_UNSUPPORTED)
        return false;
    if (result != STATUS_OK)
        fail_msg("%s", failure.text);
    assert_int_equal(d->table->queue_open(d->b, &d->q), STATUS_OK);
    return true;
}

void device_close(device *d)
{
    d->table->queue_close(d->q);
    d->table->close(d->b);
}

void device_run(device *d)
{
    d->table->queue_wait(d->q, d->table->queue_submit(d->q));
}

const char *support_any_level(void)
{
    for (int i = 0; i < SUPPORT_LEVELS; i++) {
        device d;
        if (device_open(&d, support_levels[i], 1)) {
            device_close(&d);
            return support_levels[i];
        }
    }
    fail_msg("no level was tested");
    return NULL;
}

backend_activation *device_activation(device *d, int rows, int columns, const float *values)
{
    backend_activation *a;
    assert_int_equal(d->table->activation_open(d->b, rows, columns, &a), STATUS_OK);
    if (values != NULL)
        d->table->activation_write(d->q, a, 0, rows, values);
    return a;
}

static uint64_t random_state;

uint64_t random_begin(void)
{
    static bool told;
    const char *seed = getenv("PENSTOCK_SEED");
    random_state = seed == NULL ? 20260131 : strtoull(seed, NULL, 10);
    if (!told)
        printf("random numbers: replay with PENSTOCK_SEED=%llu\n",
               (unsigned long long)random_state);
    told = true;
    return random_state;
}

// xorshift64*, Marsaglia 2003 and Vigna 2016.
uint32_t random_next(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * 0x2545f4914f6cdd1du) >> 32);
}

int random_between(int low, int high)
{
    return low + (int)(random_next() % (uint32_t)(high - low + 1));
}

float random_float(float low, float high)
{
    return low + (high - low) * (float)(random_next() >> 8) * 0x1p-24f;
}

float random_normal(void)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += random_float(-1, 1);
    return sum * 0.866f;
}

float *floats_of(size_t count)
{
    float *values = calloc(count == 0 ? 1 : count, sizeof *values);
    assert_non_null(values);
    return values;
}

float *random_floats(size_t count, float scale)
{
    float *values = floats_of(count);
    for (size_t i = 0; i < count; i++)
        values[i] = scale * random_normal();
    return values;
}

static void put_half(uint8_t *at, float value)
{
    uint16_t bits = tensor_f32_to_f16(value);
    memcpy(at, &bits, 2);
}

static void random_block(tensor_type type, float scale, uint8_t *block)
{
    int bytes = tensor_block_bytes(type);
    float value = scale * random_normal();
    uint32_t bits;
    memcpy(&bits, &value, 4);
    switch (type) {
    case TENSOR_F32:
        memcpy(block, &value, 4);
        return;
    case TENSOR_F16:
        put_half(block, value);
        return;
    case TENSOR_BF16:
    case TENSOR_I8: // of caches only
    case TENSOR_F8_E4M3:
        bits >>= 16;
        memcpy(block, &bits, 2);
        return;
    default:
        break;
    }
    for (int i = 0; i < bytes; i++)
        block[i] = (uint8_t)random_next();
    if (type == TENSOR_Q6_K) { // quants of 6 bits, scales of 8, then the f16
        put_half(block + 208, scale * random_float(0.5f, 1.5f) / 1024);
        return;
    }
    if (type == TENSOR_Q4_K || type == TENSOR_Q5_K) {
        put_half(block, scale * random_float(0.5f, 1.5f) / 512);
        put_half(block + 2, scale * random_float(0.5f, 1.5f) / 64);
        return;
    }
    put_half(block, scale * random_float(0.5f, 1.5f) / (type == TENSOR_Q8_0 ? 64 : 4));
    if (type == TENSOR_Q4_1 || type == TENSOR_Q5_1)
        put_half(block + 2, -scale * random_float(0.5f, 3));
}

void *random_tensor(tensor_type type, int64_t rows, int64_t columns, float scale)
{
    int64_t size = tensor_row_bytes(type, columns) * rows;
    uint8_t *data = malloc((size_t)size);
    assert_non_null(data);
    for (int64_t at = 0; at < size; at += tensor_block_bytes(type))
        random_block(type, scale, data + at);
    return data;
}

void assert_same_bits(const float *a, const float *b, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0)
            fail_msg("%s: number %zu is %.9g and %.9g", what, i, (double)a[i], (double)b[i]);
}
