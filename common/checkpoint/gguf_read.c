#include "checkpoint/gguf_private.h"

#include <stdlib.h>

#define KEY_BYTES_MAX 1024
#define TENSOR_NAME_BYTES_MAX 64
// Arrays of arrays are in the specification; no file
// is known to use them, so a few levels are plenty.
#define ARRAY_DEPTH_MAX 4
// The shortest key (8 bytes of length, 1 of name, 4
// of kind, 1 of value) and the shortest tensor info.
#define ENTRY_BYTES_MIN 14
#define TENSOR_BYTES_MIN 33

static bool name_is_clean(slice name)
{
    for (size_t i = 0; i < name.size; i++) {
        unsigned char byte = (unsigned char)name.data[i];
        if (byte < 0x20 || byte == 0x7f)
            return false;
    }
    return true;
}

// Step over one value; false where it ends after the file does or is of no known kind.
static bool skip_value(gguf_reader *r, uint32_t kind, int depth)
{
    slice ignored;
    uint64_t count;
    uint32_t element;
    size_t bytes = gguf_kind_bytes(kind);
    if (kind == GGUF_STRING)
        return gguf_take_string(r, &ignored);
    if (kind != GGUF_ARRAY) {
        if (bytes == 0 || bytes > r->left)
            return false;
        r->at += bytes;
        r->left -= bytes;
        return true;
    }
    if (depth == ARRAY_DEPTH_MAX || !gguf_take_u32(r, &element) || !gguf_take_u64(r, &count) ||
        element >= GGUF_KIND_COUNT)
        return false;
    bytes = gguf_kind_bytes(element);
    if (bytes != 0) {
        if (count > r->left / bytes)
            return false;
        r->at += count * bytes;
        r->left -= count * bytes;
        return true;
    }
    for (uint64_t i = 0; i < count; i++)
        if (!skip_value(r, element, depth + 1))
            return false;
    return true;
}

static status read_entry(const gguf *file, gguf_reader *r, uint64_t index, gguf_entry *entry,
                         error *failure)
{
    uint32_t kind;
    if (!gguf_take_string(r, &entry->key))
        return gguf_fail(file, failure, SLICE("kv_count"), "the file ends inside key %llu of %llu",
                         (unsigned long long)index, (unsigned long long)file->entry_count);
    slice key = entry->key;
    if (key.size == 0 || key.size > KEY_BYTES_MAX || !name_is_clean(key))
        return gguf_fail(file, failure, key,
                         "key %llu has a name of %zu bytes (\"%.*s\"); a name has 1 to %d bytes "
                         "and no control characters",
                         (unsigned long long)index, key.size, gguf_shown(key), key.data,
                         KEY_BYTES_MAX);
    if (!gguf_take_u32(r, &kind))
        return gguf_fail(file, failure, key, "the file ends inside key %.*s", gguf_shown(key),
                         key.data);
    if (kind >= GGUF_KIND_COUNT)
        return gguf_fail(file, failure, key, "key %.*s has kind %u; kinds are 0 to %d",
                         gguf_shown(key), key.data, kind, GGUF_KIND_COUNT - 1);
    entry->kind = (gguf_kind)kind;
    entry->value = r->at;
    if (!skip_value(r, kind, 0))
        return gguf_fail(file, failure, key,
                         "the %s of key %.*s does not end inside the file, or nests arrays more "
                         "than %d deep",
                         gguf_kind_name(kind), gguf_shown(key), key.data, ARRAY_DEPTH_MAX);
    return STATUS_OK;
}

status gguf_read_entries(gguf *file, gguf_reader *r, error *failure)
{
    status result = STATUS_OK;
    if (file->entry_count > r->left / ENTRY_BYTES_MIN || file->entry_count > UINT32_MAX)
        return gguf_fail(file, failure, SLICE("kv_count"),
                         "kv_count is %llu, but the %zu bytes after it hold fewer keys",
                         (unsigned long long)file->entry_count, r->left);
    file->entries = calloc(file->entry_count + 1, sizeof(*file->entries));
    if (file->entries == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "kv_count", "%s: memory is short", file->path);
    for (uint64_t i = 0; i < file->entry_count; i++)
        TRY(read_entry(file, r, i, &file->entries[i], failure));
    TRY(gguf_sort_names(file, file->entries, sizeof(*file->entries), file->entry_count, "key",
                        &file->entries_by_key, failure));
fail:
    return result;
}

// Bytes of the whole tensor, with every product checked.
static status check_shape(const gguf *file, gguf_tensor *tensor, error *failure)
{
    slice name = tensor->name;
    const gguf_type_info *info = gguf_type_of(tensor->type);
    if (info == NULL || info->block_bytes == 0)
        return gguf_fail(file, failure, name,
                         "tensor %.*s has type %u (%s), which is not supported", gguf_shown(name),
                         name.data, tensor->type, gguf_type_name(tensor->type));
    uint64_t elements = 1;
    bool overflow = false;
    for (uint32_t i = 0; i < tensor->dimension_count; i++) {
        if (tensor->dimensions[i] == 0)
            return gguf_fail(file, failure, name,
                             "tensor %.*s: dimension %u is 0; it must be at "
                             "least 1",
                             gguf_shown(name), name.data, i);
        overflow |= __builtin_mul_overflow(elements, tensor->dimensions[i], &elements);
    }
    if (tensor->dimensions[0] % info->block_elements != 0)
        return gguf_fail(file, failure, name,
                         "tensor %.*s: its rows of %llu elements are no multiple of the %u "
                         "elements of a %s block",
                         gguf_shown(name), name.data, (unsigned long long)tensor->dimensions[0],
                         info->block_elements, info->name);
    overflow |=
        __builtin_mul_overflow(elements / info->block_elements, info->block_bytes, &tensor->bytes);
    if (overflow)
        return gguf_fail(file, failure, name,
                         "tensor %.*s: the product of its dimensions does not fit in 64 bits",
                         gguf_shown(name), name.data);
    return STATUS_OK;
}

static status read_tensor(const gguf *file, gguf_reader *r, uint64_t index, gguf_tensor *tensor,
                          error *failure)
{
    if (!gguf_take_string(r, &tensor->name))
        return gguf_fail(file, failure, SLICE("tensor_count"),
                         "the file ends inside tensor info %llu of %llu", (unsigned long long)index,
                         (unsigned long long)file->tensor_count);
    slice name = tensor->name;
    if (name.size == 0 || name.size > TENSOR_NAME_BYTES_MAX || !name_is_clean(name))
        return gguf_fail(file, failure, name,
                         "tensor %llu has a name of %zu bytes (\"%.*s\"); a name has 1 to %d bytes "
                         "and no control characters",
                         (unsigned long long)index, name.size, gguf_shown(name), name.data,
                         TENSOR_NAME_BYTES_MAX);
    if (!gguf_take_u32(r, &tensor->dimension_count))
        goto cut;
    if (tensor->dimension_count < 1 || tensor->dimension_count > GGUF_DIMENSIONS_MAX)
        return gguf_fail(file, failure, name, "tensor %.*s has %u dimensions; 1 to %d are allowed",
                         gguf_shown(name), name.data, tensor->dimension_count, GGUF_DIMENSIONS_MAX);
    for (uint32_t i = 0; i < GGUF_DIMENSIONS_MAX; i++)
        tensor->dimensions[i] = 1;
    for (uint32_t i = 0; i < tensor->dimension_count; i++)
        if (!gguf_take_u64(r, &tensor->dimensions[i]))
            goto cut;
    if (!gguf_take_u32(r, &tensor->type) || !gguf_take_u64(r, &tensor->offset))
        goto cut;
    return check_shape(file, tensor, failure);
cut:
    return gguf_fail(file, failure, name, "the file ends inside the info of tensor %.*s",
                     gguf_shown(name), name.data);
}

// From an offset in the data section to a place in the file.
static status place_tensor(const gguf *file, gguf_tensor *tensor, error *failure)
{
    slice name = tensor->name;
    uint64_t begin, end;
    if (tensor->offset % file->alignment != 0)
        return gguf_fail(file, failure, name,
                         "tensor %.*s: its offset %llu is no multiple of the alignment %llu",
                         gguf_shown(name), name.data, (unsigned long long)tensor->offset,
                         (unsigned long long)file->alignment);
    if (__builtin_add_overflow(file->data_start, tensor->offset, &begin) ||
        __builtin_add_overflow(begin, tensor->bytes, &end))
        end = UINT64_MAX;
    if (end > file->size)
        return gguf_fail(file, failure, name,
                         "tensor %.*s needs the file up to byte %llu, but it has only %zu bytes "
                         "(is it cut short?)",
                         gguf_shown(name), name.data, (unsigned long long)end, file->size);
    tensor->offset = begin;
    tensor->data = file->data + begin;
    return STATUS_OK;
}

status gguf_read_tensors(gguf *file, gguf_reader *r, error *failure)
{
    status result = STATUS_OK;
    if (file->tensor_count > r->left / TENSOR_BYTES_MIN || file->tensor_count > UINT32_MAX)
        return gguf_fail(file, failure, SLICE("tensor_count"),
                         "tensor_count is %llu, but the %zu bytes left hold fewer tensor infos",
                         (unsigned long long)file->tensor_count, r->left);
    file->tensors = calloc(file->tensor_count + 1, sizeof(*file->tensors));
    if (file->tensors == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "tensor_count", "%s: memory is short",
                         file->path);
    for (uint64_t i = 0; i < file->tensor_count; i++)
        TRY(read_tensor(file, r, i, &file->tensors[i], failure));
    uint64_t header = file->size - r->left;
    file->data_start = (header + file->alignment - 1) / file->alignment * file->alignment;
    for (uint64_t i = 0; i < file->tensor_count; i++)
        TRY(place_tensor(file, &file->tensors[i], failure));
    TRY(gguf_sort_names(file, file->tensors, sizeof(*file->tensors), file->tensor_count, "tensor",
                        &file->tensors_by_name, failure));
fail:
    return result;
}

static slice name_at(const void *items, size_t stride, uint32_t index)
{
    // Both tables begin with the name.
    return *(const slice *)((const char *)items + stride * index);
}

static int name_compare(slice a, slice b)
{
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    if (order != 0)
        return order;
    return a.size < b.size ? -1 : a.size > b.size;
}

typedef struct name_table {
    const void *items;
    size_t stride;
} name_table;

static int index_compare(const void *a, const void *b, void *context)
{
    const name_table *table = context;
    return name_compare(name_at(table->items, table->stride, *(const uint32_t *)a),
                        name_at(table->items, table->stride, *(const uint32_t *)b));
}

status gguf_sort_names(const gguf *file, const void *items, size_t stride, uint64_t count,
                       const char *what, uint32_t **sorted, error *failure)
{
    uint32_t *order = calloc(count + 1, sizeof(*order));
    if (order == NULL)
        return error_set(failure, STATUS_NO_MEMORY, what, "%s: memory is short", file->path);
    *sorted = order;
    for (uint64_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    name_table table = { items, stride };
    qsort_r(order, count, sizeof(*order), index_compare, &table);
    for (uint64_t i = 1; i < count; i++) {
        slice name = name_at(items, stride, order[i]);
        if (slice_equal(name, name_at(items, stride, order[i - 1])))
            return gguf_fail(file, failure, name, "%s %.*s is there twice", what, gguf_shown(name),
                             name.data);
    }
    return STATUS_OK;
}

int64_t gguf_find_name(const void *items, size_t stride, const uint32_t *sorted, uint64_t count,
                       slice name)
{
    uint64_t low = 0, high = count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = name_compare(name_at(items, stride, sorted[middle]), name);
        if (order == 0)
            return sorted[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

uint64_t gguf_tensor_count(const gguf *file)
{
    return file->tensor_count;
}

const gguf_tensor *gguf_tensor_at(const gguf *file, uint64_t index)
{
    CHECK(index < file->tensor_count);
    return &file->tensors[index];
}

const gguf_tensor *gguf_tensor_find(const gguf *file, const char *name)
{
    int64_t index = gguf_find_name(file->tensors, sizeof(*file->tensors), file->tensors_by_name,
                                   file->tensor_count, slice_of(name));
    return index < 0 ? NULL : &file->tensors[index];
}

status gguf_tensor_need(const gguf *file, const char *name, const gguf_tensor **tensor,
                        error *failure)
{
    const gguf_tensor *found = gguf_tensor_find(file, name);
    if (found == NULL)
        return gguf_fail(file, failure, slice_of(name), "tensor %s is missing", name);
    *tensor = found;
    return STATUS_OK;
}
