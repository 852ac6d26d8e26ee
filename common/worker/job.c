#include "worker/job.h"

#include <stdlib.h>
#include <string.h>

#define JOBS_REMEMBERED 2048u

// A few hundred jobs at most: looking at all of them costs less than a microsecond, a step
// thousands.
struct job_table {
    handoff_key came[JOBS_REMEMBERED]; // the tickets that came last, as a ring
    uint32_t came_count;
    int32_t capacity, count, pages;
    job **list;    // [capacity], the first `count` are live, in order of arrival
    job *jobs;     // [capacity]
    int32_t *held; // [capacity][pages]
};

status job_table_open(int32_t capacity, int32_t pages, job_table **opened)
{
    CHECK(capacity > 0 && pages > 0);
    job_table *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return STATUS_NO_MEMORY;
    t->capacity = capacity;
    t->pages = pages;
    t->list = calloc((size_t)capacity, sizeof(t->list[0]));
    t->jobs = calloc((size_t)capacity, sizeof(t->jobs[0]));
    t->held = calloc((size_t)capacity * (size_t)pages, sizeof(t->held[0]));
    if (t->list == NULL || t->jobs == NULL || t->held == NULL) {
        job_table_close(t);
        return STATUS_NO_MEMORY;
    }
    for (int32_t i = 0; i < capacity; i++)
        t->list[i] = &t->jobs[i];
    *opened = t;
    return STATUS_OK;
}

void job_table_close(job_table *t)
{
    if (t == NULL)
        return;
    for (int32_t i = 0; i < t->count; i++)
        message_free(t->list[i]->message);
    for (int32_t i = 0; i < t->count; i++)
        guide_release(t->list[i]->guide);
    free(t->list);
    free(t->jobs);
    free(t->held);
    free(t);
}

int32_t job_count(const job_table *t)
{
    return t->count;
}

job *job_at(const job_table *t, int32_t index)
{
    CHECK(index >= 0 && index < t->count);
    return t->list[index];
}

job *job_find(const job_table *t, const handoff_key *key, bool any_attempt)
{
    for (int32_t i = 0; i < t->count; i++) {
        job *j = t->list[i];
        if (j->key.number != key->number || j->key.router != key->router)
            continue;
        if (any_attempt ? j->state != JOB_ENDING : j->key.attempt == key->attempt)
            return j;
    }
    return NULL;
}

bool job_came_before(job_table *t, const handoff_key *key)
{
    uint32_t kept = t->came_count < JOBS_REMEMBERED ? t->came_count : JOBS_REMEMBERED;
    for (uint32_t i = 0; i < kept; i++) {
        const handoff_key *k = &t->came[i];
        if (k->number == key->number && k->router == key->router && k->attempt >= key->attempt)
            return true;
    }
    t->came[t->came_count++ % JOBS_REMEMBERED] = *key;
    return false;
}

job *job_add(job_table *t, const handoff_key *key)
{
    if (t->count == t->capacity)
        return NULL;
    // The list holds every slot; those behind `count` are free.
    job *j = t->list[t->count++];
    *j = (job){ .key = *key, .next_token = -1, .guess_slot = -1, .tried_open = -1 };
    j->held = t->held + (size_t)(j - t->jobs) * (size_t)t->pages;
    return j;
}

void job_remove(job_table *t, job *j)
{
    int32_t at = 0;
    while (at < t->count && t->list[at] != j)
        at++;
    CHECK(at < t->count && j->sequence == NULL && j->guide == NULL && !j->transfer &&
          j->held_count == 0);
    message_free(j->message);
    j->message = NULL;
    t->count--;
    memmove(&t->list[at], &t->list[at + 1], (size_t)(t->count - at) * sizeof(t->list[0]));
    t->list[t->count] = j;
}

int32_t job_count_in(const job_table *t, job_state state)
{
    int32_t count = 0;
    for (int32_t i = 0; i < t->count; i++)
        count += t->list[i]->state == state;
    return count;
}
