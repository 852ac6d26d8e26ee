// build/simulation/penstock-simulation: many histories of a simulated cluster, each from its seed.
//
// Every seed lives in a process of its own, which starts from the same state: so a seed is replayed
// exactly, and a history in which programs are killed leaves nothing behind.
#include "cluster.h"
#include "size.h"

#include "harness/tiny_model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 64
#define SEED_SECONDS_MAX 60 // of processor time: a history that takes longer has an endless loop

typedef struct options {
    uint64_t seeds, first;
    long jobs;
    bool trace, until_bad;
    size_plan size; // workers 0: not asked for
} options;

typedef struct job_slot {
    pid_t pid;
    int pipe;
    uint64_t seed;
} job_slot;

static uint64_t totals[WORLD_COUNTS];

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: penstock-simulation [--seeds N] [--first SEED] [--jobs N] [--until-bad]\n"
            "       penstock-simulation --seed SEED [--trace]\n"
            "       penstock-simulation --size\n");
    return 2;
}

static bool options_read(options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--trace") == 0) {
            o->trace = true;
            continue;
        }
        if (strcmp(argv[i], "--size") == 0) {
            o->size = (size_plan){ 1000, 10000, 5 };
            continue;
        }
        if (strcmp(argv[i], "--until-bad") == 0) {
            o->until_bad = true;
            continue;
        }
        if (i + 1 == argc)
            return false;
        uint64_t value = strtoull(argv[i + 1], &end, 10);
        if (*end != 0)
            return false;
        if (strcmp(argv[i], "--seeds") == 0)
            o->seeds = value;
        else if (strcmp(argv[i], "--first") == 0)
            o->first = value;
        else if (strcmp(argv[i], "--jobs") == 0 && value >= 1 && value <= JOBS_MAX)
            o->jobs = (long)value;
        else if (strcmp(argv[i], "--seed") == 0) {
            o->first = value;
            o->seeds = 1;
        } else
            return false;
        i++;
    }
    return true;
}

static bool job_start(job_slot *j, uint64_t seed, const char *model, bool trace)
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct itimerval limit = { .it_value = { .tv_sec = SEED_SECONDS_MAX } };
        setitimer(ITIMER_PROF, &limit, NULL);
        cluster_live(seed, model, trace);
        ssize_t written = write(ends[1], world_counts, sizeof world_counts);
        _exit(written == (ssize_t)sizeof world_counts ? 0 : 1);
    }
    close(ends[1]);
    *j = (job_slot){ pid, ends[0], seed };
    return pid > 0;
}

// True: the history was good.
static bool job_end(job_slot *j, int code)
{
    uint64_t counts[WORLD_COUNTS];
    bool good = WIFEXITED(code) && WEXITSTATUS(code) == 0 &&
                read(j->pipe, counts, sizeof counts) == (ssize_t)sizeof counts;
    close(j->pipe);
    for (int i = 0; good && i < WORLD_COUNTS; i++)
        totals[i] += counts[i];
    if (WIFSIGNALED(code))
        fprintf(stderr, "seed %llu: %s\nagain: tests/simulation/run --seed %llu --trace\n",
                (unsigned long long)j->seed,
                WTERMSIG(code) == SIGPROF ? "HANGS" : strsignal(WTERMSIG(code)),
                (unsigned long long)j->seed);
    j->pid = 0;
    return good;
}

static uint64_t seeds_run(const options *o, const char *model)
{
    job_slot jobs[JOBS_MAX] = { 0 };
    uint64_t next = 0, bad = 0;
    for (long running = 0; running > 0 || next < (bad && o->until_bad ? 0 : o->seeds);) {
        for (long i = 0; i < o->jobs && next < o->seeds && !(bad && o->until_bad); i++)
            if (jobs[i].pid == 0 && job_start(&jobs[i], o->first + next, model, o->trace)) {
                next++;
                running++;
            }
        int code;
        pid_t pid = wait(&code);
        for (long i = 0; i < o->jobs; i++)
            if (jobs[i].pid == pid) {
                bad += !job_end(&jobs[i], code);
                running--;
            }
    }
    return bad;
}

static void report(const options *o, uint64_t bad, double seconds)
{
    printf("seeds %llu bad %llu seconds %.1f seeds_per_minute %.0f events_per_second %.0f\n",
           (unsigned long long)o->seeds, (unsigned long long)bad, seconds,
           (double)o->seeds * 60 / seconds, (double)totals[WORLD_EVENTS] / seconds);
    for (int i = 0; i < WORLD_COUNTS; i++)
        printf("%s%s %llu", i ? " " : "", world_count_names[i], (unsigned long long)totals[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    options o = { .seeds = 300, .first = 1, .jobs = sysconf(_SC_NPROCESSORS_ONLN) };
    if (!options_read(&o, argc, argv))
        return usage();
    o.jobs = o.jobs > JOBS_MAX ? JOBS_MAX : o.jobs;
    tiny_model small = tiny_model_default(1);
    char model[64];
    small.layers = 1;
    small.width = 32;
    small.heads = small.kv_heads = 1;
    small.head_size = 32;
    small.feed_forward = 32;
    tiny_model_temporary(&small, model);
    if (o.size.workers > 0) {
        int good = size_measure(&o.size, model);
        unlink(model);
        return good ? 0 : 1;
    }
    double begun = seconds_now();
    uint64_t bad = seeds_run(&o, model);
    report(&o, bad, seconds_now() - begun);
    unlink(model);
    return bad ? 1 : 0;
}
