// The CPU backend: opening, capabilities, memory and activations, and its table.
#include "compute/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Floats of one thread's attention scratch: the kernel's own, then the state of one split and of
// all splits before it.
#define ATTENTION_FLOATS (CPU_ATTENTION_SCRATCH + 2 * CPU_ATTENTION_STATE)
#define OUT_FLOATS (CPU_CHUNK_TILES * CPU_ROW_BLOCK_MAX * CPU_TILE_ROWS_MAX)

static size_t panel_bytes(int rows, int columns)
{
    // Two panels are added so that a kernel of 8 rows may read past a last panel of 4.
    size_t panels = ((size_t)rows + CPU_PANEL_ROWS - 1) / CPU_PANEL_ROWS + 2;
    return panels * (((size_t)columns + CPU_BLOCK - 1) / CPU_BLOCK) * sizeof(cpu_panel_block);
}

static size_t input_bytes(int rows, int columns)
{
    return (size_t)rows * (((size_t)columns + 15) / 16 * 16) * sizeof(float);
}

// Of one thread.
static size_t wide_bytes(const backend *b, int columns)
{
    size_t blocks = ((size_t)columns + CPU_BLOCK - 1) / CPU_BLOCK;
    return b->level->wide == NULL ? 0 : 2 * blocks * CPU_WIDE_BLOCK_BYTES;
}

static size_t sample_bytes(int columns)
{
    return (((size_t)columns + 15) / 16 * 16) * (2 * sizeof(float) + sizeof(cpu_sort_entry));
}

static size_t fixed_scratch_bytes(void)
{
    return panel_bytes(CPU_PANEL_ROWS, CPU_LOCAL_INPUTS) +
           (CPU_LOCAL_INPUTS + 2 * OUT_FLOATS + ATTENTION_FLOATS) * sizeof(float);
}

static bool open_scratch(cpu_scratch *s)
{
    uint8_t *at = cpu_memory_take(fixed_scratch_bytes());
    if (at == NULL)
        return false;
    s->panel = (cpu_panel_block *)at;
    s->x = (float *)(at + panel_bytes(CPU_PANEL_ROWS, CPU_LOCAL_INPUTS));
    s->out = s->x + CPU_LOCAL_INPUTS;
    s->up = s->out + OUT_FLOATS;
    s->attention = s->up + OUT_FLOATS;
    return true;
}

static void cpu_close(backend *b)
{
    if (b == NULL)
        return;
    cpu_threads_close(b->threads);
    CHECK(b->arenas == NULL);
    cpu_memory_release(b->panels, panel_bytes(b->input_rows, b->input_columns));
    cpu_memory_release(b->inputs, input_bytes(b->input_rows, b->input_columns));
    for (int i = 0; b->scratch != NULL && i < b->caps.threads; i++) {
        cpu_memory_release(b->scratch[i].panel, fixed_scratch_bytes());
        cpu_memory_release(b->scratch[i].wide, wide_bytes(b, b->wide_columns));
        cpu_memory_release(b->scratch[i].entries, sample_bytes(b->sample_columns));
    }
    free(b->scratch);
    if (b->plan != NULL)
        cpu_memory_release(b->plan->partials, CPU_PARTIAL_FLOATS * sizeof(float));
    cpu_memory_release(b->plan, sizeof *b->plan);
    free(b);
}

// Threads are pinned where somebody named cores. Without that they are left to the system: a quota
// gives time, not cores, and two workers of a few threads each must not meet on core 0.
static status open_threads(backend *b, const backend_settings *settings, error *failure)
{
    int cores[CPU_THREADS_MAX], core_count = 0, available = cpu_threads_available();
    if (settings->cores != NULL && settings->cores[0] != '\0') {
        status result =
            cpu_threads_parse_cores(settings->cores, cores, CPU_THREADS_MAX, &core_count, failure);
        if (result != STATUS_OK)
            return result;
        available = core_count < available ? core_count : available;
    }
    int count = settings->threads > 0 ? settings->threads : available;
    if (count > CPU_THREADS_MAX)
        return error_set(failure, STATUS_BAD_CONFIG, "threads",
                         "threads is %d; at most %d are possible", count, CPU_THREADS_MAX);
    int more = settings->borrowed_count;
    more = count + more > CPU_THREADS_MAX ? CPU_THREADS_MAX - count : more;
    b->caps.threads = count + more;
    status result = cpu_threads_open(count + more, cores, core_count, &b->threads, failure);
    for (int i = 0; result == STATUS_OK && i < more; i++)
        cpu_threads_borrow(b->threads, count + i, settings->borrowed[i].core,
                           settings->borrowed[i].busy);
    return result;
}

static status cpu_open(const backend_settings *settings, backend **opened, error *failure)
{
    status result;
    backend *b = calloc(1, sizeof *b);
    if (b == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the CPU backend");
    TRY(cpu_level_choose(settings->level == NULL ? "auto" : settings->level, &b->level, failure));
    TRY(open_threads(b, settings, failure));
    b->scratch = calloc((size_t)b->caps.threads, sizeof *b->scratch);
    b->plan = cpu_memory_take(sizeof *b->plan);
    bool complete = b->scratch != NULL && b->plan != NULL;
    if (complete) {
        b->plan->partials = cpu_memory_take(CPU_PARTIAL_FLOATS * sizeof(float));
        complete = b->plan->partials != NULL;
    }
    for (int i = 0; complete && i < b->caps.threads; i++)
        complete = open_scratch(&b->scratch[i]);
    if (!complete) {
        TRY(error_set(failure, STATUS_NO_MEMORY, "threads",
                      "no memory for the scratch space of %d compute threads", b->caps.threads));
    }
    snprintf(b->caps.name, sizeof b->caps.name, "cpu");
    snprintf(b->caps.level, sizeof b->caps.level, "%s", b->level->name);
    snprintf(b->caps.numeric_name, sizeof b->caps.numeric_name, "cpu/%s/%d", b->level->name,
             CPU_RECIPE_VERSION);
    b->caps.host_memory = true;
    *opened = b;
    return STATUS_OK;
fail:
    cpu_close(b);
    return result;
}

static void cpu_caps(const backend *b, backend_caps *caps)
{
    *caps = b->caps;
}

static status cpu_memory_open(backend *b, size_t size, backend_memory_kind kind,
                              backend_memory *memory)
{
    (void)b;
    void *data = cpu_memory_take(size == 0 ? 1 : size);
    if (data == NULL)
        return STATUS_NO_MEMORY;
    *memory = (backend_memory){ data, size, kind };
    return STATUS_OK;
}

static void cpu_memory_close(backend *b, backend_memory *memory)
{
    (void)b;
    cpu_memory_release(memory->data, memory->size == 0 ? 1 : memory->size);
    *memory = (backend_memory){ 0 };
}

static status grow_inputs(backend *b, int rows, int columns)
{
    rows = rows > b->input_rows ? rows : b->input_rows;
    columns = columns > b->input_columns ? columns : b->input_columns;
    if ((rows == b->input_rows && columns == b->input_columns))
        return STATUS_OK;
    cpu_panel_block *panels = NULL;
    float *inputs = NULL;
    if (rows > 0 && columns > 0) {
        panels = cpu_memory_take(panel_bytes(rows, columns));
        inputs = cpu_memory_take(input_bytes(rows, columns));
        if (panels == NULL || inputs == NULL) {
            cpu_memory_release(panels, panel_bytes(rows, columns));
            cpu_memory_release(inputs, input_bytes(rows, columns));
            return STATUS_NO_MEMORY;
        }
    }
    cpu_memory_release(b->panels, panel_bytes(b->input_rows, b->input_columns));
    cpu_memory_release(b->inputs, input_bytes(b->input_rows, b->input_columns));
    b->panels = panels;
    b->inputs = inputs;
    b->input_rows = rows;
    b->input_columns = columns;
    return STATUS_OK;
}

static status grow_wide(backend *b, int columns)
{
    if (columns <= b->wide_columns || b->level->wide == NULL)
        return STATUS_OK;
    for (int i = 0; i < b->caps.threads; i++) {
        cpu_memory_release(b->scratch[i].wide, wide_bytes(b, b->wide_columns));
        b->scratch[i].wide = NULL;
    }
    b->wide_columns = columns;
    for (int i = 0; i < b->caps.threads; i++) {
        b->scratch[i].wide = cpu_memory_take(wide_bytes(b, columns));
        if (b->scratch[i].wide == NULL)
            return STATUS_NO_MEMORY;
    }
    return STATUS_OK;
}

static status grow_samples(backend *b, int columns)
{
    if (columns <= b->sample_columns)
        return STATUS_OK;
    size_t wide = ((size_t)columns + 15) / 16 * 16;
    for (int i = 0; i < b->caps.threads; i++) {
        cpu_scratch *s = &b->scratch[i];
        cpu_sort_entry *entries = cpu_memory_take(sample_bytes(columns));
        if (entries ==
            NULL) { // the threads before this one have more than they need, which is harmless
            for (int j = 0; j < b->caps.threads; j++) {
                cpu_memory_release(b->scratch[j].entries,
                                   sample_bytes(j < i ? columns : b->sample_columns));
                b->scratch[j].entries = NULL;
            }
            b->sample_columns = 0;
            return STATUS_NO_MEMORY;
        }
        cpu_memory_release(s->entries, sample_bytes(b->sample_columns));
        s->entries = entries;
        s->logits = (float *)(entries + wide);
        s->weights = s->logits + wide;
    }
    b->sample_columns = columns;
    return STATUS_OK;
}

status cpu_backend_grow(backend *b, int rows, int columns, int sample_columns)
{
    status result = grow_inputs(b, rows, columns);
    if (result == STATUS_OK)
        result = grow_wide(b, columns);
    return result == STATUS_OK ? grow_samples(b, sample_columns) : result;
}

status cpu_activation_open(backend *b, int rows, int columns, backend_activation **opened)
{
    CHECK(rows > 0 && columns > 0);
    backend_activation *a = calloc(1, sizeof *a);
    if (a == NULL)
        return STATUS_NO_MEMORY;
    *a = (backend_activation){ b, rows, columns, ((int64_t)columns + 15) / 16 * 16, NULL };
    a->data = cpu_memory_take((size_t)rows * (size_t)a->stride * sizeof(float));
    if (a->data == NULL || cpu_backend_grow(b, rows, 0, columns) != STATUS_OK) {
        cpu_activation_close(a);
        return STATUS_NO_MEMORY;
    }
    *opened = a;
    return STATUS_OK;
}

void cpu_activation_close(backend_activation *a)
{
    if (a == NULL)
        return;
    cpu_memory_release(a->data, (size_t)a->rows * (size_t)a->stride * sizeof(float));
    free(a);
}

const backend_table backend_cpu = {
    .open = cpu_open,
    .close = cpu_close,
    .caps = cpu_caps,
    .memory_open = cpu_memory_open,
    .memory_close = cpu_memory_close,
    .queue_open = cpu_queue_open,
    .queue_close = cpu_queue_close,
    .queue_submit = cpu_queue_submit,
    .queue_done = cpu_queue_done,
    .queue_wait = cpu_queue_wait,
    .copy = cpu_copy,
    .signal = cpu_signal,
    .step_begin = cpu_step_begin,
    .step_end = cpu_step_end,
    .weight_load = cpu_weight_load,
    .weight_close = cpu_weight_close,
    .weight_bytes = cpu_weight_bytes,
    .activation_open = cpu_activation_open,
    .activation_close = cpu_activation_close,
    .activation_read = cpu_activation_read,
    .activation_write = cpu_activation_write,
    .embed = cpu_embed,
    .gather = cpu_gather,
    .linear = cpu_linear,
    .norm = cpu_norm,
    .kv_layout = cpu_kv_layout,
    .rope_store = cpu_rope_store,
    .attention_plan = cpu_attention_plan,
    .attention = cpu_attention,
    .kv_copy = cpu_kv_copy,
    .sample = cpu_sample,
    .all_reduce = cpu_all_reduce,
};
