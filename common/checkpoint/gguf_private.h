// What the GGUF files of this module share; nobody else includes it.
#pragma once

#include "checkpoint/gguf.h"

// One key. The value's bytes were walked at open, so readers need no bounds.
typedef struct gguf_entry {
    slice key;
    gguf_kind kind;
    const uint8_t *value;
} gguf_entry;

struct gguf {
    char *path;
    int descriptor; // -1 for memory
    const uint8_t *data;
    size_t size;
    uint32_t version;
    uint64_t entry_count;
    gguf_entry *entries;      // in the order of the file
    uint32_t *entries_by_key; // indices into entries, ascending by key
    uint64_t tensor_count;
    gguf_tensor *tensors;
    uint32_t *tensors_by_name;
    uint64_t alignment;
    uint64_t data_start; // offset of the data section
};

// The bytes that were not yet read, from `at` on.
typedef struct gguf_reader {
    const uint8_t *at;
    size_t left;
} gguf_reader;

bool gguf_take_u32(gguf_reader *r, uint32_t *value);
bool gguf_take_u64(gguf_reader *r, uint64_t *value);
bool gguf_take_string(gguf_reader *r, slice *value);
// Bytes of a fixed-size kind; 0 for strings, arrays and unknown kinds.
size_t gguf_kind_bytes(uint32_t kind);

// The two halves of the header after the counts. Both
// leave their tables in `file`, which owns them.
status gguf_read_entries(gguf *file, gguf_reader *r, error *failure);
status gguf_read_tensors(gguf *file, gguf_reader *r, error *failure);
// Sort `count` names for bsearch and refuse two that are equal. `what` is "key" or "tensor".
status gguf_sort_names(const gguf *file, const void *items, size_t stride, uint64_t count,
                       const char *what, uint32_t **sorted, error *failure);
// The index of `name`, or -1.
int64_t gguf_find_name(const void *items, size_t stride, const uint32_t *sorted, uint64_t count,
                       slice name);

// A failure of this file: STATUS_BAD_FILE, "PATH: " in front.
status gguf_fail(const gguf *file, error *failure, slice name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// For "%.*s" of names from a file: at most 64 bytes are shown.
int gguf_shown(slice name);
