#include "worker/guide.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/queue.h"
#include "text/grammar_mask.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define WAITING_MAX 1024
#define FOREVER_US 3600000000

// One grammar. The compiler thread fills it, then sets `state`; from then on it is the step
// thread's.
typedef struct guide_grammar {
    struct guide_grammar *next; // the last used first
    hash128 hash;
    buffer source;
    int32_t users;
    atomic_int state;
    size_t bytes; // of source and grammar
    grammar *compiled;
    grammar_machine *machine; // the step thread's; NULL: no sequence has needed it
    status code;
    error failure;
} guide_grammar;

struct guide {
    guides *guides;
    guide_grammar *grammar;
    grammar_place *place;
    sequence_guide sequence;
};

struct guides {
    gguf *model; // NULL: the vocabulary was read
    int64_t kept;
    size_t bytes_max;
    atomic_size_t bytes; // of all grammars
    guide_grammar *list;
    queue *waiting; // guide_grammar; the compiler thread pops
    atomic_bool ending;
    pthread_t thread;
    bool started;
    guide_grammar stop;             // pushed to wake the thread
    grammar_vocabulary *vocabulary; // the compiler thread's; NULL until it is read
};

// ---- the compiler thread -----------------------------------------------------------------------

static status vocabulary_read(guides *g, error *failure)
{
    tokenizer *tokens = NULL;
    status result;
    if (g->vocabulary)
        return STATUS_OK;
    TRY(tokenizer_open(g->model, &tokens, failure));
    result = grammar_vocabulary_of(tokens, &g->vocabulary);
    if (result != STATUS_OK) {
        error_set(failure, result, "", "memory is short");
        goto fail;
    }
    gguf_close(g->model);
    g->model = NULL;
fail:
    if (tokens)
        tokenizer_close(tokens);
    return result;
}

static status compile(guides *g, guide_grammar *x)
{
    status result;
    TRY(vocabulary_read(g, &x->failure));
    TRY(grammar_compile(buffer_slice(&x->source), &x->compiled, &x->failure));
    size_t size = grammar_size(x->compiled);
    if (atomic_fetch_add(&g->bytes, size) + size <= g->bytes_max) {
        x->bytes += size;
        return STATUS_OK;
    }
    atomic_fetch_sub(&g->bytes, size);
    grammar_release(x->compiled);
    x->compiled = NULL;
    result = error_set(&x->failure, STATUS_NO_MEMORY, "",
                       "it takes %zu bytes, for which other grammars leave no room", size);
fail:
    if (result != STATUS_OK)
        error_prefix(&x->failure, "grammar");
    return result;
}

static void *compiler_run(void *argument)
{
    guides *g = argument;
    for (;;) {
        guide_grammar *x = queue_pop_wait(g->waiting, FOREVER_US);
        if (atomic_load(&g->ending))
            return NULL;
        if (!x)
            continue;
        x->code = compile(g, x);
        atomic_store_explicit(&x->state, x->code == STATUS_OK ? GUIDE_READY : GUIDE_REFUSED,
                              memory_order_release);
    }
}

// ---- the step thread ---------------------------------------------------------------------------

status guides_open(const char *model, int64_t kept, uint64_t bytes_max, guides **opened,
                   error *failure)
{
    status result = STATUS_OK;
    guides *g = calloc(1, sizeof *g);
    if (!g || queue_open(WAITING_MAX, &g->waiting) != STATUS_OK) {
        free(g);
        return error_set(failure, STATUS_NO_MEMORY, "", "memory is short");
    }
    g->kept = kept;
    g->bytes_max = bytes_max;
    TRY(gguf_open(model, &g->model, failure));
    *opened = g;
    return STATUS_OK;
fail:
    guides_close(g);
    return result;
}

size_t guides_bytes(const guides *g)
{
    return atomic_load_explicit(&g->bytes, memory_order_relaxed);
}

static guide_state state_of(const guide_grammar *x)
{
    return (guide_state)atomic_load_explicit(&x->state, memory_order_acquire);
}

static void grammar_free(guides *g, guide_grammar *x)
{
    atomic_fetch_sub(&g->bytes, x->bytes);
    grammar_machine_close(x->machine);
    grammar_release(x->compiled);
    buffer_close(&x->source);
    free(x);
}

void guides_close(guides *g)
{
    if (!g)
        return;
    if (g->started) {
        atomic_store(&g->ending, true);
        queue_push(g->waiting, &g->stop); // where it is full, nobody sleeps
        pthread_join(g->thread, NULL);
    }
    while (g->list) {
        guide_grammar *next = g->list->next;
        grammar_free(g, g->list);
        g->list = next;
    }
    queue_close(g->waiting);
    grammar_vocabulary_close(g->vocabulary);
    if (g->model)
        gguf_close(g->model);
    free(g);
}

// Refused because of what other grammars took then: the same source may be fine now.
static bool worth_another_try(const guide_grammar *x)
{
    return state_of(x) == GUIDE_REFUSED && status_must_act(x->code) != STATUS_OWNER_REQUEST;
}

// Unlink one that is known and put it in front.
static guide_grammar *find(guides *g, slice source, hash128 hash)
{
    for (guide_grammar **link = &g->list; *link; link = &(*link)->next) {
        guide_grammar *x = *link;
        if (!hash128_equal(x->hash, hash) || !slice_equal(buffer_slice(&x->source), source) ||
            worth_another_try(x))
            continue;
        *link = x->next;
        x->next = g->list;
        return g->list = x;
    }
    return NULL;
}

// Let go of the unused beyond `kept`, or beyond half of the memory: those used longest ago.
static void unused_drop(guides *g)
{
    int64_t unused = 0, kept = 0;
    for (guide_grammar *x = g->list; x; x = x->next)
        unused += x->users == 0 && state_of(x) != GUIDE_COMPILING;
    kept = unused < g->kept ? unused : g->kept;
    while (unused > 0 && (unused > kept || guides_bytes(g) > g->bytes_max / 2)) {
        guide_grammar **last = NULL;
        for (guide_grammar **link = &g->list; *link; link = &(*link)->next)
            if ((*link)->users == 0 && state_of(*link) != GUIDE_COMPILING)
                last = link;
        guide_grammar *x = *last;
        *last = x->next;
        grammar_free(g, x);
        unused--;
    }
}

static guide_grammar *compile_begin(guides *g, slice source, hash128 hash)
{
    size_t size = sizeof(guide_grammar) + source.size;
    unused_drop(g);
    if (guides_bytes(g) + size > g->bytes_max)
        return NULL;
    if (!g->started && pthread_create(&g->thread, NULL, compiler_run, g) != 0)
        return NULL;
    g->started = true;
    guide_grammar *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->hash = hash;
    buffer_append_slice(&x->source, source);
    x->bytes = size;
    atomic_fetch_add(&g->bytes, x->bytes);
    if (x->source.overflow || queue_push(g->waiting, x) != STATUS_OK) {
        grammar_free(g, x);
        return NULL;
    }
    x->next = g->list;
    return g->list = x;
}

guide *guides_take(guides *g, slice source)
{
    hash128 hash = hash128_of(source.data, source.size);
    guide *use = calloc(1, sizeof *use);
    guide_grammar *x = use ? find(g, source, hash) : NULL;
    if (use && !x)
        x = compile_begin(g, source, hash);
    if (!x) {
        free(use);
        return NULL;
    }
    x->users++;
    use->guides = g;
    use->grammar = x;
    return use;
}

void guide_release(guide *use)
{
    if (!use)
        return;
    guides *g = use->guides;
    grammar_place_close(use->place);
    use->grammar->users--;
    free(use);
    unused_drop(g);
}

guide_state guide_state_of(const guide *use)
{
    return state_of(use->grammar);
}

status guide_refusal(const guide *use, error *failure)
{
    *failure = use->grammar->failure;
    return use->grammar->code;
}

// ---- guiding -----------------------------------------------------------------------------------

static void place_begin(void *state)
{
    grammar_place_begin(state);
}

static bool place_advance(void *state, int32_t token)
{
    return grammar_place_advance(state, token);
}

static bool place_rewind(void *state, int32_t count)
{
    return grammar_place_rewind(state, count);
}

static int32_t place_follows(void *state, const int32_t *tokens, int32_t count)
{
    return grammar_place_follows(state, tokens, count);
}

static bool place_mask(void *state, uint64_t *mask, int32_t words, bool *complete)
{
    bool some;
    size_t own;
    const uint64_t *allowed = grammar_place_mask(state, &own, &some);
    if (!allowed)
        return false;
    size_t common = own < (size_t)words ? own : (size_t)words;
    memset(mask, 0, (size_t)words * sizeof mask[0]);
    memcpy(mask, allowed, common * sizeof mask[0]);
    *complete = grammar_place_complete(state);
    return some || *complete;
}

const sequence_guide *guide_begin(guide *use)
{
    guide_grammar *x = use->grammar;
    CHECK(guide_state_of(use) == GUIDE_READY);
    if (!x->machine)
        x->machine = grammar_machine_open(x->compiled, use->guides->vocabulary);
    if (!use->place && x->machine)
        use->place = grammar_place_open(x->machine);
    if (!use->place)
        return NULL;
    use->sequence = (sequence_guide){ .state = use->place,
                                      .begin = place_begin,
                                      .advance = place_advance,
                                      .rewind = place_rewind,
                                      .follows = place_follows,
                                      .mask = place_mask };
    return &use->sequence;
}
