#include "model/engine_parts.h"

#include <string.h>

// Give a sequence's pages back; its owner has it computed again. What it proved stays known, so
// that the second time is short where pages allow it.
static void preempt(engine *e, sequence *s, engine_report *report)
{
    sequence_leave(e, s);
    sequence_pages_release(e, s);
    s->state = SEQUENCE_PREEMPTED;
    e->preempted[report->preempted_count++] = s;
}

// A page for the next position of every decoding sequence, oldest first. Where none is left the
// youngest started sequence is preempted, so the oldest always goes on.
static void pages_grow(engine *e, engine_report *report)
{
    for (int32_t i = 0; i < e->running_count; i++) {
        sequence *s = e->running[i];
        if (s->state != SEQUENCE_DECODING || s->computed / e->kv.layout.page_tokens < s->page_count)
            continue;
        while (kv_pool_take(e->pool, 1, &s->pages[s->page_count]) != STATUS_OK) {
            sequence *youngest = e->running[e->running_count - 1];
            preempt(e, youngest, report);
            if (youngest == s)
                return;
        }
        s->page_count++;
    }
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
    CHECK(last < s->page_count);
    for (int32_t page = first; page <= last; page++)
        CHECK(!kv_pool_kept(e->pool, s->pages[page])); // a known page is read-only
    memcpy(a->tables + (size_t)index * (size_t)e->pages_per_sequence, s->pages,
           (size_t)s->page_count * sizeof s->pages[0]);
    a->lengths[index] = s->computed + count;
    e->batch_sequences[index] = s;
    e->batch_rows[index] = count;
    b->rows += count;
    a->first_row[index + 1] = b->rows;
    if (s->computed + count == s->token_count) {
        a->logit_index[b->logit_rows] = b->rows - 1;
        e->logit_sequences[b->logit_rows++] = s;
    }
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
    pages_grow(e, report);
    for (int32_t i = 0; i < e->running_count; i++)
        if (e->running[i]->state == SEQUENCE_DECODING)
            rows_add(e, e->running[i], 1);
    report->decode_rows = e->batch.rows;
    for (int32_t i = 0; i < e->running_count; i++) {
        sequence *s = e->running[i];
        int32_t room = (int32_t)e->settings.step_tokens - e->batch.rows;
        if (s->state != SEQUENCE_COMPUTING || room == 0)
            continue;
        sequence_prefix_extend(e, s);
        int32_t count = s->token_count - s->computed;
        if (count > e->settings.chunk_tokens)
            count = (int32_t)e->settings.chunk_tokens;
        rows_add(e, s, count < room ? count : room);
    }
    report->rows = e->batch.rows;
    report->prefill_rows = report->rows - report->decode_rows;
    return report->rows > 0;
}
