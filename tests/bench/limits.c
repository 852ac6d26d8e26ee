// The machine's limits, measured in the same run as the engine: how fast all threads together read
// DRAM, and how fast they multiply and add 8-bit integers. Every figure of the engine is read
// beside these two.
#include "limits.h"

#include "bench.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define THREADS_MAX 256
#define REPEATS 5
#define READ_BYTES                                                                                 \
    ((size_t)256 << 20) // far above any last-level cache of a machine that this runs on
#define CHAINS 12       // independent instructions: more than latency times throughput
#define ROUNDS 1500000L

typedef struct job {
    void (*work)(struct job *);
    pthread_barrier_t *barrier;
    const uint64_t *data; // this thread's part
    size_t words;
    uint64_t sink;
    double seconds[REPEATS];
} job;

static void read_work(job *j)
{
    uint64_t sums[8] = { 0 };
    for (size_t i = 0; i + 8 <= j->words; i += 8)
        for (int k = 0; k < 8; k++)
            sums[k] |= j->data[i + k];
    for (int k = 0; k < 8; k++)
        j->sink |= sums[k];
}

#define CHAIN(instruction, width)                                                                  \
    for (long i = 0; i < ROUNDS; i++)                                                              \
    __asm__ volatile(                                                                              \
        instruction                                                                                \
        " %%" width "14,%%" width "15,%%" width "0\n\t" instruction " %%" width "14,%%" width      \
        "15,%%" width "1\n\t" instruction " %%" width "14,%%" width "15,%%" width                  \
        "2\n\t" instruction " %%" width "14,%%" width "15,%%" width "3\n\t" instruction            \
        " %%" width "14,%%" width "15,%%" width "4\n\t" instruction " %%" width "14,%%" width      \
        "15,%%" width "5\n\t" instruction " %%" width "14,%%" width "15,%%" width                  \
        "6\n\t" instruction " %%" width "14,%%" width "15,%%" width "7\n\t" instruction            \
        " %%" width "14,%%" width "15,%%" width "8\n\t" instruction " %%" width "14,%%" width      \
        "15,%%" width "9\n\t" instruction " %%" width "14,%%" width "15,%%" width                  \
        "10\n\t" instruction " %%" width "14,%%" width "15,%%" width "11\n\t" ::                   \
            : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",      \
              "xmm10", "xmm11", "xmm14", "xmm15")

#if defined(__x86_64__)
static void vnni512_work(job *j)
{
    (void)j;
    CHAIN("vpdpbusd", "zmm");
}

static void maddubs256_work(job *j)
{
    (void)j;
    CHAIN("vpmaddubsw", "ymm");
}

// SSE2 has no 8-bit multiply: 16-bit multiply-add is what the baseline gives.
static void madd128_work(job *j)
{
    (void)j;
    for (long i = 0; i < ROUNDS; i++)
        __asm__ volatile("pmaddwd %%xmm15,%%xmm0\n\tpmaddwd %%xmm15,%%xmm1\n\t"
                         "pmaddwd %%xmm15,%%xmm2\n\tpmaddwd %%xmm15,%%xmm3\n\t"
                         "pmaddwd %%xmm15,%%xmm4\n\tpmaddwd %%xmm15,%%xmm5\n\t"
                         "pmaddwd %%xmm15,%%xmm6\n\tpmaddwd %%xmm15,%%xmm7\n\t"
                         "pmaddwd %%xmm15,%%xmm8\n\tpmaddwd %%xmm15,%%xmm9\n\t"
                         "pmaddwd %%xmm15,%%xmm10\n\tpmaddwd %%xmm15,%%xmm11\n\t" ::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                               "xmm8", "xmm9", "xmm10", "xmm11");
}
#endif

static void *job_main(void *argument)
{
    job *j = argument;
    for (int i = 0; i < REPEATS; i++) {
        pthread_barrier_wait(j->barrier);
        double begun = bench_now();
        j->work(j);
        pthread_barrier_wait(j->barrier);
        j->seconds[i] = bench_now() - begun;
    }
    return NULL;
}

// The shortest time in which `threads` threads all finish `work`; 0 where they cannot be started.
static double threads_time(void (*work)(job *), int threads, const uint64_t *data, size_t words)
{
    static job jobs[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    size_t part = words / (size_t)threads;
    for (int i = 0; i < threads; i++) {
        jobs[i] = (job){ .work = work,
                         .barrier = &barrier,
                         .data = data ? data + (size_t)i * part : NULL,
                         .words = part };
        if (pthread_create(&ids[i], NULL, job_main, &jobs[i]) != 0)
            abort(); // the barrier's count is fixed: those that wait can never go on
    }
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&barrier);
    return bench_percentile(jobs[0].seconds, REPEATS, 0); // a limit is the best that was seen
}

bench_limits bench_limits_measure(int threads)
{
    bench_limits limits = { .instruction = "none" };
    threads = threads < 1 ? 1 : threads > THREADS_MAX ? THREADS_MAX : threads;
    void *data = mmap(NULL, READ_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data != MAP_FAILED) {
        madvise(data, READ_BYTES, MADV_HUGEPAGE);
        memset(data, 1, READ_BYTES);
        double seconds = threads_time(read_work, threads, data, READ_BYTES / sizeof(uint64_t));
        limits.read_gb_per_s = (double)READ_BYTES / seconds / 1e9;
        munmap(data, READ_BYTES);
    }
#if defined(__x86_64__)
    void (*work)(job *) = madd128_work;
    int operations = 16;
    limits.instruction = "pmaddwd 128";
    if (__builtin_cpu_supports("avx2")) {
        work = maddubs256_work;
        operations = 64;
        limits.instruction = "vpmaddubsw 256";
    }
    if (__builtin_cpu_supports("avx512vnni")) {
        work = vnni512_work;
        operations = 128;
        limits.instruction = "vpdpbusd 512";
    }
    double total = (double)CHAINS * ROUNDS * operations * threads;
    limits.int8_gop_per_s = total / threads_time(work, threads, NULL, 0) / 1e9;
#endif
    return limits;
}
