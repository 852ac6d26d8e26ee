// What the conformance tests share: backends opened by level, random numbers with a printed seed,
// and weights made from random values of any type.
#pragma once

#include "compute/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SUPPORT_LEVELS 3
extern const char *const support_levels[SUPPORT_LEVELS];
// True for the one that PENSTOCK_LEVEL names, or for all. The emulated build knows avx512 alone.
bool support_level_wanted(const char *level);
// A level that this machine has, for what is the same at all of them; fails where there is none.
const char *support_any_level(void);

typedef struct device {
    const backend_table *table;
    backend *b;
    backend_queue *q;
} device;
// False where this machine lacks the level.
bool device_open(device *d, const char *level, int threads);
void device_close(device *d);
// Runs what was enqueued.
void device_run(device *d);
backend_activation *device_activation(device *d, int rows, int columns, const float *values);

// PENSTOCK_SEED, or a fixed number; printed once. The same seed gives the same test.
uint64_t random_begin(void);
uint32_t random_next(void);
int random_between(int low, int high); // inclusive
float random_float(float low, float high);
float random_normal(void);

// rows x columns of random blocks of a type, with scales near `scale`. Freed by the caller.
void *random_tensor(tensor_type type, int64_t rows, int64_t columns, float scale);
float *random_floats(size_t count, float scale);
float *floats_of(size_t count); // zeroed
// Bytes of `count` floats are equal; says where they are not.
void assert_same_bits(const float *a, const float *b, size_t count, const char *what);
