// Inside the engine: its state, shared by engine.c (open, facts), sequence.c (life of a sequence),
// batch.c (what a step computes) and sampler.c (how a token is chosen). Nobody else includes this.
//
// Memory: everything that a step touches is taken at open. What the backend reads while a step runs
// (batch arrays, counts, biases, masks, results) lies in one pinned arena.
#pragma once

#include "kv/reuse.h"
#include "model/cost.h"
#include "model/engine.h"
#include "model/model.h"

typedef enum sequence_state {
    SEQUENCE_CLOSED,    // the slot is free
    SEQUENCE_OPEN,      // pages are taken; not started
    SEQUENCE_COMPUTING, // in the batch: tokens of the prompt are left
    SEQUENCE_DECODING,  // in the batch: one row a step
    SEQUENCE_RESTING,   // ended, a prompt that yielded its token, or put to rest; keeps its pages
    SEQUENCE_PREEMPTED, // out of the batch, its pages are given back
} sequence_state;

struct sequence {
    engine *engine;
    sequence_state state;
    void *owner;
    sequence_mode mode;
    sequence_class class;
    bool joined;       // in the batch now; with static batching it may have to wait for that
    int64_t passed_at; // rows of prompts that the engine had computed when it was started
    int32_t *tokens;   // [context] request's tokens and generated ones
    int32_t token_count, prompt_count;
    int32_t computed, reused;
    // Guessed tokens that the next step verifies; they lie in `tokens` behind token_count.
    int32_t draft_count;
    int32_t drafted, accepted; // of the last step that verified some
    int32_t *pages;            // [pages_per_sequence]
    int32_t page_count;
    hash128 tenant;  // the request's prefix_salt
    hash128 chain;   // prefix hash behind the first `chained` pages
    int32_t chained; // pages known to the prefix index, or equal to known ones
    int32_t max_tokens, min_tokens;
    bool ignore_eos, logits_hash;
    bool scores, unscored; // scores are wanted; a row of them held no number
    int32_t stop_ids[SEQUENCE_STOP_IDS_MAX];
    int32_t stop_id_count;
    backend_sample sampling;
    backend_token_count *counts; // [counts_capacity] pinned, ascending by token
    backend_token_bias *biases;  // [SEQUENCE_BIAS_MAX] pinned
    uint64_t
        *mask; // [mask_words] pinned: all but the ids that would end it, or what `guide` allows
    const sequence_guide *guide; // NULL: none
    int32_t guided;              // tokens behind the prompt that it was told
};

// Where a step's arrays lie in the pinned arena.
typedef struct step_arrays {
    int32_t *tokens, *positions, *row_sequence; // [step_tokens]
    int32_t *first_row;                         // [max_sequences + 1]
    int32_t *lengths;                           // [max_sequences]
    int32_t *tables;                            // [max_sequences][pages_per_sequence]
    int32_t *logit_index;                       // [max_sequences + draft_tokens + score_tokens]
    int32_t *copy_pair;                         // [2]
    backend_sample *samples;                    // [max_sequences]
    backend_sampled *results;                   // [max_sequences]
    backend_sample *score_samples;              // [score_tokens]
    backend_sampled *score_results;             // [score_tokens]
    backend_token_bias *score_biases;           // [score_tokens]
} step_arrays;

struct engine {
    engine_settings settings; // numbers only; the strings stay the caller's
    bool static_batching;
    engine_facts facts;
    const backend_table *table;
    backend *device;
    backend_queue *queue;
    model *model;
    kv_memory kv;
    kv_pool *pool;
    kv_reuse *reuse;       // NULL: prefixes are not reused
    hash128 *page_tenants; // [pages] whose numbers are in it; NULL: pages are not zeroed
    int32_t pages_per_sequence, counts_capacity, mask_words;
    backend_memory pinned;
    step_arrays arrays;
    backend_batch batch;
    sequence **batch_sequences; // [max_sequences] of the step, in the order of the batch
    int32_t *batch_rows;        // [max_sequences] rows of each
    int32_t *batch_logits;      // [max_sequences] first row of logits of each; -1: none
    int32_t *drawing;           // [max_sequences] of the batch: more tokens may be drawn for them
    int32_t drafts;             // rows that drafts take in the next step
    sequence *slots;            // [max_sequences]
    int32_t open_count;
    sequence **running; // [max_sequences] started, oldest first
    int32_t running_count;
    int64_t prompt_rows; // computed since open
    cost_model cost;
    cost_work work;                               // of the step
    int32_t *sequence_tokens, *sequence_page_ids; // backing of the slots' arrays
    engine_token *tokens;                         // [max_sequences + draft_tokens] of the report
    sequence **preempted;                         // [max_sequences] of the report
    sequence **scored;                            // [score_tokens] of the step
    engine_score *scores;                         // [score_tokens] of the report
    int32_t score_count;                          // of the step
    int32_t *sort_scratch;                        // [context]
    float *row;                                   // [head rows] for hashes of logits
    char level[16];
};

// batch.c: fill e->batch for the next step, preempting where pages are short. False: nothing to do.
bool batch_compose(engine *e, engine_report *report);

// score.c
// How many more rows of this step may have scores.
int32_t score_room(const engine *e);
// Of the next `count` rows of a prompt, which begin at row `first` of the step: ask for scores.
void score_add(engine *e, sequence *s, int32_t first, int32_t count);
// The forward pass has run: find the scores, and put them into the report.
void score_collect(engine *e, engine_report *report);

// sequence.c
void sequence_leave(engine *e, sequence *s); // out of `running`
void sequence_pages_release(engine *e, sequence *s);
// Take `count` pages behind those that `s` has. STATUS_OVERLOADED: none were taken.
status sequence_pages_take(engine *e, sequence *s, int32_t count);
// Before the first chunk: share what has become known prefix since the pages were taken.
void sequence_prefix_extend(engine *e, sequence *s);
// Pages up to `computed` hold numbers (a finite row of logits says so): let others find the full
// ones.
void sequence_publish(engine *e, sequence *s);

// sampler.c
status sampler_check(const engine *e, const sequence_request *request, error *failure);
// Copy the request's sampling parameters and build its counts and mask.
void sampler_begin(engine *e, sequence *s, const sequence_request *request);
// Whether `token` is one that ends the sequence wherever it is drawn.
bool sampler_ends(const engine *e, const sequence *s, int32_t token);
// The row for the next token of `s`, whose arrays stay valid until its token is added.
backend_sample sampler_row(sequence *s);
// Whether `token`, generated next, ends the sequence.
sequence_finish sampler_finish_of(const engine *e, const sequence *s, int32_t token);
// Append a generated token. False: its guide does not allow it, and says nothing of what follows.
bool sampler_add(engine *e, sequence *s, int32_t token);
// Take the last one back; its guide does not hear of that.
void sampler_remove(sequence *s);
