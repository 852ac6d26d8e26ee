// A GGUF file as a model: loaded and run for two tokens, or refused with a sentence. What is taken
// must be justified by the file: the harness's memory limit is the judge.
#include "model/model.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define POSITIONS 64
#define PAGE_BYTES_MAX (1 << 20)

static backend *device;
static backend_queue *queue;

static void model_run(model *m, const kv_layout *layout)
{
    const backend_table *t = &backend_cpu;
    kv_memory kv = { .layout = *layout, .pages = 1 };
    backend_memory arrays;
    CHECK(t->memory_open(device, (size_t)layout->page_bytes, BACKEND_MEMORY_DEVICE, &kv.memory) ==
          STATUS_OK);
    CHECK(t->memory_open(device, 64 * sizeof(int32_t), BACKEND_MEMORY_PINNED, &arrays) ==
          STATUS_OK);
    int32_t *a = arrays.data;
    a[0] = model_config_of(m)->vocabulary - 1; // tokens 0..1, of which the second is 0
    a[3] = 1;                                  // positions 2..3; sequences of the rows 4..5 are 0
    a[7] = 2;                                  // first_row 6..7
    a[8] = 2;                                  // lengths; 9 is the page table; 10 the logits' row
    a[10] = 1;
    backend_batch batch = { .rows = 2,
                            .sequences = 1,
                            .logit_rows = 1,
                            .tokens = a,
                            .positions = a + 2,
                            .row_sequence = a + 4,
                            .first_row = a + 6,
                            .lengths = a + 8,
                            .tables = a + 9,
                            .table_stride = 1,
                            .logit_index = a + 10 };
    model_forward(m, queue, &kv, &batch);
    t->queue_wait(queue, t->queue_submit(queue));
    t->memory_close(device, &kv.memory);
    t->memory_close(device, &arrays);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const backend_settings settings = { .level = "auto", .threads = 1, .cores = "" };
    const model_limits limits = { 4, 2, POSITIONS };
    gguf *file = NULL;
    error failure = { 0 };
    model_config config;
    kv_layout layout;
    model *m = NULL;
    if (!device) {
        CHECK(backend_cpu.open(&settings, &device, &failure) == STATUS_OK);
        CHECK(backend_cpu.queue_open(device, &queue) == STATUS_OK);
    }
    if (gguf_open_memory(data, size, "fuzz.gguf", &file, &failure) != STATUS_OK)
        return 0;
    status result = model_config_read(file, &config, &failure);
    if (result == STATUS_OK)
        result = model_open(file, &config, &limits, &backend_cpu, device, &m, &failure);
    if (result != STATUS_OK)
        CHECK(failure.text[0] != 0);
    else if (backend_cpu.kv_layout(device, TENSOR_F16, POSITIONS, config.layers, config.kv_heads,
                                   config.head_size, &layout, &failure) == STATUS_OK &&
             layout.page_bytes <= PAGE_BYTES_MAX)
        model_run(m, &layout);
    model_close(m);
    gguf_close(file);
    return 0;
}
