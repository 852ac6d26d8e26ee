// A reference run in a file: the logits of one model over one text, for comparisons with others
// later.
//
// Little-endian. All that follows from the head is checked when a file is opened: its size to the
// byte, every count against its limit, every token against the vocabulary; rows are checked as they
// are read. A file is exact (float32), so a model compared with its own stored run has a KL of 0.
//
//   char magic[8]      "PNSTKREF"
//   u32  version       1
//   u32  vocabulary    logits of a row; 2 .. 4 Mi
//   u32  tokens        of the text, BOS not counted; 1 .. 4 Mi
//   i32  bos           in front of every window, or -1
//   u32  context, stride   of the walk (walk.h)
//   u64  rows          scored tokens, in the order of the walk
//   u64  digest[2]     of the vocabulary (subject.h), low half first
//   char model[128], kv_type[16]    what computed it, for people; NUL-padded
//   i32  text[tokens]
//   u64  checksum      hash64 of all of the above, seed 0
//   rows times: f32 logits[vocabulary], u64 hash64 of them, seeded with the row's number
#pragma once

#include "base/hash.h"
#include "eval/walk.h"

#include <stdio.h>

#define REFERENCE_BYTES_MAX ((uint64_t)64 << 30)

// The head, as it lies in the file.
typedef struct reference_head {
    char magic[8];
    uint32_t version, vocabulary, tokens;
    int32_t bos;
    uint32_t context, stride;
    uint64_t rows;
    hash128 digest;
    char model[128], kv_type[16];
} reference_head;

typedef struct reference {
    const char *path; // the caller's
    FILE *file;
    reference_head head;
    int32_t *text;      // [tokens], when read
    uint64_t rows_done; // read or written
} reference;

// Bytes of a file with such a head; 0 where it is beyond REFERENCE_BYTES_MAX.
uint64_t reference_bytes(const reference_head *head);

// Begin a file over `plan`; `head` has vocabulary, digest, model and kv_type. It is complete when
// all rows were written and reference_close said so; an incomplete one will be refused by its size.
status reference_create(const char *path, const reference_head *head, const walk_plan *plan,
                        reference *r, error *failure);
status reference_write(reference *r, const float *logits, error *failure);

// STATUS_BAD_FILE with a sentence that names the field.
status reference_open(const char *path, reference *r, error *failure);
status reference_read(reference *r, float *logits, error *failure); // the next row
// The walk that the file's rows follow; `chunk` is the caller's to fill.
walk_plan reference_plan(const reference *r);

// STATUS_IO where what was written could not be kept. Accepts a zeroed one.
status reference_close(reference *r, error *failure);
