#include "router/status_guesses.h"

#include <inttypes.h>

static void append_numbers(const char *name, const uint64_t *numbers, size_t count, buffer *out)
{
    buffer_printf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < count; i++)
        buffer_printf(out, i > 0 ? ",%" PRIu64 : "%" PRIu64, numbers[i]);
    buffer_append_byte(out, ']');
}

static void append_drafters(const guesses_drafter *drafters, size_t count, buffer *out)
{
    buffer_append_text(out, ",\"drafters\":[");
    for (size_t i = 0; i < count; i++) {
        const guesses_drafter *d = &drafters[i];
        buffer_append_text(out, i > 0 ? ",{\"name\":" : "{\"name\":");
        buffer_append_json(out, slice_of(d->name));
        buffer_append_text(out, ",\"draft\":");
        buffer_append_json(out, slice_of(d->draft));
        buffer_printf(out,
                      ",\"right\":%" PRIu64 ",\"wrong\":%" PRIu64 ",\"behind\":%" PRIu64
                      ",\"alpha\":%.3f,\"low\":%.3f,\"high\":%.3f,\"outcomes\":%.0f"
                      ",\"expected\":%.3f,\"break_even\":%.3f,\"below_s\":%.1f",
                      d->right, d->wrong, d->behind, d->alpha, d->low, d->high, d->outcomes,
                      d->expected, d->break_even, d->below_s);
        append_numbers("tried", d->tried, d->positions, out);
        append_numbers("held", d->held, d->positions, out);
        buffer_append_byte(out, '}');
    }
    buffer_append_byte(out, ']');
}

static void append_class(const guesses_class *c, buffer *out)
{
    buffer_append_text(out, "{\"name\":");
    buffer_append_json(out, slice_of(c->name));
    buffer_append_text(out, ",\"sentence\":");
    buffer_append_json(out, slice_of(c->sentence));
    buffer_append_text(out, ",\"state\":");
    buffer_append_json(out, slice_of(c->state));
    buffer_append_text(out, ",\"drafter\":");
    buffer_append_json(out, slice_of(c->drafter));
    buffer_printf(out,
                  ",\"alpha\":%.3f,\"break_even\":%.3f,\"tokens_per_step\":%.3f"
                  ",\"tokens_per_s\":%.2f,\"gained_per_s\":%.2f,\"states\":[",
                  c->alpha, c->break_even, c->tokens_per_step, c->tokens_per_s, c->gained_per_s);
    for (size_t i = 0; i < c->state_count; i++) {
        buffer_append_text(out, i > 0 ? ",{\"name\":" : "{\"name\":");
        buffer_append_json(out, slice_of(c->states[i].name));
        buffer_printf(out, ",\"rows\":%" PRIu64 ",\"share\":%.4f}", c->states[i].rows,
                      c->states[i].share);
    }
    buffer_append_byte(out, ']');
    append_drafters(c->drafters, c->drafter_count, out);
    buffer_append_byte(out, '}');
}

void status_guesses_append(const guesses *g, buffer *out)
{
    if (g->sentence[0] == '\0')
        return;
    buffer_append_text(out, ",\"guesses\":{\"sentence\":");
    buffer_append_json(out, slice_of(g->sentence));
    buffer_printf(
        out,
        ",\"break_even\":%.3f,\"batch\":%u,\"steps_on\":%" PRIu64 ",\"steps_probing\":%" PRIu64
        ",\"steps_off\":%" PRIu64 ",\"steps_prompts\":%" PRIu64,
        g->break_even, g->batch, g->steps_on, g->steps_probing, g->steps_off, g->steps_prompts);
    append_drafters(g->drafters, g->drafter_count, out);
    buffer_append_text(out, ",\"classes\":[");
    for (size_t i = 0; i < g->class_count; i++) {
        if (i > 0)
            buffer_append_byte(out, ',');
        append_class(&g->classes[i], out);
    }
    buffer_append_text(out, "]}");
}
