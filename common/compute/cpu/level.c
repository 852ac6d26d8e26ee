// Which instruction set to use: asked from the CPU and the system once, at open.
#include "compute/cpu/cpu.h"

#include <string.h>

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
    if (strcmp(name, "avx2") == 0 || strcmp(name, "avx512") == 0)
        return error_set(failure, STATUS_UNSUPPORTED, "level",
                         "level is \"%s\", which this build lacks", name);
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
    }
    return NULL;
}
