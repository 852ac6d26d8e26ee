// A stored reference run: its head promises what the rest keeps, or it is refused with a sentence.
// The checksums are made right first, as a hostile file would have them.
#include "eval/reference.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void checksums_repair(char *bytes, size_t size)
{
    reference_head head;
    if (size < sizeof head)
        return;
    memcpy(&head, bytes, sizeof head);
    size_t at = sizeof head + (size_t)head.tokens * sizeof(int32_t), begin = 0;
    size_t row_bytes = (size_t)head.vocabulary * sizeof(float);
    for (uint64_t row = 0; at + sizeof(uint64_t) <= size; row++) {
        uint64_t checksum = hash64_of(bytes + begin, at - begin, row == 0 ? 0 : row - 1);
        memcpy(bytes + at, &checksum, sizeof checksum);
        begin = at + sizeof checksum;
        at = begin + row_bytes;
    }
}

static void rows_read(reference *r)
{
    size_t vocabulary = r->head.vocabulary;
    float *row = malloc(vocabulary * sizeof *row);
    error failure = { 0 };
    CHECK(row);
    while (r->rows_done < r->head.rows) {
        if (reference_read(r, row, &failure) != STATUS_OK) {
            CHECK(failure.text[0]);
            break;
        }
        for (size_t i = 0; i < vocabulary; i++)
            CHECK(isfinite(row[i]));
    }
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    char path[64], *bytes = malloc(size + 1);
    reference r;
    error failure = { 0 };
    if (file < 0)
        file = memfd_create("reference", 0);
    memcpy(bytes, data, size);
    checksums_repair(bytes, size);
    CHECK(ftruncate(file, 0) == 0 && pwrite(file, bytes, size, 0) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (reference_open(path, &r, &failure) == STATUS_OK) {
        for (uint32_t i = 0; i < r.head.tokens; i++)
            CHECK(r.text[i] >= 0 && r.text[i] < (int32_t)r.head.vocabulary);
        rows_read(&r);
        reference_close(&r, NULL);
    } else {
        CHECK(failure.text[0] && !r.file && !r.text);
    }
    free(bytes);
    return 0;
}
