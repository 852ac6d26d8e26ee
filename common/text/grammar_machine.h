// Inside the machine: states found so far, shared by grammar_machine.c (places and their life),
// grammar_step.c (from state to state) and grammar_mask.c (masks). Nobody else includes this.
//
// A state of the machine is a set of threads. A thread stands at a node of the program, with a
// value that the node counts by, in a frame: where its rule returns to. Sets and frames are kept
// once, so equal states have equal numbers and their successors are remembered.
#pragma once

#include "text/grammar_mask.h"
#include "text/grammar_private.h"

#define MACHINE_STATES 16384
#define MACHINE_FRAMES 16384
#define MACHINE_THREADS 131072
#define MACHINE_SET_MAX 1024      // threads of one state
#define MACHINE_ENTERED_MAX 32768 // nodes that one step goes through
#define MACHINE_MASK_BYTES ((size_t)4 << 20)

#define STATE_DEAD 0
#define STATE_UNKNOWN (-1)
#define STATE_FULL (-2)  // the tables are full
#define STATE_MIXED (-3) // as `plain`: characters part here

#define NODE_ACCEPT (-1) // a thread at the end of the text

typedef struct machine_thread {
    int32_t node;
    uint32_t value;
    int32_t frame; // 0: the text ends behind the rule
} machine_thread;

typedef struct machine_frame {
    int32_t node, parent, depth;
} machine_frame;

typedef struct machine_state {
    int32_t first, count; // in `threads`
    uint32_t hash;
    int32_t plain; // where every plain character leads
    int32_t mask;  // index, or -1
    bool complete;
    int8_t spelled; // whether some token of one byte goes on: 1, 0, or -1: not known
} machine_state;

// Halves: what lives is moved from one to the other when they fill.
typedef struct machine_space {
    machine_state *states;   // [MACHINE_STATES]
    machine_thread *threads; // [MACHINE_THREADS]
    machine_frame *frames;   // [MACHINE_FRAMES]
    int32_t state_count, thread_count, frame_count;
} machine_space;

typedef struct trie_node {
    uint8_t byte, depth; // depth 1: the first byte
    int32_t skip;        // the next node that is not below this one
    int32_t token;       // that ends here; -1: none
} trie_node;

typedef struct trie {
    trie_node *nodes; // in the order of their texts
    int32_t count;
} trie;

#define PLAIN_MAX 32 // characters of plain tokens that are kept by length

struct grammar_vocabulary {
    size_t token_count, words;
    slice *tokens; // bytes in `bytes`
    char *bytes;
    int32_t *same;       // [token_count] another token of the same bytes, or -1
    trie plain, others;  // plain tokens of at most PLAIN_MAX characters; all others
    uint64_t *by_length; // [PLAIN_MAX + 1][words] plain tokens of at most so many
    bool one_byte[256];  // there is a token of just this byte
};

struct grammar_place {
    grammar_machine *machine;
    grammar_place *next, **back; // all of the machine
    int32_t state;
    int32_t past[GRAMMAR_REWIND_MAX]; // states before the last advances, as a ring
    int32_t past_count;
    uint32_t past_end; // of the next one, modulo GRAMMAR_REWIND_MAX
};

struct grammar_machine {
    grammar *g;
    const grammar_vocabulary *v;
    machine_space space, other;
    int32_t *rows; // [MACHINE_STATES][classes] next states
    int32_t *state_table, *frame_table;
    machine_thread *set; // [MACHINE_SET_MAX] being built
    int32_t set_count, entered;
    bool set_full;   // or too much was entered
    uint64_t *masks; // [mask_max][words]
    int32_t mask_max, mask_count;
    grammar_place *places;
    int32_t begin;                                              // the first state
    uint8_t plain_bytes[256], lead_bytes[256], tail_bytes[256]; // one of each class that has such
    int plain_count, lead_count, tail_count;
};

// grammar_step.c: the next state; STATE_DEAD, or STATE_FULL where there is no room for it.
int32_t machine_step(grammar_machine *m, int32_t state, uint8_t byte);
// The state where the program begins.
int32_t machine_begin(grammar_machine *m);
// The state of the threads in `set`, and the frame of a call.
int32_t machine_intern(grammar_machine *m);
int32_t machine_frame_of(grammar_machine *m, int32_t node, int32_t parent);

// grammar_machine.c: keep only the states of places.
void machine_collect(grammar_machine *m);
