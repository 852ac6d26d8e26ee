// Memory of the CPU backend: zeroed, aligned regions, and arenas that many weights share so that
// each of them sits in 2 MiB pages without wasting one.
#include "compute/cpu/cpu.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define ARENA_BYTES ((size_t)32 << 20)

struct cpu_arena {
    cpu_arena *next;
    uint8_t *data;
    size_t size, used;
    int pieces;
};

static size_t mapped_size(size_t size)
{
    size_t unit = size >= HUGE_BYTES ? HUGE_BYTES : 4096;
    return (size + unit - 1) / unit * unit;
}

// Map more than is needed where big pages are wanted, and give back what lies outside the
// alignment.
void *cpu_memory_take(size_t size)
{
    if (size == 0 || size > SIZE_MAX / 2)
        return NULL;
    size = mapped_size(size);
    bool huge = size >= HUGE_BYTES;
    size_t whole = huge ? size + HUGE_BYTES : size;
    uint8_t *raw = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    if (!huge)
        return raw;
    size_t before = (HUGE_BYTES - (uintptr_t)raw % HUGE_BYTES) % HUGE_BYTES;
    if (before != 0)
        munmap(raw, before);
    if (before != HUGE_BYTES)
        munmap(raw + before + size, HUGE_BYTES - before);
    // Only advice: a system without huge pages is slower, not wrong.
    (void)madvise(raw + before, size, MADV_HUGEPAGE);
    return raw + before;
}

void cpu_memory_release(void *data, size_t size)
{
    if (data != NULL)
        munmap(data, mapped_size(size));
}

void *cpu_arena_take(backend *b, size_t size, cpu_arena **arena)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + 63) / 64 * 64;
    cpu_arena *a = b->arenas;
    if (a == NULL || a->size - a->used < size) {
        a = calloc(1, sizeof *a);
        if (a == NULL)
            return NULL;
        a->size = size > ARENA_BYTES ? mapped_size(size) : ARENA_BYTES;
        a->data = cpu_memory_take(a->size);
        if (a->data == NULL) {
            free(a);
            return NULL;
        }
        a->next = b->arenas;
        b->arenas = a;
    }
    void *piece = a->data + a->used;
    a->used += size;
    a->pieces++;
    *arena = a;
    return piece;
}

void cpu_arena_release(backend *b, cpu_arena *arena)
{
    if (--arena->pieces > 0)
        return;
    cpu_arena **link = &b->arenas;
    while (*link != arena)
        link = &(*link)->next;
    *link = arena->next;
    cpu_memory_release(arena->data, arena->size);
    free(arena);
}
