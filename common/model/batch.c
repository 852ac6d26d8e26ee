#include "model/engine_parts.h"

#include <string.h>

// Rows of a prompt in every step that has answers too: small enough not to be noticed beside them,
// and the prompt ends.
#define MIXED_ROWS_MIN 8

// Give a sequence's pages back; its owner has it computed again. What it proved stays known, so
// that the second time is short where pages allow it.
static void preempt(engine *e, sequence *s, engine_report *report)
{
    sequence_leave(e, s);
    sequence_pages_release(e, s);
    s->state = SEQUENCE_PREEMPTED;
    s->drafted = s->accepted = 0;
    e->preempted[report->preempted_count++] = s;
}

// Who leaves where a page is short: the youngest of the batch class, or else the youngest.
static sequence *victim(const engine *e)
{
    for (int32_t i = e->running_count - 1; i >= 0; i--)
        if (e->running[i]->class == SEQUENCE_BATCH)
            return e->running[i];
    return e->running[e->running_count - 1];
}

// The sequence that takes the next page: interactive ones first, and in each class the oldest.
static sequence *page_needed(const engine *e)
{
    for (sequence_class class = 0; class < SEQUENCE_CLASSES; class ++)
        for (int32_t i = 0; i < e->running_count; i++) {
            sequence *s = e->running[i];
            if (s->class == class && s->joined && s->state == SEQUENCE_DECODING &&
                s->computed / e->kv.layout.page_tokens >= s->page_count)
                return s;
        }
    return NULL;
}

// A page for the next position of every decoding sequence. Each round gives one its page or makes
// it leave, and the oldest interactive one leaves last.
static void pages_grow(engine *e, engine_report *report)
{
    for (sequence *s; (s = page_needed(e)) != NULL;) {
        if (sequence_pages_take(e, s, 1) != STATUS_OK)
            preempt(e, victim(e), report);
    }
}

// With static batching nobody joins before the last one has left.
static void join(engine *e)
{
    bool empty = true;
    for (int32_t i = 0; i < e->running_count; i++)
        empty = empty && !e->running[i]->joined;
    for (int32_t i = 0; i < e->running_count; i++)
        e->running[i]->joined = e->running[i]->joined || empty || !e->static_batching;
}

// Add the next `count` tokens of a sequence.
static void rows_add(engine *e, sequence *s, int32_t count)
{
    backend_batch *b = &e->batch;
    step_arrays *a = &e->arrays;
    int32_t page_tokens = e->kv.layout.page_tokens, index = b->sequences++;
    for (int32_t i = 0; i < count; i++) {
        a->tokens[b->rows + i] = s->tokens[s->computed + i];
        a->positions[b->rows + i] = s->computed + i;
        a->row_sequence[b->rows + i] = index;
    }
    int32_t first = s->computed / page_tokens, last = (s->computed + count - 1) / page_tokens;
    bool draws = s->state == SEQUENCE_DECODING || s->computed + count == s->token_count;
    CHECK(last < s->page_count);
    for (int32_t page = first; page <= last; page++)
        CHECK(!kv_pool_kept(e->pool, s->pages[page])); // a known page is read-only
    memcpy(a->tables + (size_t)index * (size_t)e->pages_per_sequence, s->pages,
           (size_t)s->page_count * sizeof s->pages[0]);
    a->lengths[index] = s->computed + count;
    e->batch_sequences[index] = s;
    e->batch_rows[index] = count;
    b->rows += count;
    e->work.rows += count;
    if (s->state == SEQUENCE_DECODING)
        e->work.decode_context += s->computed + count;
    else
        e->work.prompt_pairs += (double)count * (s->computed + count);
    a->first_row[index + 1] = b->rows;
    if (s->scores && s->state == SEQUENCE_COMPUTING)
        score_add(e, s, b->rows - count, count);
    e->batch_logits[index] = draws ? b->logit_rows : -1;
    // Each row of an answer has a token behind it; of a prompt only the last one.
    int32_t drawn = s->state == SEQUENCE_DECODING ? count : 1;
    for (int32_t i = 0; draws && i < drawn; i++)
        a->logit_index[b->logit_rows++] = b->rows - drawn + i;
}

// The row of an answer, and the rows of its draft for which there are pages.
static void answer_add(engine *e, sequence *s)
{
    int32_t page_tokens = e->kv.layout.page_tokens;
    while (s->draft_count > 0 && s->computed + s->draft_count >= s->page_count * page_tokens &&
           (s->page_count == e->pages_per_sequence || sequence_pages_take(e, s, 1) != STATUS_OK))
        s->draft_count = s->page_count * page_tokens - s->computed - 1;
    rows_add(e, s, 1 + s->draft_count);
}

// Tokens left, less what was computed for others since it was started.
static int64_t rest_of(const engine *e, const sequence *s)
{
    int64_t own = s->computed - s->reused;
    return s->token_count - s->computed - (e->prompt_rows - s->passed_at - own);
}

// The prompt of a class that comes next in this step; NULL: none is left.
static sequence *prompt_next(const engine *e, sequence_class class)
{
    sequence *best = NULL;
    for (int32_t i = 0; i < e->running_count; i++) {
        sequence *s = e->running[i];
        bool taken = false;
        if (s->state != SEQUENCE_COMPUTING || s->class != class || !s->joined ||
            (s->scores && score_room(e) == 0))
            continue;
        for (int32_t k = 0; k < e->batch.sequences; k++)
            taken = taken || e->batch_sequences[k] == s;
        if (!taken && (best == NULL || rest_of(e, s) < rest_of(e, best)))
            best = s;
    }
    return best;
}

// How many of `room` rows the next chunk may take beside what is in the step already; `least` of
// them whatever the time.
static int32_t chunk_rows(const engine *e, const sequence *s, int32_t room, int32_t least)
{
    int32_t count = s->token_count - s->computed;
    if (count > e->settings.chunk_tokens)
        count = (int32_t)e->settings.chunk_tokens;
    if (s->scores && count > score_room(e))
        count = score_room(e);
    if (count > room)
        count = room;
    if (e->work.decode_context == 0 || e->settings.mixed_step_us == 0)
        return count;
    int32_t fit =
        cost_rows(&e->cost, &e->work, s->computed, (double)e->settings.mixed_step_us, count);
    fit = fit > least ? fit : least;
    return fit < count ? fit : count;
}

// Chunks of one class in at most `room` rows; returns how many it used.
static int32_t prompts_add(engine *e, sequence_class class, int32_t room, int32_t least)
{
    int32_t used = 0;
    for (sequence *s; room > used && (s = prompt_next(e, class)) != NULL;) {
        sequence_prefix_extend(e, s);
        int32_t count = chunk_rows(e, s, room - used, least - used);
        if (count <= 0)
            break;
        rows_add(e, s, count);
        used += count;
    }
    return used;
}

// What the step's rows leave for prompts, divided between the classes.
static void prompts_compose(engine *e)
{
    int32_t room = (int32_t)e->settings.step_tokens - e->batch.rows, kept = 0;
    if (e->batch.rows > 0 && e->settings.mixed_tokens > 0 && room > e->settings.mixed_tokens)
        room = (int32_t)e->settings.mixed_tokens;
    const sequence *batch = prompt_next(e, SEQUENCE_BATCH);
    bool both = batch != NULL && prompt_next(e, SEQUENCE_INTERACTIVE) != NULL;
    if (both) {
        kept = (int32_t)((room * e->settings.batch_share + 99) / 100);
        int32_t rest = batch->token_count - batch->computed;
        kept = kept < rest ? kept : rest;
    }
    room -= prompts_add(e, SEQUENCE_INTERACTIVE, room - kept, MIXED_ROWS_MIN);
    int32_t least = both && kept < MIXED_ROWS_MIN ? kept : MIXED_ROWS_MIN;
    prompts_add(e, SEQUENCE_BATCH, room, least);
}

bool batch_compose(engine *e, engine_report *report)
{
    const step_arrays *a = &e->arrays;
    e->batch = (backend_batch){
        .tokens = a->tokens,
        .positions = a->positions,
        .row_sequence = a->row_sequence,
        .first_row = a->first_row,
        .lengths = a->lengths,
        .tables = a->tables,
        .table_stride = e->pages_per_sequence,
        .logit_index = a->logit_index,
    };
    e->work = (cost_work){ 0 };
    e->score_count = 0;
    join(e);
    pages_grow(e, report);
    for (int32_t i = 0; i < e->running_count; i++)
        if (e->running[i]->state == SEQUENCE_DECODING && e->running[i]->joined)
            answer_add(e, e->running[i]);
    e->drafts = 0;
    report->decode_rows = e->batch.rows;
    prompts_compose(e);
    report->rows = e->batch.rows;
    report->prefill_rows = report->rows - report->decode_rows;
    report->predicted_us = (uint64_t)cost_predict(&e->cost, &e->work);
    cost_work without = e->work;
    without.decode_context = 0;
    report->context_us = report->predicted_us - (uint64_t)cost_predict(&e->cost, &without);
    return report->rows > 0;
}
