// The engine: one loaded model, its page pool and the sequences that it computes.
//
// Both workers are an engine with a network around it; `penstock-bench engine` is one without. The
// step thread of the process owns the engine, its pool and every sequence: no function here may be
// called from another thread, except that page memory (engine_page_data) may be read and written by
// the fabric while the page is held.
//
// A sequence is one generation. Its life:
//
//   engine_sequence_open   pages are taken for its tokens and one token more; the longest prefix
//                          that the pool still holds is shared, not computed again
//   engine_sequence_start  it joins the batch: the rest of its tokens is computed in chunks;
//                          then it generates (SEQUENCE_GENERATE) or yields one token and rests
//                          (SEQUENCE_PROMPT: a prefill worker ships its pages meanwhile)
//   engine_sequence_place  instead of start, for a seat whose pages came from another worker
//   engine_sequence_rest   it generates no more and keeps its pages: it moves to another worker
//   engine_sequence_close  at any time: it leaves the batch; its full pages stay as reusable prefix
//
// Nothing allocates after engine_open. The answer is a function of the request: tokens, logits and
// log-probabilities of a sequence do not depend on the other sequences, on chunk_tokens, on prefix
// hits, on start versus place, nor on the number of threads.
//
// What a step computes: one row of every answer that runs, then rows of prompts. While answers run,
// a step takes at most mixed_tokens rows of prompts and is predicted (cost.h) to end within
// mixed_step, so that a prompt makes no gap in an answer that a reader could see; but never less
// than a few rows, so that it gets on. Interactive prompts come before batch ones, of which some
// rows are kept for (batch_share). Among those of one class the shortest rest comes first, and what
// was computed for others since a prompt was started counts as if it were computed already: it is
// overtaken by at most its own length. Where a page is short, the youngest sequence of the batch
// class leaves, or else the youngest: the oldest interactive one always goes on.
#pragma once

#include "base/config.h"
#include "base/hash.h"
#include "compute/backend.h"

typedef struct engine engine;
typedef struct sequence sequence;

// The `engine` section of a worker's configuration.
typedef struct engine_settings {
    char *model;           // path of a GGUF file
    char *level;           // auto | scalar | avx2 | avx512
    int64_t threads;       // 0: what affinity and the cgroup quota allow
    char *cores;           // "" or a list such as "0,2-3"
    char *kv_type;         // f16 | bf16 | int8 | fp8 | f32
    int64_t page_tokens;   // 32 | 64 | 128
    uint64_t kv_bytes;     // size of the page pool
    int64_t max_sequences; // sequences open at a time
    int64_t step_tokens;   // rows of one step at most
    int64_t chunk_tokens;  // rows of one sequence in a step at most
    int64_t context;       // tokens of a sequence at most; 0: what the model was trained for
    bool prefix_reuse;     // share pages of equal prefixes
    // Compute on the threads of another engine, which outlives this one: never at the same time.
    const engine *beside;
    int64_t
        layers;   // with `beside`: its first so many layers, weights and all; 0: a model of its own
    bool rewinds; // sequences may be rewound: only pages of prompts become prefixes
    const backend_borrowed *borrowed; // cores to compute on while their owners do not
    int borrowed_count;
    bool zero_pages; // "security.zero_pages": zero a page that another tenant's sequence takes
    // Zero (NULL) means: continuous, no limit, nothing kept.
    char *batching;        // continuous | static: none joins before all of the batch have ended
    int64_t mixed_tokens;  // rows of prompts in a step that has answers, at most
    int64_t mixed_step_us; // such a step is predicted to end within it
    int64_t batch_share;   // percent of a step's rows of prompts kept for the batch class
    int64_t draft_tokens;  // rows of drafts in a step, at most
    int64_t score_tokens;  // rows of prompts with scores in a step, at most; 0: none are given
    int64_t growth_tokens; // room that every open answer keeps when another sequence is opened
} engine_settings;
extern const config_section engine_config_section; // keys "engine.*" and security.zero_pages
// The type that engine.kv_type names. STATUS_BAD_CONFIG with the names that there are.
status engine_kv_type_of(const char *name, tensor_type *type, error *failure);

// What the outside must know of a loaded engine. Valid until engine_close.
typedef struct engine_facts {
    const char *model_name;   // general.name of the file, or its file name
    const char *architecture; // "llama"
    hash128 weights;          // of the checkpoint's content
    hash128 numeric_id;       // backend, level, recipe, weights, KV type: equal ids give equal bits
    kv_layout layout;
    int32_t pages; // in the pool
    int32_t vocabulary;
    int32_t context; // tokens of a sequence at most
    int32_t max_sequences, draft_tokens;
    int32_t threads;
    const char *level;
    size_t weight_bytes; // read by one decode step
    size_t memory_bytes; // taken in all
} engine_facts;

typedef enum sequence_mode {
    SEQUENCE_GENERATE, // compute, then generate until it ends
    SEQUENCE_PROMPT,   // compute, yield the first token, rest until closed
} sequence_mode;

typedef enum sequence_class {
    SEQUENCE_INTERACTIVE, // somebody waits for it
    SEQUENCE_BATCH,
    SEQUENCE_CLASSES
} sequence_class;

typedef enum sequence_finish {
    SEQUENCE_UNFINISHED,
    SEQUENCE_STOP,   // an end-of-generation or stop id was drawn (it is the last token reported)
    SEQUENCE_LENGTH, // max_tokens, or the context is full
    SEQUENCE_FAILED, // the logits held no number
} sequence_finish;

#define SEQUENCE_STOP_IDS_MAX 16
#define SEQUENCE_BIAS_MAX 1024

// Limits the tokens of a sequence beside its sampling parameters, as a grammar does. The engine
// calls it on the step thread: `begin`, then `advance` with every generated token in turn, those of
// earlier attempts first, and `mask` before each draw. What it answers must follow from those
// tokens alone.
typedef struct sequence_guide {
    void *state;
    void (*begin)(void *state);
    // False: the token may not come next; an id that ends the sequence is not told.
    bool (*advance)(void *state, int32_t token);
    // The last `count` tokens were never told. False, and nothing changes, where it does not
    // remember so far back: it is told anew then.
    bool (*rewind)(void *state, int32_t count);
    // How many of `count` guessed tokens may come next, one behind the other; nothing changes. Too
    // few are no fault: guesses are lost.
    int32_t (*follows)(void *state, const int32_t *tokens, int32_t count);
    // Which tokens may come next, as `words` words of bits (backend_sample.mask); ids that end the
    // sequence are the engine's, which allows them where *complete. False: nothing can come.
    bool (*mask)(void *state, uint64_t *mask, int32_t words, bool *complete);
} sequence_guide;

// What to compute. Arrays are copied by engine_sequence_open.
typedef struct sequence_request {
    const int32_t *tokens; // prompt, then what earlier attempts already delivered
    int32_t token_count;   // 1..context-1
    int32_t prompt_count;  // 1..token_count; the next token's output index is what is beyond it
    int32_t spare_tokens;  // pages are taken for so many more tokens
    sequence_mode mode;
    sequence_class class;
    int32_t max_tokens; // generated tokens in all, earlier attempts included
    int32_t min_tokens; // end ids are not drawn before so many generated tokens
    bool ignore_eos;    // only max_tokens and stop_ids end it
    int32_t stop_ids[SEQUENCE_STOP_IDS_MAX];
    int32_t stop_id_count;
    backend_sample sampling; // seed, choice and parameters; counts, output_index and vocabulary are
                             // the engine's to fill
    bool scores;             // report how likely every token of the prompt was, the first excepted;
                             // no page of the prompt is taken from known prefixes
    bool logits_hash;        // report a 64-bit hash of the logits of every token (tests)
    hash128 prefix_salt;     // adapter and tenant; zero for none
    // NULL, or the caller's until the sequence is closed. End ids are drawn only where it is
    // complete, and there at once where nothing else may come, min_tokens or not.
    const sequence_guide *guide;
    void *owner; // the caller's, returned with every report
} sequence_request;

// One generated token.
typedef struct engine_token {
    sequence *sequence;
    void *owner;
    int32_t output_index; // 0 for the first token after the prompt
    bool later;           // not the first one of its sequence in this step
    sequence_finish finish;
    backend_sampled sampled;
    uint64_t logits_hash; // hash64_of the row's floats [vocabulary], seed 0; 0 where not asked for
} engine_token;

// How likely a token of a prompt was behind the tokens before it.
typedef struct engine_score {
    void *owner;             // of its sequence
    int32_t position;        // of the token in the prompt, from 1
    backend_sampled sampled; // `token` is the prompt's own
} engine_score;

// What one step did. Arrays belong to the engine and hold until the next step.
typedef struct engine_report {
    int32_t rows; // tokens computed; 0: there was nothing to do
    int32_t decode_rows, prefill_rows;
    int32_t draft_rows;     // of decode_rows: guessed tokens
    int32_t accepted_count; // guessed tokens that were drawn
    // Tokens of sequences: one of each that was due, then the second ones of those whose drafts
    // were right, and so on.
    const engine_token *tokens;
    int32_t token_count;
    const engine_score *scores; // those of one sequence lie together, in order
    int32_t score_count;
    // Left the batch because a page was short. Their pages are given back already; they are still
    // open: the caller closes them and has them computed again.
    sequence *const *preempted;
    int32_t preempted_count;
    uint64_t duration_us;
    uint64_t predicted_us; // what its composition was predicted to take; 0: not known yet
    uint64_t context_us;   // the part of it that reading the cache for answers takes
} engine_report;

// Load the model and take all memory. Fails with one sentence naming the key, tensor or limit.
status engine_open(const engine_settings *settings, engine **opened, error *failure);
void engine_close(engine *e);
// From the next step on, prompts beside answers are limited by `settings`: its mixed_tokens,
// mixed_step_us and batch_share, nothing else of it.
void engine_set_mix(engine *e, const engine_settings *settings);
const engine_facts *engine_facts_of(const engine *e);

// Pages that could be taken now (free, and cached prefixes that nobody holds), and those held by
// sequences or holders.
int32_t engine_pages_free(const engine *e);
int32_t engine_pages_held(const engine *e);
uint64_t
engine_pages_evicted(const engine *e); // cached prefixes given up for new pages, since open
int32_t engine_sequences_open(const engine *e);
// Pages that such a request takes if nothing of it is cached.
int32_t engine_pages_needed(const engine *e, int32_t token_count);

// STATUS_OVERLOADED: no sequence slot now, or no pages; growth_tokens more of every open answer,
// this one's included, must find room too, unless nothing else is open. STATUS_INVALID,
// STATUS_CONTEXT_LENGTH: never possible. On failure nothing was taken.
status engine_sequence_open(engine *e, const sequence_request *request, sequence **opened,
                            error *failure);
// Until its first chunk is computed, pages that became known prefix meanwhile take the place of its
// own, and where all of its tokens are known the last page is copied; sequence_reused grows with
// that (to token_count - 1 at most), and is final with the first chunk.
void engine_sequence_start(engine *e, sequence *s);
// A seat becomes a sequence of the batch: `tokens` [count >= 1] were generated behind the request's
// tokens by the worker that computed them, and the pages hold the first `computed` tokens: all but
// the last. None of `tokens` is reported again. STATUS_INVALID, and the seat stays open: `computed`
// is another number, the pages cannot hold it, a token is none of the vocabulary, one of them
// would have ended the sequence, or its guide does not allow one; behind a right token of `tokens`
// the seat can then only be closed.
status engine_sequence_place(engine *e, sequence *s, int32_t computed, const int32_t *tokens,
                             int32_t count);
// Guess the tokens that a sequence will draw next. The next step computes a row for each of
// `tokens` beside the sequence's own, and draws from these rows as long as what it draws is what
// was guessed: the answer is the same as without, only sooner. Nothing of a wrong guess stays. Once
// a sequence and step, at most. Returns how many of the tokens are taken: none where it does not
// generate now, draft_tokens of all sequences together at most, none behind the sequence's end or
// from a token on that would end it or that its guide does not allow. The step drops those that
// find no page.
int32_t engine_sequence_draft(engine *e, sequence *s, const int32_t *tokens, int32_t count);
// What the last step computed for `s`: guessed tokens, and how many of them were drawn.
void sequence_drafted(const sequence *s, int32_t *drafted, int32_t *accepted);
// A sequence that generates leaves the batch, as it is between two steps; in an engine that
// `rewinds` also one whose tokens are still computed, and both may come back.
void engine_sequence_rest(engine *e, sequence *s);
void engine_sequence_resume(engine *e, sequence *s);
// Of an engine that `rewinds`: the tokens of a started sequence become these, its prompt and one
// token or more; what is not in common is forgotten, what is new is computed, and it generates on
// from there, also where it rested or had ended. STATUS_INVALID, and nothing changes: the prompt is
// another one, there is no room for the tokens, or none is left to be drawn; where its guide does
// not allow them, it can then only be closed. STATUS_OVERLOADED: pages are short.
status engine_sequence_rewind(engine *e, sequence *s, const int32_t *tokens, int32_t count);
// Leave the batch and give the pages back. Pages that somebody holds (engine_page_hold) return when
// released. Full pages become reusable prefix once a finite row of logits behind them was seen, and
// stay it with `keep`; use false where their content is in doubt.
void engine_sequence_close(engine *e, sequence *s, bool keep);

void *sequence_owner(const sequence *s);
// Tokens whose KV is in the pages (prefix hits included), and how many of them were hits; final
// with the first chunk.
int32_t sequence_computed(const sequence *s);
int32_t sequence_reused(const sequence *s);
// The request's tokens and those generated since.
const int32_t *sequence_tokens(const sequence *s, int32_t *count);
// The page table: page i holds positions i * page_tokens and on.
const int32_t *sequence_pages(const sequence *s, int32_t *count);

// Pages in flight: each hold keeps a page from being reused until the matching release, whatever
// becomes of its sequence. Bytes of a page: layout.page_bytes at engine_page_data.
void engine_page_hold(engine *e, int32_t page);
void engine_page_release(engine *e, int32_t page);
void *engine_page_data(const engine *e, int32_t page);
// The whole pool, for registration with the fabric.
void engine_pool_memory(const engine *e, void **data, size_t *size);

// Compute one step: decode rows first, then chunks of prompts, at most step_tokens rows. Returns
// with report->rows 0 at once where no started sequence has work.
void engine_step(engine *e, engine_report *report);
// True where engine_step would compute something.
bool engine_has_work(const engine *e);
// Forget all reusable prefixes (tests, and cluster commands).
void engine_prefixes_drop(engine *e);
