// Grammars of tickets: compiled aside, kept for the next ticket that has the same one, and made the
// guides of sequences.
//
// The model's file is opened at the start, so that another one may take its place on the disk. A
// compiler thread, which begins with the first grammar, reads the tokens' bytes from it (12 to 200
// ms by the vocabulary) and compiles; the step thread never waits for it. Everything here is called
// on the step thread, which also owns the machines of compiled grammars. What a guide allows
// follows from the ticket and the tokens alone, so another worker that goes on with the sequence
// allows the same.
//
// Memory: sources and compiled grammars, those of tickets that wait too, take at most `bytes_max`;
// further ones are refused. A machine, which takes more, is opened when a sequence begins.
#pragma once

#include "base/buffer.h"
#include "model/engine.h"

typedef struct guides guides; // the grammars of a worker
typedef struct guide guide;   // one ticket's use of one

typedef enum guide_state {
    GUIDE_COMPILING,
    GUIDE_READY,
    GUIDE_REFUSED, // guide_refusal says why
} guide_state;

// `model` is the path of the GGUF file. Of the grammars that no ticket uses, `kept` stay compiled
// while they and the others take less than half of `bytes_max`. Errors as of gguf_open.
status guides_open(const char *model, int64_t kept, uint64_t bytes_max, guides **opened,
                   error *failure);
void guides_close(guides *g);         // NULL is fine; after all guides
size_t guides_bytes(const guides *g); // of sources and compiled grammars now

// A ticket's grammar. NULL: memory is short, or there is no room for one more.
guide *guides_take(guides *g, slice source);
void guide_release(guide *use); // NULL is fine; after its sequence was closed
guide_state guide_state_of(const guide *use);
// STATUS_NO_MEMORY: it would have passed bytes_max; the next ticket of the grammar is tried again.
status guide_refusal(const guide *use, error *failure);
// For sequence_request.guide, of a guide that is ready; NULL: memory is short.
const sequence_guide *guide_begin(guide *use);
