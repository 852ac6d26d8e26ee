#include "router/history.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdlib.h>

struct history {
    size_t capacity;
    uint64_t newest;  // number
    timeline slots[]; // number n lives in slot n % capacity
};

status history_open(size_t capacity, history **opened)
{
    history *h = calloc(1, sizeof *h + capacity * sizeof h->slots[0]);
    if (!h)
        return STATUS_NO_MEMORY;
    h->capacity = capacity;
    *opened = h;
    return STATUS_OK;
}

void history_close(history *h)
{
    free(h);
}

timeline *history_add(history *h, uint64_t number)
{
    timeline *t = &h->slots[number % h->capacity];
    *t = (timeline){ .number = number, .outcome = "running" };
    h->newest = number;
    return t;
}

timeline *history_number(history *h, uint64_t number)
{
    timeline *t = &h->slots[number % h->capacity];
    return t->number == number && t->outcome ? t : NULL;
}

timeline *history_find(history *h, slice id)
{
    timeline *found = NULL;
    for (size_t i = 0; i < h->capacity; i++) {
        timeline *t = &h->slots[i];
        if (!t->outcome)
            continue;
        if (slice_equal(id, slice_of(t->id)))
            return t;
        if (slice_equal(id, slice_of(t->http_id)) && (!found || t->number > found->number))
            found = t;
    }
    return found;
}

static void append_time(const timeline *t, const char *name, uint64_t at, buffer *out)
{
    buffer_printf(out, ",\"%s\":", name);
    if (at == 0)
        buffer_append_text(out, "null");
    else
        buffer_printf(out, "%.3f", ((double)at - (double)t->arrived) / 1000);
}

static void append_name(const char *field, const char *name, buffer *out)
{
    buffer_printf(out, ",\"%s\":", field);
    if (name && name[0])
        buffer_append_json(out, slice_of(name));
    else
        buffer_append_text(out, "null");
}

void history_render(const timeline *t, buffer *out)
{
    buffer_append_text(out, "{\"id\":");
    buffer_append_json(out, slice_of(t->id));
    append_name("http_id", t->http_id, out);
    append_name("model", t->model, out);
    append_name("outcome", t->outcome, out);
    append_name("prefill_worker", t->prefill_worker, out);
    append_name("decode_worker", t->decode_worker, out);
    append_name("local_prefill", t->local, out);
    buffer_printf(out,
                  ",\"age_ms\":%.0f,\"attempts\":%u,\"prompt_tokens\":%" PRIu64
                  ",\"cached_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
                  ",\"handed_over_bytes\":%" PRIu64,
                  (double)(clock_now_us() - t->arrived) / 1000, t->attempts, t->prompt_tokens,
                  t->cached_tokens, t->completion_tokens, t->handed_over_bytes);
    buffer_append_text(out, ",\"times_ms\":{\"arrived\":0");
    append_time(t, "parsed", t->parsed, out);
    append_time(t, "routed", t->routed, out);
    append_time(t, "prefill_begun", t->prefill_begun, out);
    append_time(t, "prefill_done", t->prefill_done, out);
    append_time(t, "first_page", t->first_page, out);
    append_time(t, "last_page", t->last_page, out);
    append_time(t, "handed_over", t->handed_over, out);
    append_time(t, "first_step", t->first_step, out);
    append_time(t, "first_token", t->first_token, out);
    append_time(t, "first_byte", t->first_byte, out);
    append_time(t, "done", t->done, out);
    buffer_printf(out, "},\"clock_error_ms\":{\"prefill\":%.3f,\"decode\":%.3f}}",
                  (double)t->prefill_clock_error_us / 1000,
                  (double)t->decode_clock_error_us / 1000);
}

void history_render_newest(const history *h, size_t limit, buffer *out)
{
    buffer_append_byte(out, '[');
    for (uint64_t i = 0; i < limit && i < h->capacity && i < h->newest; i++) {
        const timeline *t = &h->slots[(h->newest - i) % h->capacity];
        if (!t->outcome || t->number != h->newest - i)
            break;
        if (i)
            buffer_append_byte(out, ',');
        history_render(t, out);
    }
    buffer_append_byte(out, ']');
}

double timeline_seconds(uint64_t from, uint64_t to)
{
    return from && to > from ? (double)(to - from) / 1e6 : 0;
}
