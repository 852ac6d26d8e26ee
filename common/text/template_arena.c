#include "text/template_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHUNK_SIZE = 64 * 1024, ALIGNMENT = 16 };

struct jinja_chunk {
    jinja_chunk *next;
    size_t size, used;
    _Alignas(ALIGNMENT) char data[];
};

static jinja_chunk *chunk_add(jinja_task *task, size_t size)
{
    // Chunks grow with what was used, so that a large render needs few of them.
    size_t room = task->memory_used / 4 > CHUNK_SIZE ? task->memory_used / 4 : CHUNK_SIZE;
    if (room < size)
        room = size;
    size_t left = task->memory_limit - task->memory_used;
    if (left < size)
        jinja_fail(task, TEMPLATE_FAULT_LIMIT, "it needs more than %zu bytes of memory",
                   task->memory_limit);
    if (room > left)
        room = left & ~(size_t)(ALIGNMENT - 1);
    if (room < size)
        room = size;
    jinja_chunk *chunk = malloc(sizeof *chunk + room);
    if (!chunk) {
        task->code = error_set(task->failure, STATUS_NO_MEMORY, "", "no memory for the template");
        longjmp(task->landing, 1);
    }
    *chunk = (jinja_chunk){ .next = task->chunks, .size = room };
    task->chunks = chunk;
    task->memory_used += room;
    return chunk;
}

void *jinja_allocate(jinja_task *task, size_t size)
{
    if (size > task->memory_limit)
        jinja_fail(task, TEMPLATE_FAULT_LIMIT, "it needs more than %zu bytes of memory",
                   task->memory_limit);
    size = (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    jinja_chunk *chunk = task->chunks;
    if (!chunk || chunk->size - chunk->used < size)
        chunk = chunk_add(task, size);
    void *data = chunk->data + chunk->used;
    chunk->used += size;
    return data;
}

void *jinja_resize(jinja_task *task, void *data, size_t old_size, size_t new_size)
{
    old_size = (old_size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    size_t rounded = (new_size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    jinja_chunk *chunk = task->chunks;
    if (data && chunk && (char *)data + old_size == chunk->data + chunk->used &&
        chunk->size - chunk->used >= rounded - old_size) {
        chunk->used += rounded - old_size;
        return data;
    }
    void *moved = jinja_allocate(task, new_size);
    if (data)
        memcpy(moved, data, old_size < new_size ? old_size : new_size);
    return moved;
}

void jinja_task_close(jinja_task *task)
{
    while (task->chunks) {
        jinja_chunk *next = task->chunks->next;
        free(task->chunks);
        task->chunks = next;
    }
    task->memory_used = 0;
}

_Noreturn void jinja_fail(jinja_task *task, template_fault fault, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    task->fault = fault;
    task->code = fault == TEMPLATE_FAULT_LIMIT ? STATUS_TOO_LARGE : STATUS_INVALID;
    if (fault == TEMPLATE_FAULT_RAISED)
        error_set(task->failure, task->code, "", "%s", text);
    else
        error_set(task->failure, task->code, "", "line %u: %s", task->line, text);
    longjmp(task->landing, 1);
}
