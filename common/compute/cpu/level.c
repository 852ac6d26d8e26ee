// Which instruction set to use: asked from the CPU and the system once, at open.
#include "compute/cpu/cpu.h"

#include <cpuid.h>
#include <string.h>

#define CPUID1_FMA (1u << 12)
#define CPUID1_OSXSAVE (1u << 27)
#define CPUID1_AVX (1u << 28)
#define CPUID1_F16C (1u << 29)
#define CPUID7_AVX2 (1u << 5)
#define CPUID7_AVX512F (1u << 16)
#define CPUID7_AVX512DQ (1u << 17)
#define CPUID7_AVX512BW (1u << 30)
#define CPUID7_AVX512VL (1u << 31)
#define CPUID7_ECX_VNNI (1u << 11)
// What the system saves when it switches threads: SSE and AVX registers; masks and upper halves.
#define XCR0_AVX 0x06u
#define XCR0_AVX512 0xe6u

static uint32_t saved_state(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has_avx2(void)
{
    const uint32_t need = CPUID1_FMA | CPUID1_OSXSAVE | CPUID1_AVX | CPUID1_F16C;
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need) != need ||
        (saved_state() & XCR0_AVX) != XCR0_AVX)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & CPUID7_AVX2) != 0;
}

static bool has_avx512(void)
{
#ifdef PENSTOCK_EMULATE_AVX512
    return true; // a test build whose AVX-512 kernels are compiled to AVX2 instructions
#else
    const uint32_t need = CPUID7_AVX512F | CPUID7_AVX512DQ | CPUID7_AVX512BW | CPUID7_AVX512VL;
    uint32_t a, b, c, d;
    if (!has_avx2() || (saved_state() & XCR0_AVX512) != XCR0_AVX512)
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & need) == need &&
           (c & CPUID7_ECX_VNNI) != 0;
#endif
}

static bool has_scalar(void)
{
    return true;
}

status cpu_level_choose(const char *name, const cpu_level **level, error *failure)
{
    // Best first.
    static const struct {
        const cpu_level *level;
        bool (*present)(void);
    } levels[] = {
        { &cpu_level_avx512, has_avx512 },
        { &cpu_level_avx2, has_avx2 },
        { &cpu_level_scalar, has_scalar },
    };
    bool automatic = strcmp(name, "auto") == 0;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (!automatic && strcmp(name, levels[i].level->name) != 0)
            continue;
        if (levels[i].present()) {
            *level = levels[i].level;
            return STATUS_OK;
        }
        if (!automatic)
            return error_set(failure, STATUS_UNSUPPORTED, "level",
                             "level is \"%s\", which this CPU or its operating system lacks; "
                             "\"auto\" takes the best that it has",
                             name);
    }
    return error_set(failure, STATUS_BAD_CONFIG, "level",
                     "level is \"%s\"; it must be auto, scalar, avx2 or avx512", name);
}

cpu_tile_kernel cpu_level_kernel(const cpu_level *level, tensor_type type)
{
    switch (type) {
    case TENSOR_F32:
        return level->f32;
    case TENSOR_F16:
        return level->f16;
    case TENSOR_BF16:
        return level->bf16;
    case TENSOR_Q4_0:
        return level->q4_0;
    case TENSOR_Q4_1:
        return level->q4_1;
    case TENSOR_Q8_0:
        return level->q8_0;
    case TENSOR_Q5_0:
        return level->q5_0;
    case TENSOR_Q5_1:
        return level->q5_1;
    case TENSOR_Q4_K:
        return level->q4_k;
    case TENSOR_Q5_K:
        return level->q5_k;
    case TENSOR_Q6_K:
        return level->q6_k;
    case TENSOR_I8: // of caches only
    case TENSOR_F8_E4M3:
        break;
    }
    return NULL;
}
