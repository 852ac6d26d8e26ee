#include "eval/reference.h"

#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1
#define COUNT_MAX ((uint32_t)1 << 22) // of tokens of a text, and of a vocabulary
static const char magic[8] = { 'P', 'N', 'S', 'T', 'K', 'R', 'E', 'F' };
_Static_assert(sizeof(reference_head) == 200, "the head has no gaps");

static uint64_t row_bytes(const reference_head *h)
{
    return (uint64_t)h->vocabulary * sizeof(float) + sizeof(uint64_t);
}

uint64_t reference_bytes(const reference_head *h)
{
    uint64_t before = sizeof *h + (uint64_t)h->tokens * sizeof(int32_t) + sizeof(uint64_t);
    if (h->rows > (REFERENCE_BYTES_MAX - before) / row_bytes(h))
        return 0;
    return before + h->rows * row_bytes(h);
}

// Of everything before the rows. 0: no memory.
static uint64_t head_checksum(const reference *r)
{
    size_t text_bytes = (size_t)r->head.tokens * sizeof(int32_t);
    char *all = malloc(sizeof r->head + text_bytes);
    if (!all)
        return 0;
    memcpy(all, &r->head, sizeof r->head);
    memcpy(all + sizeof r->head, r->text, text_bytes);
    uint64_t checksum = hash64_of(all, sizeof r->head + text_bytes, 0);
    free(all);
    return checksum;
}

static status write_failed(const reference *r, error *failure)
{
    return error_set(failure, STATUS_IO, "save-reference", "%s cannot be written: %s", r->path,
                     strerror(errno));
}

status reference_create(const char *path, const reference_head *head, const walk_plan *plan,
                        reference *r, error *failure)
{
    int32_t windows;
    size_t text_bytes = (size_t)plan->count * sizeof(int32_t);
    status result;
    *r = (reference){ .path = path, .head = *head };
    memcpy(r->head.magic, magic, sizeof magic);
    r->head.version = VERSION;
    r->head.tokens = (uint32_t)plan->count;
    r->head.bos = plan->bos >= 0 ? plan->bos : -1;
    r->head.context = (uint32_t)plan->context;
    r->head.stride = (uint32_t)plan->stride;
    r->head.rows = (uint64_t)walk_count(plan, &windows);
    if (reference_bytes(&r->head) == 0)
        return error_set(failure, STATUS_TOO_LARGE, "save-reference",
                         "the logits of %llu tokens would take more than %llu GiB; use --windows",
                         (unsigned long long)r->head.rows,
                         (unsigned long long)(REFERENCE_BYTES_MAX >> 30));
    r->text = malloc(text_bytes);
    r->file = r->text ? fopen(path, "wb") : NULL;
    if (!r->file) {
        result = write_failed(r, failure);
        reference_close(r, NULL);
        return result;
    }
    memcpy(r->text, plan->text, text_bytes);
    uint64_t checksum = head_checksum(r);
    if (fwrite(&r->head, sizeof r->head, 1, r->file) != 1 ||
        fwrite(r->text, text_bytes, 1, r->file) != 1 ||
        fwrite(&checksum, sizeof checksum, 1, r->file) != 1) {
        result = write_failed(r, failure);
        reference_close(r, NULL);
        return result;
    }
    return STATUS_OK;
}

status reference_write(reference *r, const float *logits, error *failure)
{
    size_t bytes = (size_t)r->head.vocabulary * sizeof logits[0];
    uint64_t checksum = hash64_of(logits, bytes, r->rows_done);
    CHECK(r->rows_done < r->head.rows);
    if (fwrite(logits, bytes, 1, r->file) != 1 ||
        fwrite(&checksum, sizeof checksum, 1, r->file) != 1)
        return write_failed(r, failure);
    r->rows_done++;
    return STATUS_OK;
}

static status bad_file(const reference *r, error *failure, const char *field, const char *what)
{
    return error_set(failure, STATUS_BAD_FILE, field, "%s is no reference run: %s %s", r->path,
                     field, what);
}

// What can be said of the head alone, and of the size of the file.
static status head_check(const reference *r, uint64_t bytes, error *failure)
{
    const reference_head *h = &r->head;
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return bad_file(r, failure, "magic", "is not PNSTKREF");
    if (h->version != VERSION)
        return bad_file(r, failure, "version", "is not 1");
    if (h->vocabulary < 2 || h->vocabulary > COUNT_MAX)
        return bad_file(r, failure, "vocabulary", "is out of range");
    if (h->tokens < 1 || h->tokens > COUNT_MAX)
        return bad_file(r, failure, "tokens", "is out of range");
    if (h->bos < -1 || h->bos >= (int32_t)h->vocabulary)
        return bad_file(r, failure, "bos", "is no token");
    if (h->context < 2 || h->context > COUNT_MAX || h->stride > h->context - (h->bos >= 0))
        return bad_file(r, failure, "context", "and stride make no walk");
    if (!memchr(h->model, 0, sizeof h->model) || !memchr(h->kv_type, 0, sizeof h->kv_type))
        return bad_file(r, failure, "model", "has no end");
    if (reference_bytes(h) != bytes)
        return bad_file(r, failure, "size", "is not what its counts make (is it complete?)");
    return STATUS_OK;
}

static status text_check(const reference *r, error *failure)
{
    int32_t windows;
    walk_plan plan = reference_plan(r);
    uint64_t checksum = head_checksum(r), stored;
    if (fread(&stored, sizeof stored, 1, r->file) != 1 || stored != checksum)
        return bad_file(r, failure, "checksum", "is not that of its head and text");
    for (uint32_t i = 0; i < r->head.tokens; i++)
        if (r->text[i] < 0 || r->text[i] >= (int32_t)r->head.vocabulary)
            return bad_file(r, failure, "text", "holds an id outside the vocabulary");
    if ((uint64_t)walk_count(&plan, &windows) != r->head.rows)
        return bad_file(r, failure, "rows", "is not what its text, context and stride make");
    return STATUS_OK;
}

status reference_open(const char *path, reference *r, error *failure)
{
    status result;
    off_t bytes;
    *r = (reference){ .path = path };
    r->file = fopen(path, "rb");
    if (!r->file || fseeko(r->file, 0, SEEK_END) != 0 || (bytes = ftello(r->file)) < 0) {
        result = error_set(failure, STATUS_IO, "reference-file", "%s cannot be read: %s", path,
                           strerror(errno));
        goto fail;
    }
    rewind(r->file);
    if (fread(&r->head, sizeof r->head, 1, r->file) != 1) {
        result = bad_file(r, failure, "size", "is too small for a head");
        goto fail;
    }
    TRY(head_check(r, (uint64_t)bytes, failure));
    r->text = malloc((size_t)r->head.tokens * sizeof r->text[0]);
    if (!r->text || fread(r->text, sizeof r->text[0], r->head.tokens, r->file) != r->head.tokens) {
        result = bad_file(r, failure, "text", "cannot be read");
        goto fail;
    }
    TRY(text_check(r, failure));
    utf8_make_printable(r->head.model);
    utf8_make_printable(r->head.kv_type);
    return STATUS_OK;
fail:
    reference_close(r, NULL);
    return result;
}

status reference_read(reference *r, float *logits, error *failure)
{
    size_t bytes = (size_t)r->head.vocabulary * sizeof logits[0];
    uint64_t stored;
    CHECK(r->rows_done < r->head.rows);
    if (fread(logits, bytes, 1, r->file) != 1 || fread(&stored, sizeof stored, 1, r->file) != 1 ||
        stored != hash64_of(logits, bytes, r->rows_done))
        return error_set(failure, STATUS_BAD_FILE, "rows",
                         "%s is damaged: row %llu is not what its checksum says", r->path,
                         (unsigned long long)r->rows_done);
    for (uint32_t i = 0; i < r->head.vocabulary; i++)
        if (!isfinite(logits[i]))
            return error_set(failure, STATUS_BAD_FILE, "rows",
                             "%s: row %llu holds a value that is no finite number", r->path,
                             (unsigned long long)r->rows_done);
    r->rows_done++;
    return STATUS_OK;
}

walk_plan reference_plan(const reference *r)
{
    return (walk_plan){ .text = r->text,
                        .count = (int32_t)r->head.tokens,
                        .bos = r->head.bos,
                        .context = (int32_t)r->head.context,
                        .stride = (int32_t)r->head.stride };
}

status reference_close(reference *r, error *failure)
{
    status result = STATUS_OK;
    if (r->file && fclose(r->file) != 0)
        result = write_failed(r, failure);
    free(r->text);
    r->file = NULL;
    r->text = NULL;
    return result;
}
