#include "router/offload.h"

#include "base/queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct offload {
    queue *todo, *finished;
    http_watch *watch;
    model_encoders encoders;
    pthread_t thread;
    bool running;
    size_t jobs, jobs_max; // submitted and not done; the loop's
    atomic_bool ending;
};

static offload_job offload_end; // pushed to end the thread

static void *offload_run(void *context)
{
    offload *o = context;
    for (;;) {
        offload_job *job = queue_pop_wait(o->todo, 60000000);
        if (job == &offload_end)
            return NULL;
        if (!job)
            continue;
        if (!atomic_load(&o->ending))
            job->work(job->context, &o->encoders);
        CHECK(queue_push(o->finished, job) == STATUS_OK); // it has a place for every job
    }
}

static void on_finished(void *context)
{
    offload *o = context;
    offload_job *job = queue_pop(o->finished);
    if (!job)
        return;
    o->jobs--;
    job->done(job->context);
    free(job);
}

status offload_open(http_loop *loop, const models *served, size_t jobs_max, offload **opened,
                    error *failure)
{
    offload *o = calloc(1, sizeof *o);
    if (!o)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the helper thread");
    o->jobs_max = jobs_max;
    if (queue_open(jobs_max + 1, &o->todo) != STATUS_OK ||
        queue_open(jobs_max, &o->finished) != STATUS_OK ||
        model_encoders_open(served, &o->encoders) != STATUS_OK ||
        http_watch_open(loop, queue_event_fd(o->finished), on_finished, o, &o->watch) !=
            STATUS_OK ||
        pthread_create(&o->thread, NULL, offload_run, o) != 0) {
        offload_close(o);
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the helper thread");
    }
    o->running = true;
    *opened = o;
    return STATUS_OK;
}

void offload_close(offload *o)
{
    if (!o)
        return;
    if (o->running) {
        atomic_store(&o->ending, true);
        CHECK(queue_push(o->todo, &offload_end) == STATUS_OK);
        pthread_join(o->thread, NULL);
        while (o->jobs > 0)
            on_finished(o);
    }
    http_watch_close(o->watch);
    model_encoders_close(&o->encoders);
    if (o->todo)
        queue_close(o->todo);
    if (o->finished)
        queue_close(o->finished);
    free(o);
}

status offload_submit(offload *o, const offload_job *job)
{
    if (o->jobs == o->jobs_max)
        return STATUS_FULL;
    offload_job *copy = malloc(sizeof *copy);
    if (!copy)
        return STATUS_NO_MEMORY;
    *copy = *job;
    CHECK(queue_push(o->todo, copy) == STATUS_OK);
    o->jobs++;
    return STATUS_OK;
}
