// What a decode worker tells of guessed tokens (speculative decoding): the message Guesses of
// proto/cluster.proto as a plain value, for the worker that sends it and the router that keeps it.
// No pointers: it is copied.
#pragma once

#include "net/message.h"

#include <stddef.h>
#include <stdint.h>

#define GUESSES_POSITIONS MESSAGE_GUESS_POSITIONS_MAX

// One drafter, for the answers of one class or of all.
typedef struct guesses_drafter {
    char name[MESSAGE_GUESS_NAME_MAX];
    char draft[64]; // what guesses, where that is a model; "": texts
    // Tokens since the start: right, the first wrong one of a guess, those behind a wrong one.
    uint64_t right, wrong, behind;
    double alpha, low, high; // the chance now that a guessed token is right, 95 % interval
    double outcomes;         // that stand behind alpha
    double expected;         // alpha of what it offers now; 0: nothing was offered yet
    double break_even;       // alpha that it needs now; 1: none is enough, 0: not known
    double below_s;          // what it offers has been below break-even for so long
    uint64_t tried[GUESSES_POSITIONS], held[GUESSES_POSITIONS]; // by position in the guess
    size_t positions;
} guesses_drafter;

// Of all answers times steps, those that were in one state.
typedef struct guesses_state {
    char name[MESSAGE_GUESS_NAME_MAX]; // "on", "probing", "below_break_even" ...
    uint64_t rows;                     // since the start
    double share;                      // of late
} guesses_state;

typedef struct guesses_class {
    char name[MESSAGE_GUESS_NAME_MAX]; // "interactive", "batch"
    char sentence[MESSAGE_SENTENCE_MAX];
    char state[MESSAGE_GUESS_NAME_MAX];   // that most answers are in now
    char drafter[MESSAGE_GUESS_NAME_MAX]; // whose guesses decide that, or are at hand; "": none's
    double alpha, break_even;             // of these guesses, and what they need; 0: unknown
    double tokens_per_step, tokens_per_s, gained_per_s; // of late
    guesses_state states[MESSAGE_GUESS_STATES_MAX];
    size_t state_count;
    guesses_drafter drafters[MESSAGE_DRAFTERS_MAX];
    size_t drafter_count;
} guesses_class;

typedef struct guesses {
    char sentence[MESSAGE_SENTENCE_MAX]; // whether it is on, and why; "": nothing is told
    double break_even;                   // of guesses from texts
    uint32_t batch;                      // answers in a step
    uint64_t steps_on, steps_probing, steps_off, steps_prompts; // since the start
    guesses_drafter drafters[MESSAGE_DRAFTERS_MAX];             // that have guessed
    size_t drafter_count;
    guesses_class classes[MESSAGE_GUESS_CLASSES_MAX]; // that had answers
    size_t class_count;
} guesses;

// Room for the message, as long as it is sent; it points into itself and into what it tells.
typedef struct guesses_room guesses_room;
struct guesses_room {
    Penstock__Guesses message;
    Penstock__GuessClass classes[MESSAGE_GUESS_CLASSES_MAX];
    Penstock__GuessClass *class_list[MESSAGE_GUESS_CLASSES_MAX];
    Penstock__GuessState states[MESSAGE_GUESS_CLASSES_MAX][MESSAGE_GUESS_STATES_MAX];
    Penstock__GuessState *state_lists[MESSAGE_GUESS_CLASSES_MAX][MESSAGE_GUESS_STATES_MAX];
    Penstock__Drafter drafters[MESSAGE_GUESS_CLASSES_MAX + 1][MESSAGE_DRAFTERS_MAX];
    Penstock__Drafter *drafter_lists[MESSAGE_GUESS_CLASSES_MAX + 1][MESSAGE_DRAFTERS_MAX];
};

// The message that tells `g`; NULL where there is nothing to tell.
Penstock__Guesses *guesses_tell(const guesses *g, guesses_room *room);
// What a message told that was checked; NULL: nothing.
void guesses_take(const Penstock__Guesses *message, guesses *g);
