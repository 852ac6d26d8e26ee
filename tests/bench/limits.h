// The machine's limits, for reading the engine's figures beside them. See limits.c.
#pragma once

typedef struct bench_limits {
    double read_gb_per_s; // all threads reading DRAM; 0: memory was short
    double
        int8_gop_per_s; // multiply and add counted as two operations; 0: not measured on this CPU
    const char *instruction; // that gives the second figure
} bench_limits;

// Takes a second or two and 256 MiB. Run it while nothing else runs.
bench_limits bench_limits_measure(int threads);
