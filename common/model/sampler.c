#include "model/engine_parts.h"

#include <math.h>
#include <string.h>

static status number_check(const char *name, float value, float low, float high, error *failure)
{
    if (value >= low && value <= high)
        return STATUS_OK;
    return error_set(failure, STATUS_INVALID, name, "%s is %g; it must be %g to %g", name,
                     (double)value, (double)low, (double)high);
}

static status count_check(const char *name, int64_t value, int64_t low, int64_t high,
                          error *failure)
{
    if (value >= low && value <= high)
        return STATUS_OK;
    return error_set(failure, STATUS_INVALID, name, "%s is %lld; it must be %lld to %lld", name,
                     (long long)value, (long long)low, (long long)high);
}

// The guide hears what earlier attempts generated.
static status guide_begin(const sequence_request *request, error *failure)
{
    const sequence_guide *g = request->guide;
    if (request->ignore_eos)
        return error_set(failure, STATUS_INVALID, "ignore_eos",
                         "ignore_eos is true; with a grammar the text ends where that does");
    g->begin(g->state);
    for (int32_t i = request->prompt_count; i < request->token_count; i++)
        if (!g->advance(g->state, request->tokens[i]))
            return error_set(
                failure, STATUS_INVALID, "grammar",
                "token %d of the answer so far is %d, which the grammar does not allow",
                i - request->prompt_count, request->tokens[i]);
    return STATUS_OK;
}

status sampler_check(const engine *e, const sequence_request *request, error *failure)
{
    const backend_sample *s = &request->sampling;
    int64_t last = e->facts.vocabulary - 1;
    status result;
    TRY(number_check("temperature", s->temperature, 0, 100, failure));
    TRY(number_check("top_p", s->top_p, 0, 1, failure));
    TRY(number_check("min_p", s->min_p, 0, 1, failure));
    TRY(number_check("typical_p", s->typical_p, 0, 1, failure));
    TRY(number_check("repetition_penalty", s->repetition_penalty, 1e-3f, 1e3f, failure));
    TRY(number_check("frequency_penalty", s->frequency_penalty, -100, 100, failure));
    TRY(number_check("presence_penalty", s->presence_penalty, -100, 100, failure));
    TRY(count_check("top_k", s->top_k, 0, INT32_MAX, failure));
    TRY(count_check("top_logprobs", s->top_count, 0, BACKEND_TOP_MAX, failure));
    TRY(count_check("logit_bias entries", s->bias_count, 0, SEQUENCE_BIAS_MAX, failure));
    TRY(count_check("stop ids", request->stop_id_count, 0, SEQUENCE_STOP_IDS_MAX, failure));
    for (int32_t i = 0; i < s->bias_count; i++) {
        TRY(count_check("a token of logit_bias", s->biases[i].token, 0, last, failure));
        TRY(number_check("a value of logit_bias", s->biases[i].bias, -1e4f, 1e4f, failure));
    }
    for (int32_t i = 0; i < request->stop_id_count; i++)
        TRY(count_check("a stop id", request->stop_ids[i], 0, last, failure));
    if (request->guide)
        TRY(guide_begin(request, failure));
    return STATUS_OK;
fail:
    return result;
}

// Sift down in a heap of the largest; the two steps of heapsort (Williams 1964).
static void heap_sift(int32_t *values, int32_t root, int32_t count)
{
    for (int32_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && values[child + 1] > values[child])
            child++;
        if (values[root] >= values[child])
            return;
        int32_t swap = values[root];
        values[root] = values[child];
        values[child] = swap;
    }
}

// In place and without allocation, which qsort does not promise.
static void tokens_sort(int32_t *values, int32_t count)
{
    for (int32_t root = count / 2 - 1; root >= 0; root--)
        heap_sift(values, root, count);
    for (int32_t end = count - 1; end > 0; end--) {
        int32_t swap = values[0];
        values[0] = values[end];
        values[end] = swap;
        heap_sift(values, 0, end);
    }
}

static bool penalised(const sequence *s)
{
    return s->sampling.repetition_penalty != 1 || s->sampling.frequency_penalty != 0 ||
           s->sampling.presence_penalty != 0;
}

// One more occurrence of a token; the counts stay in ascending order of token.
static void counts_add(engine *e, sequence *s, int32_t token, int32_t generated)
{
    int32_t low = 0, high = s->sampling.count_count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (s->counts[middle].token < token)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == s->sampling.count_count || s->counts[low].token != token) {
        CHECK(s->sampling.count_count < e->counts_capacity);
        memmove(&s->counts[low + 1], &s->counts[low],
                (size_t)(s->sampling.count_count - low) * sizeof s->counts[0]);
        s->counts[low] = (backend_token_count){ token, 0, 0 };
        s->sampling.count_count++;
    }
    s->counts[low].generated += generated;
    s->counts[low].total++;
}

static void counts_begin(engine *e, sequence *s)
{
    if (!penalised(s))
        return;
    // A prompt may be long: sorting it once is cheaper than inserting its tokens one by one.
    int32_t *sorted = e->sort_scratch;
    memcpy(sorted, s->tokens, (size_t)s->prompt_count * sizeof sorted[0]);
    tokens_sort(sorted, s->prompt_count);
    for (int32_t i = 0; i < s->prompt_count; i++) {
        if (i == 0 || sorted[i] != sorted[i - 1])
            s->counts[s->sampling.count_count++] = (backend_token_count){ sorted[i], 0, 0 };
        s->counts[s->sampling.count_count - 1].total++;
    }
    for (int32_t i = s->prompt_count; i < s->token_count; i++)
        counts_add(e, s, s->tokens[i], 1);
}

bool sampler_ends(const engine *e, const sequence *s, int32_t token)
{
    const model_config *c = model_config_of(e->model);
    for (int32_t i = 0; i < s->stop_id_count; i++)
        if (s->stop_ids[i] == token)
            return true;
    for (int32_t i = 0; !s->ignore_eos && i < c->end_id_count; i++)
        if (c->end_ids[i] == token)
            return true;
    return false;
}

static void mask_begin(engine *e, sequence *s)
{
    const model_config *c = model_config_of(e->model);
    if (s->guide || s->min_tokens <= s->token_count - s->prompt_count)
        return;
    memset(s->mask, 0xff, (size_t)e->mask_words * sizeof s->mask[0]);
    for (int32_t i = 0; i < s->stop_id_count; i++)
        s->mask[s->stop_ids[i] / 64] &= ~(1ull << (s->stop_ids[i] % 64));
    for (int32_t i = 0; !s->ignore_eos && i < c->end_id_count; i++)
        s->mask[c->end_ids[i] / 64] &= ~(1ull << (c->end_ids[i] % 64));
}

void sampler_begin(engine *e, sequence *s, const sequence_request *request)
{
    s->max_tokens = request->max_tokens;
    s->min_tokens = request->min_tokens;
    s->ignore_eos = request->ignore_eos;
    s->logits_hash = request->logits_hash;
    s->stop_id_count = request->stop_id_count;
    memcpy(s->stop_ids, request->stop_ids, sizeof s->stop_ids);
    s->sampling = request->sampling;
    s->sampling.vocabulary = e->facts.vocabulary;
    s->sampling.counts = s->counts;
    s->sampling.count_count = 0;
    s->sampling.mask = NULL;
    s->sampling.biases = s->biases;
    s->guide = request->guide;
    s->guided = request->token_count - request->prompt_count; // by sampler_check
    if (request->sampling.bias_count > 0)
        memcpy(s->biases, request->sampling.biases,
               (size_t)request->sampling.bias_count * sizeof s->biases[0]);
    counts_begin(e, s);
    mask_begin(e, s);
}

static bool mask_is_empty(const engine *e, const sequence *s)
{
    uint64_t any = 0;
    for (int32_t i = 0; i < e->mask_words; i++)
        any |= s->mask[i];
    return any == 0;
}

// What the guide allows. Ids that would end the sequence before min_tokens are left out while that
// leaves anything.
static void mask_guide(const engine *e, sequence *s, bool early)
{
    const model_config *c = model_config_of(e->model);
    const sequence_guide *g = s->guide;
    bool complete = false;
    if (!g->mask(g->state, s->mask, e->mask_words, &complete)) {
        memset(s->mask, 0, (size_t)e->mask_words * sizeof s->mask[0]);
        return;
    }
    for (int32_t i = 0; early && i < s->stop_id_count; i++)
        s->mask[s->stop_ids[i] / 64] &= ~(1ull << (s->stop_ids[i] % 64));
    if (early && mask_is_empty(e, s))
        g->mask(g->state, s->mask, e->mask_words, &complete);
    else if (early)
        return;
    for (int32_t i = 0; complete && i < c->end_id_count; i++)
        s->mask[c->end_ids[i] / 64] |= 1ull << (c->end_ids[i] % 64);
}

backend_sample sampler_row(sequence *s)
{
    backend_sample row = s->sampling;
    int32_t generated = s->token_count - s->prompt_count;
    bool early = generated < s->min_tokens;
    row.output_index = (uint64_t)generated;
    row.mask = early || s->guide ? s->mask : NULL;
    if (s->guide)
        mask_guide(s->engine, s, early);
    return row;
}

sequence_finish sampler_finish_of(const engine *e, const sequence *s, int32_t token)
{
    int32_t count = s->token_count + 1;
    if (sampler_ends(e, s, token))
        return SEQUENCE_STOP;
    if (count - s->prompt_count >= s->max_tokens || count >= e->facts.context)
        return SEQUENCE_LENGTH;
    return SEQUENCE_UNFINISHED;
}

void sampler_remove(sequence *s)
{
    int32_t token = s->tokens[--s->token_count], at = 0;
    if (!penalised(s))
        return;
    while (s->counts[at].token != token)
        at++;
    s->counts[at].generated--;
    if (--s->counts[at].total > 0)
        return;
    s->sampling.count_count--;
    memmove(&s->counts[at], &s->counts[at + 1],
            (size_t)(s->sampling.count_count - at) * sizeof s->counts[0]);
}

bool sampler_add(engine *e, sequence *s, int32_t token)
{
    CHECK(token >= 0 && token < e->facts.vocabulary && s->token_count < e->facts.context);
    s->tokens[s->token_count++] = token;
    if (penalised(s))
        counts_add(e, s, token, 1);
    if (!s->guide || sampler_ends(e, s, token))
        return true;
    if (!s->guide->advance(s->guide->state, token))
        return false;
    s->guided++;
    return true;
}
