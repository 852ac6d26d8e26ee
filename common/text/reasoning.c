#include "text/reasoning.h"

#define OPENING SLICE("<think>")
#define CLOSING SLICE("</think>")

enum {
    BEFORE,  // white space only so far
    ENTERED, // behind the opening mark, white space only so far
    INSIDE,
    LEFT, // behind the closing mark, white space only so far
    CONTENT,
};
enum { WHITE_SPACE_MAX = 256 }; // held at a time

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static const char *last_of(slice text, slice mark)
{
    for (size_t i = text.size; i >= mark.size; i--)
        if (memcmp(text.data + i - mark.size, mark.data, mark.size) == 0)
            return text.data + i - mark.size;
    return NULL;
}

bool reasoning_in_template(slice source)
{
    return last_of(source, CLOSING) != NULL;
}

bool reasoning_is_open(slice prompt)
{
    const char *opening = last_of(prompt, OPENING), *closing = last_of(prompt, CLOSING);
    return opening && (!closing || closing < opening);
}

void reasoning_begin(reasoning *r, bool opened)
{
    *r = (reasoning){ .state = opened ? ENTERED : BEFORE };
}

void reasoning_close(reasoning *r)
{
    buffer_close(&r->held);
}

// The `size` first bytes of what is held are no mark.
static void let_through(reasoning *r, size_t size, buffer *thought, buffer *content)
{
    bool inside = r->state == ENTERED || r->state == INSIDE;
    buffer_append(inside ? thought : content, r->held.data, size);
    buffer_drop_front(&r->held, size);
    r->state = inside ? INSIDE : CONTENT;
}

static void step(reasoning *r, char c, buffer *thought, buffer *content)
{
    buffer_append_byte(&r->held, c);
    while (r->held.size > 0 && r->state != CONTENT) {
        bool begins = r->state == ENTERED || r->state == LEFT;
        size_t space = 0;
        while (space < r->held.size && is_space(r->held.data[space]))
            space++;
        if (begins) { // layout
            buffer_drop_front(&r->held, space);
            space = 0;
        }
        slice rest = { r->held.data + space, r->held.size - space };
        if (rest.size == 0 && space <= WHITE_SPACE_MAX)
            return;
        slice mark = r->state == BEFORE ? OPENING : r->state == LEFT ? SLICE("") : CLOSING;
        bool beginning =
            rest.size > 0 && rest.size <= mark.size && memcmp(rest.data, mark.data, rest.size) == 0;
        if (beginning && rest.size < mark.size)
            return;
        if (beginning) {
            r->state = r->state == BEFORE ? ENTERED : LEFT;
            buffer_clear(&r->held);
            return;
        }
        let_through(r, rest.size == 0 ? space : space + 1, thought, content);
    }
    let_through(r, r->held.size, thought, content);
}

bool reasoning_push(reasoning *r, slice arrived, buffer *thought, buffer *content)
{
    size_t at = 0;
    while (at < arrived.size && r->state != CONTENT)
        step(r, arrived.data[at++], thought, content);
    buffer_append(content, arrived.data + at, arrived.size - at);
    return !r->held.overflow && !thought->overflow && !content->overflow;
}

bool reasoning_end(reasoning *r, buffer *thought, buffer *content)
{
    if (r->held.size > 0)
        let_through(r, r->held.size, thought, content);
    return !thought->overflow && !content->overflow;
}
