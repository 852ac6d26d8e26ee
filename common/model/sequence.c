#include "model/engine_parts.h"

#include <string.h>

static sequence *slot_find(engine *e)
{
    for (int32_t i = 0; i < e->facts.max_sequences; i++)
        if (e->slots[i].state == SEQUENCE_CLOSED)
            return &e->slots[i];
    return NULL;
}

static status request_check(const engine *e, const sequence_request *r, error *failure)
{
    int32_t context = e->facts.context, generated = r->token_count - r->prompt_count;
    if (r->token_count < 1)
        return error_set(failure, STATUS_INVALID, "prompt", "the prompt has no token");
    if (r->token_count >= context)
        return error_set(failure, STATUS_CONTEXT_LENGTH, "prompt",
                         "the prompt has %d tokens; this model and its cache hold %d with at least "
                         "one of the answer",
                         r->token_count, context);
    if (r->prompt_count < 1 || r->prompt_count > r->token_count)
        return error_set(failure, STATUS_INVALID, "prompt_count",
                         "prompt_count is %d; it must be 1 to %d", r->prompt_count, r->token_count);
    if (r->max_tokens <= generated)
        return error_set(failure, STATUS_INVALID, "max_tokens",
                         "max_tokens is %d and %d are generated already", r->max_tokens, generated);
    if (r->min_tokens < 0 || r->min_tokens > r->max_tokens)
        return error_set(failure, STATUS_INVALID, "min_tokens",
                         "min_tokens is %d; it must be 0 to max_tokens, %d", r->min_tokens,
                         r->max_tokens);
    if (r->scores && e->settings.score_tokens == 0)
        return error_set(failure, STATUS_UNSUPPORTED, "prompt_logprobs",
                         "log-probabilities of prompts are not given here (engine.score_tokens 0)");
    for (int32_t i = 0; i < r->token_count; i++)
        if (r->tokens[i] < 0 || r->tokens[i] >= e->facts.vocabulary)
            return error_set(failure, STATUS_INVALID, "prompt",
                             "token %d of the prompt is %d; the vocabulary has %d", i, r->tokens[i],
                             e->facts.vocabulary);
    return sampler_check(e, r, failure);
}

static void pages_release_last(engine *e, sequence *s, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        kv_pool_release(e->pool, s->pages[--s->page_count]);
}

void sequence_pages_release(engine *e, sequence *s)
{
    pages_release_last(e, s, s->page_count);
}

// Who gets a page must not find another tenant's numbers in it. Own ones may stay: attention reads
// no position that was not written for this sequence.
static void page_clear(engine *e, hash128 tenant, int32_t page)
{
    size_t bytes = (size_t)e->kv.layout.page_bytes;
    if (!hash128_equal(e->page_tenants[page], tenant))
        memset((char *)e->kv.memory.data + (size_t)page * bytes, 0, bytes);
    e->page_tenants[page] = tenant;
}

status sequence_pages_take(engine *e, sequence *s, int32_t count)
{
    status result = kv_pool_take(e->pool, count, s->pages + s->page_count);
    if (result != STATUS_OK)
        return result;
    for (int32_t i = 0; e->page_tenants && i < count; i++)
        page_clear(e, s->tenant, s->pages[s->page_count + i]);
    s->page_count += count;
    return STATUS_OK;
}

// Pages beyond `held` that an answer takes when it has grown by growth_tokens, or by the `left`
// that may still follow (the last of which is never stored).
static int32_t growth_pages(const engine *e, int32_t token_count, int32_t left, int32_t held)
{
    int64_t growth = e->settings.growth_tokens < left ? e->settings.growth_tokens : left;
    int64_t grown = token_count + growth - 1, last = e->facts.context - 1;
    int32_t pages = engine_pages_needed(e, (int32_t)(grown < last ? grown : last));
    return pages > held ? pages - held : 0;
}

// Whether `taken` more pages may be taken for the request: running answers keep their room to grow.
static bool growth_allows(const engine *e, const sequence_request *r, int32_t taken)
{
    int64_t kept = 0;
    if (e->open_count == 0 || e->settings.growth_tokens == 0)
        return true;
    for (int32_t i = 0; i < e->facts.max_sequences; i++) {
        const sequence *s = &e->slots[i];
        bool grows = s->mode == SEQUENCE_GENERATE && s->state >= SEQUENCE_OPEN &&
                     s->state <= SEQUENCE_DECODING;
        if (grows)
            kept += growth_pages(e, s->token_count,
                                 s->max_tokens - (s->token_count - s->prompt_count), s->page_count);
    }
    if (r->mode == SEQUENCE_GENERATE)
        kept += growth_pages(e, r->token_count, r->max_tokens - (r->token_count - r->prompt_count),
                             engine_pages_needed(e, r->token_count));
    return taken + kept <= engine_pages_free(e);
}

// Share the known prefix, then take the rest. The last token is never reused: its logits are
// needed.
static status pages_take(engine *e, sequence *s, const sequence_request *r)
{
    int32_t page_tokens = e->kv.layout.page_tokens;
    int32_t needed = engine_pages_needed(e, r->token_count + r->spare_tokens), shared = 0;
    needed = needed < e->pages_per_sequence ? needed : e->pages_per_sequence;
    s->tenant = r->prefix_salt;
    s->chain = kv_reuse_seed(e->facts.numeric_id, e->kv.layout.name, page_tokens, r->prefix_salt);
    if (e->reuse && !r->scores)
        shared = kv_reuse_take(e->reuse, s->chain, r->tokens, (r->token_count - 1) / page_tokens,
                               s->pages, &s->chain);
    s->page_count = shared;
    status result = STATUS_OVERLOADED;
    if (growth_allows(e, r, needed - shared))
        result = sequence_pages_take(e, s, needed - shared);
    if (result != STATUS_OK) {
        sequence_pages_release(e, s);
        return result;
    }
    s->chained = shared;
    s->computed = s->reused = shared * page_tokens;
    return STATUS_OK;
}

status engine_sequence_open(engine *e, const sequence_request *request, sequence **opened,
                            error *failure)
{
    status result = request_check(e, request, failure);
    if (result != STATUS_OK)
        return result;
    sequence *s = slot_find(e);
    if (!s)
        return error_set(failure, STATUS_OVERLOADED, "sequences", "all %d sequences are in use",
                         e->facts.max_sequences);
    if (pages_take(e, s, request) != STATUS_OK)
        return error_set(failure, STATUS_OVERLOADED, "pages",
                         "%d pages are needed and %d of %d can be taken now",
                         engine_pages_needed(e, request->token_count), engine_pages_free(e),
                         e->facts.pages);
    s->state = SEQUENCE_OPEN;
    s->owner = request->owner;
    s->mode = request->mode;
    s->class = request->class;
    s->joined = false;
    s->draft_count = s->drafted = s->accepted = 0;
    s->scores = request->scores;
    s->unscored = false;
    s->token_count = request->token_count;
    s->prompt_count = request->prompt_count;
    memcpy(s->tokens, request->tokens, (size_t)request->token_count * sizeof s->tokens[0]);
    sampler_begin(e, s, request);
    e->open_count++;
    *opened = s;
    return STATUS_OK;
}

// Where the prompt ends with a page and that one is known too, copy it: a shared page is never
// written, and of the private copy only the last token is computed again, to the same bits.
static void last_page_copy(engine *e, sequence *s)
{
    int32_t page_tokens = e->kv.layout.page_tokens;
    if (s->token_count % page_tokens != 0 || s->computed != s->token_count - page_tokens)
        return;
    int32_t known = kv_reuse_find(e->reuse, s->chain, s->tokens + s->computed, NULL);
    if (known < 0)
        return;
    CHECK(known != s->pages[s->chained]); // that one is this sequence's own and was never computed
    kv_pool_hold(e->pool, known);
    e->arrays.copy_pair[0] = known;
    e->arrays.copy_pair[1] = s->pages[s->chained];
    e->table->kv_copy(e->queue, &e->kv, e->arrays.copy_pair, 1);
    e->table->queue_wait(e->queue, e->table->queue_submit(e->queue));
    kv_pool_release(e->pool, known);
    s->computed = s->reused = s->token_count - 1;
}

// What others computed since this one took its pages is shared too, as long as it has computed
// nothing itself: a crowd with one beginning computes that once.
void sequence_prefix_extend(engine *e, sequence *s)
{
    int32_t page_tokens = e->kv.layout.page_tokens;
    if (!e->reuse || s->scores || s->computed != s->reused ||
        s->computed != s->chained * page_tokens)
        return;
    while ((s->chained + 1) * page_tokens < s->token_count) {
        hash128 self;
        int32_t known = kv_reuse_find(e->reuse, s->chain, s->tokens + s->computed, &self);
        if (known < 0)
            break;
        kv_pool_hold(e->pool, known);
        kv_pool_release(e->pool, s->pages[s->chained]);
        s->pages[s->chained++] = known;
        s->chain = self;
        s->computed = s->reused = s->chained * page_tokens;
    }
    last_page_copy(e, s);
}

static void sequence_join(engine *e, sequence *s, sequence_state state)
{
    CHECK(s->state == SEQUENCE_OPEN && e->running_count < e->facts.max_sequences);
    s->state = state;
    s->passed_at = e->prompt_rows;
    e->running[e->running_count++] = s;
}

void engine_sequence_start(engine *e, sequence *s)
{
    sequence_prefix_extend(e, s);
    sequence_join(e, s, SEQUENCE_COMPUTING);
}

status engine_sequence_place(engine *e, sequence *s, int32_t computed, const int32_t *tokens,
                             int32_t count)
{
    CHECK(s->state == SEQUENCE_OPEN && count >= 1);
    if (computed != s->token_count + count - 1 ||
        computed > s->page_count * e->kv.layout.page_tokens || computed >= e->facts.context)
        return STATUS_INVALID;
    for (int32_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= e->facts.vocabulary ||
            sampler_finish_of(e, s, tokens[i]) != SEQUENCE_UNFINISHED ||
            !sampler_add(e, s, tokens[i]))
            return STATUS_INVALID;
    }
    s->computed = computed;
    sequence_join(e, s, SEQUENCE_DECODING);
    return STATUS_OK;
}

void engine_sequence_rest(engine *e, sequence *s)
{
    CHECK(s->state == SEQUENCE_DECODING || (e->settings.rewinds && s->state == SEQUENCE_COMPUTING));
    sequence_leave(e, s);
    s->state = SEQUENCE_RESTING;
}

void engine_sequence_resume(engine *e, sequence *s)
{
    CHECK(e->settings.rewinds && s->state == SEQUENCE_RESTING);
    CHECK(s->computed < s->token_count && e->running_count < e->facts.max_sequences);
    s->passed_at = e->prompt_rows;
    s->state = s->token_count - s->computed > 1 ? SEQUENCE_COMPUTING : SEQUENCE_DECODING;
    e->running[e->running_count++] = s;
}

// Room for the KV of all but the last of `count` tokens, and for the row of that one.
static status pages_reach(engine *e, sequence *s, int32_t count)
{
    int32_t needed = engine_pages_needed(e, count - 1);
    return needed > s->page_count ? sequence_pages_take(e, s, needed - s->page_count) : STATUS_OK;
}

// The guide was told the first `count` tokens of the answer and no more: it goes back there, or
// hears them anew, up to one that it does not allow.
static void guide_rewind(sequence *s, int32_t count)
{
    const sequence_guide *g = s->guide;
    if (!g)
        return;
    if (count <= s->guided && g->rewind(g->state, s->guided - count)) {
        s->guided = count;
        return;
    }
    g->begin(g->state);
    s->guided = 0;
    while (s->guided < count && g->advance(g->state, s->tokens[s->prompt_count + s->guided]))
        s->guided++;
}

status engine_sequence_rewind(engine *e, sequence *s, const int32_t *tokens, int32_t count)
{
    CHECK(e->settings.rewinds && s->state >= SEQUENCE_COMPUTING && s->state <= SEQUENCE_RESTING);
    int32_t common = s->prompt_count;
    if (count <= common || count >= e->facts.context || count - common >= s->max_tokens ||
        memcmp(tokens, s->tokens, (size_t)common * sizeof tokens[0]) != 0)
        return STATUS_INVALID;
    for (int32_t i = common; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= e->facts.vocabulary)
            return STATUS_INVALID;
    status result = pages_reach(e, s, count);
    if (result != STATUS_OK)
        return result;
    while (common < count && common < s->token_count && tokens[common] == s->tokens[common])
        common++;
    while (s->token_count > common)
        sampler_remove(s);
    guide_rewind(s, common - s->prompt_count);
    while (s->token_count < count)
        sampler_add(e, s, tokens[s->token_count]);
    s->computed = s->computed < common ? s->computed : common;
    s->computed = s->computed < count - 1 ? s->computed : count - 1;
    s->draft_count = 0;
    if (s->guide && s->guided < count - s->prompt_count)
        return STATUS_INVALID;
    if (s->state != SEQUENCE_RESTING)
        sequence_leave(e, s);
    s->state = SEQUENCE_RESTING;
    engine_sequence_resume(e, s);
    return STATUS_OK;
}

int32_t engine_sequence_draft(engine *e, sequence *s, const int32_t *tokens, int32_t count)
{
    CHECK(s->draft_count == 0);
    if (s->state != SEQUENCE_DECODING || !s->joined)
        return 0;
    int32_t room = (int32_t)e->settings.step_tokens - e->facts.max_sequences;
    room = (room < e->settings.draft_tokens ? room : (int32_t)e->settings.draft_tokens) - e->drafts;
    int32_t left = s->max_tokens - (s->token_count - s->prompt_count);
    left = left < e->facts.context - s->token_count ? left : e->facts.context - s->token_count;
    room = room < left - 1 ? room : left - 1; // one token is drawn whatever the draft is
    room = room < count ? room : count;
    if (s->guide && room > 0)
        room = s->guide->follows(s->guide->state, tokens, room);
    while (s->draft_count < room) {
        int32_t token = tokens[s->draft_count];
        if (token < 0 || token >= e->facts.vocabulary || sampler_ends(e, s, token))
            break;
        s->tokens[s->token_count + s->draft_count++] = token;
    }
    e->drafts += s->draft_count;
    return s->draft_count;
}

void sequence_drafted(const sequence *s, int32_t *drafted, int32_t *accepted)
{
    *drafted = s->drafted;
    *accepted = s->accepted;
}

void sequence_leave(engine *e, sequence *s)
{
    int32_t at = 0;
    s->draft_count = 0;
    while (at < e->running_count && e->running[at] != s)
        at++;
    CHECK(at < e->running_count);
    e->running_count--;
    memmove(&e->running[at], &e->running[at + 1],
            (size_t)(e->running_count - at) * sizeof e->running[0]);
}

void sequence_publish(engine *e, sequence *s)
{
    int32_t page_tokens = e->kv.layout.page_tokens;
    int32_t end =
        e->settings.rewinds && s->prompt_count < s->computed ? s->prompt_count : s->computed;
    while (e->reuse && (s->chained + 1) * page_tokens <= end) {
        kv_reuse_add(e->reuse, &s->chain, s->tokens + (size_t)s->chained * (size_t)page_tokens,
                     s->pages[s->chained]);
        s->chained++;
    }
}

void engine_sequence_close(engine *e, sequence *s, bool keep)
{
    CHECK(s->engine == e && s->state != SEQUENCE_CLOSED);
    if (s->state == SEQUENCE_COMPUTING || s->state == SEQUENCE_DECODING)
        sequence_leave(e, s);
    // Pages whose numbers were proven are known since then; only doubt has to be acted on here.
    int32_t first_own = s->reused / e->kv.layout.page_tokens;
    for (int32_t i = first_own; e->reuse && !keep && i < s->page_count; i++)
        kv_reuse_forget(e->reuse, s->pages[i]);
    sequence_pages_release(e, s);
    s->state = SEQUENCE_CLOSED;
    e->open_count--;
}

void *sequence_owner(const sequence *s)
{
    return s->owner;
}

int32_t sequence_computed(const sequence *s)
{
    return s->computed;
}

int32_t sequence_reused(const sequence *s)
{
    return s->reused;
}

const int32_t *sequence_tokens(const sequence *s, int32_t *count)
{
    *count = s->token_count;
    return s->tokens;
}

const int32_t *sequence_pages(const sequence *s, int32_t *count)
{
    *count = s->page_count;
    return s->pages;
}
