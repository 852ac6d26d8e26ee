// Grammars over a vocabulary: which tokens may come next.
//
// A grammar_vocabulary holds the bytes of all tokens as two tries, made once for a model; it never
// changes, so any number of machines may use it. A grammar_machine runs one grammar over one
// vocabulary: it finds the states of the grammar as they are met (lazy determinisation) and
// remembers them with their masks, in memory that is taken when it is opened. A grammar_place is
// where one text stands in it. A machine and its places belong to one thread.
//
// What is allowed depends on the text alone, never on what the machine remembers.
//
// How a mask is found: tokens that are plain characters (no quote, backslash or control character)
// are kept by their length. Where a state takes any n plain characters, all such tokens of at most
// n are allowed at once, and only the others are walked; states inside free strings are like that.
// Everything else is one walk down the tries, which ends where the grammar does.
#pragma once

#include "text/grammar.h"
#include "text/tokenizer.h"

typedef struct grammar_vocabulary grammar_vocabulary;
typedef struct grammar_machine grammar_machine;
typedef struct grammar_place grammar_place;

// Bit i of a mask is bit i % 64 of word i / 64: token i may be drawn.
#define GRAMMAR_MASK_WORDS(tokens) (((size_t)(tokens) + 63) / 64)

// Of the `count` tokens with these bytes; empty ones (control tokens, unused ids) are never
// allowed, nor are those of more than 255 bytes. The bytes are copied. STATUS_NO_MEMORY.
status grammar_vocabulary_open(const slice *tokens, size_t count, grammar_vocabulary **opened);
// Of a tokenizer's normal, byte and user-defined tokens.
status grammar_vocabulary_of(const tokenizer *t, grammar_vocabulary **opened);
void grammar_vocabulary_close(grammar_vocabulary *v);

// Holds the grammar; the vocabulary must outlive it. NULL where memory is short.
grammar_machine *grammar_machine_open(grammar *g, const grammar_vocabulary *v);
void grammar_machine_close(grammar_machine *m); // after its places

// At the beginning of the text. NULL where memory is short.
grammar_place *grammar_place_open(grammar_machine *m);
void grammar_place_close(grammar_place *p);
void grammar_place_begin(grammar_place *p); // back to the beginning

#define GRAMMAR_REWIND_MAX 64 // advances of a place that can be taken back

// Go on by the bytes of a token; false, and nothing changes, where the grammar does not allow it.
bool grammar_place_advance(grammar_place *p, int32_t token);
bool grammar_place_advance_bytes(grammar_place *p, slice bytes);
// Take back the last `count` advances. False, and nothing changes, where it stands too far behind
// them: more than GRAMMAR_REWIND_MAX, or the machine had to forget states since.
bool grammar_place_rewind(grammar_place *p, int32_t count);
// How many of `count` tokens may come next, one behind the other; the place stays. Fewer where the
// machine has no room to look further.
int32_t grammar_place_follows(const grammar_place *p, const int32_t *tokens, int32_t count);
// Whether the text may end here.
bool grammar_place_complete(grammar_place *p);
// The tokens that may come next, as *words words (GRAMMAR_MASK_WORDS) that are valid until the
// machine is used again; *some: there is one. NULL: the grammar has more states at once than the
// machine holds, and the text cannot go on.
const uint64_t *grammar_place_mask(grammar_place *p, size_t *words, bool *some);
