#include "checkpoint/gguf_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int gguf_shown(slice name)
{
    return name.size < 64 ? (int)name.size : 64;
}

status gguf_fail(const gguf *file, error *failure, slice name, const char *format, ...)
{
    char text[384], param[80];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    snprintf(param, sizeof(param), "%.*s", gguf_shown(name), name.data);
    error_set(failure, STATUS_BAD_FILE, param, "%s", text);
    error_prefix(failure, "%s", file->path);
    return STATUS_BAD_FILE;
}

static bool take(gguf_reader *r, void *value, size_t size)
{
    if (r->left < size)
        return false;
    memcpy(value, r->at, size);
    r->at += size;
    r->left -= size;
    return true;
}

bool gguf_take_u32(gguf_reader *r, uint32_t *value)
{
    return take(r, value, sizeof(*value));
}

bool gguf_take_u64(gguf_reader *r, uint64_t *value)
{
    return take(r, value, sizeof(*value));
}

bool gguf_take_string(gguf_reader *r, slice *value)
{
    uint64_t size;
    if (!gguf_take_u64(r, &size) || size > r->left)
        return false;
    *value = (slice){ (const char *)r->at, size };
    r->at += size;
    r->left -= size;
    return true;
}

static status read_version(gguf *file, gguf_reader *r, error *failure)
{
    char magic[4];
    // Safetensors: 8 bytes of a length, then JSON.
    bool json = r->left > 8 && r->at[8] == '{';
    if (!take(r, magic, 4) || memcmp(magic, "GGUF", 4) != 0)
        return gguf_fail(file, failure, SLICE("magic"),
                         "not a GGUF file: its first 4 bytes are not \"GGUF\"%s",
                         json ? "; it looks like safetensors, which is not supported" : "");
    if (!gguf_take_u32(r, &file->version))
        return gguf_fail(file, failure, SLICE("version"), "the file ends inside its version");
    // A big-endian file has no marker of its own: its version comes out byte-swapped.
    uint32_t swapped = __builtin_bswap32(file->version);
    if (file->version > 0xffff && swapped <= 0xffff)
        return gguf_fail(file, failure, SLICE("version"),
                         "a big-endian GGUF file (version %u byte-swapped); convert it to "
                         "little-endian",
                         swapped);
    if (file->version != 2 && file->version != 3)
        return gguf_fail(file, failure, SLICE("version"),
                         "GGUF version %u is not supported; versions 2 and 3 are", file->version);
    return STATUS_OK;
}

// Everything between the magic and the data. The counts are checked by the two readers.
static status read_header(gguf *file, error *failure)
{
    status result = STATUS_OK;
    gguf_reader r = { file->data, file->size };
    TRY(read_version(file, &r, failure));
    if (!gguf_take_u64(&r, &file->tensor_count) || !gguf_take_u64(&r, &file->entry_count)) {
        result = gguf_fail(file, failure, SLICE("tensor_count"), "the file ends inside its header");
        goto fail;
    }
    TRY(gguf_read_entries(file, &r, failure));
    if (gguf_has(file, "split.count", NULL)) {
        uint64_t parts;
        TRY(gguf_get_u64(file, "split.count", &parts, failure));
        if (parts > 1) {
            result = gguf_fail(file, failure, SLICE("split.count"),
                               "one of %llu parts of a split model (split.count); merge the "
                               "parts into one file first",
                               (unsigned long long)parts);
            goto fail;
        }
    }
    TRY(gguf_get_u64_or(file, "general.alignment", 32, &file->alignment, failure));
    // 8 so that every element type is aligned in the mapping; 1 MiB so that padding stays padding.
    if (file->alignment < 8 || file->alignment > (1 << 20) ||
        (file->alignment & (file->alignment - 1)) != 0) {
        result = gguf_fail(file, failure, SLICE("general.alignment"),
                           "general.alignment is %llu; it must be a power of two from 8 to 1048576",
                           (unsigned long long)file->alignment);
        goto fail;
    }
    TRY(gguf_read_tensors(file, &r, failure));
fail:
    return result;
}

static status map_file(gguf *file, error *failure)
{
    struct stat info;
    file->descriptor = open(file->path, O_RDONLY | O_CLOEXEC);
    if (file->descriptor < 0 || fstat(file->descriptor, &info) != 0)
        return error_set(failure, STATUS_IO, "path", "%s: cannot be opened: %s", file->path,
                         strerror(errno));
    if (!S_ISREG(info.st_mode))
        return error_set(failure, STATUS_BAD_FILE, "path", "%s: not a regular file", file->path);
    if (info.st_size < 24)
        return error_set(failure, STATUS_BAD_FILE, "path",
                         "%s: %lld bytes are too few for a GGUF file", file->path,
                         (long long)info.st_size);
    file->size = (size_t)info.st_size;
    void *data = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, file->descriptor, 0);
    if (data == MAP_FAILED)
        return error_set(failure, STATUS_IO, "path", "%s: cannot be mapped: %s", file->path,
                         strerror(errno));
    file->data = data;
    return STATUS_OK;
}

static gguf *new_file(const char *path)
{
    gguf *file = calloc(1, sizeof(*file));
    if (file == NULL)
        return NULL;
    file->descriptor = -1;
    file->path = strdup(path);
    if (file->path == NULL) {
        free(file);
        return NULL;
    }
    return file;
}

status gguf_open(const char *path, gguf **opened, error *failure)
{
    status result = STATUS_OK;
    gguf *file = new_file(path);
    if (file == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "path", "%s: memory is short", path);
    TRY(map_file(file, failure));
    TRY(read_header(file, failure));
    *opened = file;
    return STATUS_OK;
fail:
    gguf_close(file);
    return result;
}

status gguf_open_memory(const void *data, size_t size, const char *name, gguf **opened,
                        error *failure)
{
    status result = STATUS_OK;
    gguf *file = new_file(name);
    if (file == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "path", "%s: memory is short", name);
    file->data = data;
    file->size = size;
    TRY(read_header(file, failure));
    *opened = file;
    return STATUS_OK;
fail:
    gguf_close(file);
    return result;
}

void gguf_close(gguf *file)
{
    if (file == NULL)
        return;
    if (file->descriptor >= 0) {
        if (file->data != NULL)
            munmap((void *)file->data, file->size);
        close(file->descriptor);
    }
    free(file->entries);
    free(file->entries_by_key);
    free(file->tensors);
    free(file->tensors_by_name);
    free(file->path);
    free(file);
}

const char *gguf_path(const gguf *file)
{
    return file->path;
}

uint32_t gguf_version(const gguf *file)
{
    return file->version;
}

uint64_t gguf_file_bytes(const gguf *file)
{
    return file->size;
}

status gguf_check_size(const gguf *file, error *failure)
{
    struct stat info;
    if (file->descriptor < 0)
        return STATUS_OK;
    if (fstat(file->descriptor, &info) != 0)
        return error_set(failure, STATUS_IO, "path", "%s: its size cannot be read: %s", file->path,
                         strerror(errno));
    if ((uint64_t)info.st_size < file->size)
        return error_set(failure, STATUS_BAD_FILE, "path",
                         "%s: the file shrank from %llu to %lld bytes while it was in use",
                         file->path, (unsigned long long)file->size, (long long)info.st_size);
    return STATUS_OK;
}

void gguf_let_go(const gguf *file, const void *data, uint64_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + bytes) / page * page;
    // Bytes that came from gguf_open_memory are the caller's. Only advice, so a failure is none.
    if (file->descriptor >= 0 && end > first)
        (void)madvise((void *)first, end - first, MADV_DONTNEED);
}

// In pieces, with the size checked before each, so that a file that shrinks meanwhile is most
// likely found here and not by a signal.
status gguf_digest(const gguf *file, hash128 *digest, error *failure)
{
    const size_t piece = (size_t)8 << 20;
    hash_stream *stream = hash_stream_begin();
    if (stream == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "path", "%s: memory is short", file->path);
    for (size_t done = 0; done < file->size;) {
        status result = gguf_check_size(file, failure);
        if (result != STATUS_OK) {
            hash_stream_end(stream);
            return result;
        }
        size_t count = file->size - done < piece ? file->size - done : piece;
        hash_stream_add(stream, file->data + done, count);
        gguf_let_go(file, file->data + done, count);
        done += count;
    }
    *digest = hash_stream_end(stream);
    return STATUS_OK;
}
