#include "text/merge.h"

#include <stdlib.h>

// Symbols that a work keeps between texts (20 bytes each, and 16 for each candidate).
#define KEPT_COUNT ((size_t)1 << 16)

void merge_work_close(merge_work *work)
{
    free(work->symbols);
    free(work->heap);
    *work = (merge_work){ 0 };
}

void merge_clear(merge_work *work)
{
    if (work->capacity > KEPT_COUNT)
        merge_work_close(work);
    work->count = 0;
    work->heap_count = 0;
}

static bool grow(void **items, size_t *capacity, size_t size)
{
    size_t wanted = *capacity ? *capacity * 2 : 64;
    void *grown = realloc(*items, wanted * size);
    if (grown == NULL)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

bool merge_append(merge_work *work, int32_t id, uint32_t start, uint32_t length)
{
    if (work->count == work->capacity &&
        !grow((void **)&work->symbols, &work->capacity, sizeof(work->symbols[0])))
        return false;
    int32_t index = (int32_t)work->count;
    if (index > 0)
        work->symbols[index - 1].next = index;
    work->symbols[work->count++] = (merge_symbol){ id, start, length, index - 1, -1 };
    return true;
}

// The heap has four children a node: a level less for each two of a binary one, and the children
// share a cache line, which is what a long run of one letter costs.
static bool heap_push(merge_work *work, merge_candidate candidate)
{
    if (work->heap_count == work->heap_capacity &&
        !grow((void **)&work->heap, &work->heap_capacity, sizeof(work->heap[0])))
        return false;
    merge_candidate *heap = work->heap;
    size_t at = work->heap_count++;
    while (at > 0 && heap[(at - 1) / 4].order > candidate.order) {
        heap[at] = heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    heap[at] = candidate;
    return true;
}

static merge_candidate heap_pop(merge_work *work)
{
    merge_candidate *heap = work->heap, first = heap[0], last = heap[--work->heap_count];
    size_t at = 0, count = work->heap_count;
    for (size_t child; (child = 4 * at + 1) < count;) {
        size_t least = child, end = child + 4 < count ? child + 4 : count;
        for (size_t i = child + 1; i < end; i++)
            if (heap[i].order < heap[least].order)
                least = i;
        if (heap[least].order >= last.order)
            break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = last;
    return first;
}

static bool offer(merge_work *work, int32_t left, merge_pair pair, const void *context)
{
    const merge_symbol *a = &work->symbols[left], *b = &work->symbols[a->next];
    uint32_t rank;
    int32_t id;
    if (!pair(context, a, b, &rank, &id))
        return true;
    merge_candidate candidate = { (uint64_t)rank << 32 | (uint32_t)left, a->length + b->length,
                                  id };
    return heap_push(work, candidate);
}

bool merge_run(merge_work *work, merge_pair pair, const void *context)
{
    merge_symbol *symbols = work->symbols;
    for (size_t i = 0; i + 1 < work->count; i++)
        if (!offer(work, (int32_t)i, pair, context))
            return false;
    while (work->heap_count > 0) {
        merge_candidate best = heap_pop(work);
        int32_t index = (int32_t)(uint32_t)best.order;
        merge_symbol *left = &symbols[index];
        // Symbols only grow, so the pair is the one that was offered if its length is.
        if (left->length == 0 || left->next < 0 ||
            left->length + symbols[left->next].length != best.length)
            continue;
        merge_symbol *right = &symbols[left->next];
        left->id = best.id;
        left->length = best.length;
        left->next = right->next;
        right->length = 0;
        if (left->next >= 0) {
            symbols[left->next].previous = index;
            if (!offer(work, index, pair, context))
                return false;
        }
        if (left->previous >= 0 && !offer(work, left->previous, pair, context))
            return false;
    }
    return true;
}
