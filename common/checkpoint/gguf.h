// GGUF model files, versions 2 and 3: metadata by
// key and tensors by name, over a read-only mapping.
//
// Source: the GGUF specification (ggml, docs/gguf.md). Little-endian. A file is
//   "GGUF" | u32 version | u64 tensor count | u64 key count | keys | tensor infos | padding | data
// Everything is checked when the file is opened: each count and length against the bytes that are
// left, each tensor's row against its type's block, its offset and size against the real size of
// the file, names and keys for repetition. What `gguf_open` returned can be read without further
// checks, and a bad file gives one sentence that names the file and the key or tensor. No
// allocation is larger than the file justifies.
//
// A gguf is immutable: any thread may read it until its owner closes it. All slices and pointers
// that come out of it live in the mapping and end with `gguf_close`. A file that is cut short while
// it is mapped raises SIGBUS at the next touch, so copy the weights at load, and call
// `gguf_check_size` before long reads: it turns a file that has shrunk already into a sentence.
#pragma once

#include "base/buffer.h"
#include "base/hash.h"
#include "base/status.h"

#include <stdint.h>

typedef struct gguf gguf;

// The value kinds of metadata, numbered as in the file.
typedef enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_KIND_COUNT,
} gguf_kind;

// Tensor element types that files use, numbered as in the file; gguf_type_of has their sizes. The
// reader opens a file with any type whose block size is known; what can be computed is for the
// model to say.
typedef enum gguf_type {
    GGUF_TYPE_F32 = 0,
    GGUF_TYPE_F16 = 1,
    GGUF_TYPE_Q4_0 = 2,
    GGUF_TYPE_Q4_1 = 3,
    GGUF_TYPE_Q5_0 = 6,
    GGUF_TYPE_Q5_1 = 7,
    GGUF_TYPE_Q8_0 = 8,
    GGUF_TYPE_Q2_K = 10,
    GGUF_TYPE_Q3_K = 11,
    GGUF_TYPE_Q4_K = 12,
    GGUF_TYPE_Q5_K = 13,
    GGUF_TYPE_Q6_K = 14,
    GGUF_TYPE_IQ4_NL = 20,
    GGUF_TYPE_IQ4_XS = 23,
    GGUF_TYPE_BF16 = 30,
    GGUF_TYPE_MXFP4 = 39,
    GGUF_TYPE_NVFP4 = 40,
} gguf_type;

// One row per type number. `block_bytes` 0: the number has a name but no place in a file (removed
// from the format, or only used inside a computation), so a tensor of it is refused.
typedef struct gguf_type_info {
    uint32_t id;
    const char *name;
    uint32_t block_elements;
    uint32_t block_bytes;
} gguf_type_info;

#define GGUF_DIMENSIONS_MAX 4

typedef struct gguf_tensor {
    slice name;
    uint32_t type;                            // a number that gguf_type_of knows
    uint32_t dimension_count;                 // 1..4
    uint64_t dimensions[GGUF_DIMENSIONS_MAX]; // fastest first, each at least 1; unused ones are 1
    const void *data;                         // aligned to general.alignment (at least 8)
    uint64_t bytes;                           // of data
    uint64_t offset;                          // of data in the file
} gguf_tensor;

// A view of a metadata array. Fixed-size elements are read by index; strings are taken one by one
// from the front.
typedef struct gguf_array {
    gguf_kind kind;      // of the elements
    uint64_t count;      // elements left
    const uint8_t *data; // the next element
} gguf_array;

// Map and check a file. STATUS_BAD_FILE (or IO,
// NO_MEMORY) with a sentence; then `opened` is untouched.
status gguf_open(const char *path, gguf **opened, error *failure);
// The same over bytes that the caller keeps until
// gguf_close; `name` stands for the path in messages.
status gguf_open_memory(const void *data, size_t size, const char *name, gguf **opened,
                        error *failure);
void gguf_close(gguf *file);

const char *gguf_path(const gguf *file); // as given to gguf_open
uint32_t gguf_version(const gguf *file);
uint64_t gguf_file_bytes(const gguf *file);
// STATUS_BAD_FILE when the file on disk has become smaller than it was when it was opened.
status gguf_check_size(const gguf *file, error *failure);
// hash128 of the whole file's bytes: the weight digest. Reads everything, so call it once and off
// any event loop.
status gguf_digest(const gguf *file, hash128 *digest, error *failure);
// The pages of `bytes` bytes at `data`, a part of the mapping, will not be read again soon: they
// stop counting as this process's memory. Reading them again is allowed and only slower.
void gguf_let_go(const gguf *file, const void *data, uint64_t bytes);

// Tensors in the order of the file; find returns NULL when there is none of that name (O(log n)).
uint64_t gguf_tensor_count(const gguf *file);
const gguf_tensor *gguf_tensor_at(const gguf *file, uint64_t index);
const gguf_tensor *gguf_tensor_find(const gguf *file, const char *name);
// The same, where absence is STATUS_BAD_FILE with a sentence.
status gguf_tensor_need(const gguf *file, const char *name, const gguf_tensor **tensor,
                        error *failure);
// NULL for a number that has no row.
const gguf_type_info *gguf_type_of(uint32_t type);
// The name, or "unknown".
const char *gguf_type_name(uint32_t type);

// Whether a key exists, and of which kind it is (`kind` may be NULL).
bool gguf_has(const gguf *file, const char *key, gguf_kind *kind);
// Key number `index` of gguf_key_count, in the order of the file.
uint64_t gguf_key_count(const gguf *file);
slice gguf_key_at(const gguf *file, uint64_t index);

// A required value. Integers widen from any integer kind if the value fits; f64 takes f32, f64 and
// integers, and refuses what is not finite. Absent, wrong kind or unfit value: STATUS_BAD_FILE and
// a sentence naming the key, what was expected and what was found; `value` is then untouched.
status gguf_get_u64(const gguf *file, const char *key, uint64_t *value, error *failure);
status gguf_get_f64(const gguf *file, const char *key, double *value, error *failure);
status gguf_get_bool(const gguf *file, const char *key, bool *value, error *failure);
status gguf_get_string(const gguf *file, const char *key, slice *value, error *failure);
// An array whose elements are of `kind`; for GGUF_U64
// and GGUF_F64 any integer, or any number, kind passes.
status gguf_get_array(const gguf *file, const char *key, gguf_kind kind, gguf_array *value,
                      error *failure);
// An optional value: absent gives `otherwise`; present but of the wrong kind is still an error.
status gguf_get_u64_or(const gguf *file, const char *key, uint64_t otherwise, uint64_t *value,
                       error *failure);
status gguf_get_f64_or(const gguf *file, const char *key, double otherwise, double *value,
                       error *failure);
status gguf_get_bool_or(const gguf *file, const char *key, bool otherwise, bool *value,
                        error *failure);

// Elements of an array. The next string is taken off the front: `array->count` of them are there.
slice gguf_array_take_string(gguf_array *array);
// Element `index` < count as an integer; false where a negative value does not fit. Integer and
// bool kinds only.
bool gguf_array_u64(const gguf_array *array, uint64_t index, uint64_t *value);
// Element `index` < count of any number kind.
double gguf_array_f64(const gguf_array *array, uint64_t index);
// "u32", "array", ...; "unknown" out of range.
const char *gguf_kind_name(uint32_t kind);
