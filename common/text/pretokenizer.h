// Cuts text into the pieces inside which a byte-level BPE may merge. The door to PCRE2.
//
// One row per family of tokenizer.ggml.pre. The patterns are those that the families publish
// (Hugging Face tokenizer.json), with `\s` spelt out as Unicode's White_Space, because PCRE2's own
// has one character more. A row also carries what else belongs to the family's published pipeline.
// Patterns are compiled and, where the system allows it, translated to machine code once.
// Immutable; any thread, each with its own work area. Time is linear in the text.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

typedef struct pretokenizer pretokenizer;
typedef struct pretokenizer_work pretokenizer_work; // what one thread needs to match

typedef struct pretokenizer_family {
    const char *name;
    const char *aliases[6]; // NULL-ended
    const char *pattern;    // what it finds is a piece, and so is what lies between two finds
    bool composes;          // normal form C first
    bool whole_words;       // a piece that is a token as a whole is not merged ("ignore_merges")
    bool adds_bos;          // where the file has no tokenizer.ggml.add_bos_token
} pretokenizer_family;

// `name` as in the file. STATUS_UNSUPPORTED and a
// sentence with the known names for one without a row.
status pretokenizer_open(slice name, pretokenizer **opened, error *failure);
void pretokenizer_close(pretokenizer *p);
const pretokenizer_family *pretokenizer_family_of(const pretokenizer *p);

status pretokenizer_work_open(const pretokenizer *p, pretokenizer_work **opened);
void pretokenizer_work_close(pretokenizer_work *work);

// The end of the piece that begins at `begin` < text.size; the pieces follow each other without
// gaps. `text` is well-formed UTF-8. STATUS_INTERNAL where the matcher hit one of its limits.
status pretokenizer_next(const pretokenizer *p, pretokenizer_work *work, slice text, size_t begin,
                         size_t *end);
