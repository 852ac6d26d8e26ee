#include "eval/questions.h"

#include <jansson.h>
#include <stdlib.h>

// Words around a question. A string is never longer than its JSON, whose quotes make room for the
// space in front of a choice.
#define FRAME_BEFORE "Question: "
#define FRAME_BEHIND "\nAnswer:"
#define FRAME_BYTES (sizeof FRAME_BEFORE + sizeof FRAME_BEHIND)

static slice text_add(question_list *list, const char *before, const char *words, size_t size,
                      const char *behind)
{
    char *start = list->text + list->text_size;
    size_t before_size = strlen(before), behind_size = strlen(behind);
    memcpy(start, before, before_size);
    memcpy(start + before_size, words, size);
    memcpy(start + before_size + size, behind, behind_size);
    list->text_size += before_size + size + behind_size;
    return (slice){ start, before_size + size + behind_size };
}

static status choices_read(const json_t *object, bool framed, question_list *list, question *q,
                           error *failure)
{
    const json_t *choices = json_object_get(object, "choices"), *choice;
    size_t i;
    if (json_array_size(choices) < 2 || json_array_size(choices) > QUESTION_CHOICES_MAX)
        return error_set(failure, STATUS_INVALID, "choices",
                         "'choices' must be a list of 2 to %d strings", QUESTION_CHOICES_MAX);
    json_array_foreach(choices, i, choice)
    {
        if (!json_is_string(choice) || json_string_length(choice) == 0)
            return error_set(failure, STATUS_INVALID, "choices",
                             "'choices' item %zu must be a string that is not empty", i);
        q->choices[i] = text_add(list, framed ? " " : "", json_string_value(choice),
                                 json_string_length(choice), "");
    }
    q->choice_count = (int)json_array_size(choices);
    return STATUS_OK;
}

static status question_read(const json_t *object, question_list *list, question *q, error *failure)
{
    const json_t *framed = json_object_get(object, "question");
    const json_t *plain = json_object_get(object, "prompt");
    const json_t *words = framed ? framed : plain, *answer = json_object_get(object, "answer");
    if (!framed == !plain)
        return error_set(failure, STATUS_INVALID, "question",
                         "it must have one of 'question' and 'prompt'");
    if (!json_is_string(words) || json_string_length(words) == 0)
        return error_set(failure, STATUS_INVALID, "question",
                         "'%s' must be a string that is not empty", framed ? "question" : "prompt");
    q->prompt = text_add(list, framed ? FRAME_BEFORE : "", json_string_value(words),
                         json_string_length(words), framed ? FRAME_BEHIND : "");
    status result = choices_read(object, framed != NULL, list, q, failure);
    if (result != STATUS_OK)
        return result;
    if (!json_is_integer(answer) || json_integer_value(answer) < 0 ||
        json_integer_value(answer) >= q->choice_count)
        return error_set(failure, STATUS_INVALID, "answer",
                         "'answer' must be a whole number from 0 to %d, the place of the right "
                         "choice",
                         q->choice_count - 1);
    q->answer = (int)json_integer_value(answer);
    return STATUS_OK;
}

static status line_read(slice line, question_list *list, question *q, error *failure)
{
    json_error_t where;
    if (line.size > QUESTION_LINE_MAX)
        return error_set(failure, STATUS_TOO_LARGE, "", "the line is longer than %zu bytes",
                         QUESTION_LINE_MAX);
    json_t *object =
        json_loadb(line.data, line.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    if (!object)
        return error_set(failure, STATUS_INVALID, "", "it is not JSON: %s (column %d)", where.text,
                         where.column);
    status result = json_is_object(object)
                        ? question_read(object, list, q, failure)
                        : error_set(failure, STATUS_INVALID, "", "it must be a JSON object");
    json_decref(object);
    return result;
}

static bool is_blank(slice line)
{
    size_t i = 0;
    while (i < line.size && memchr(" \t\r", line.data[i], 3))
        i++;
    return i == line.size;
}

static size_t filled_lines(slice text)
{
    size_t count = 0;
    for (slice line; slice_take_line(&text, &line);)
        count += !is_blank(line);
    return count;
}

static status lines_read(const char *name, slice bytes, question_list *list, error *failure)
{
    slice line;
    for (int number = 1; slice_take_line(&bytes, &line); number++) {
        if (is_blank(line))
            continue;
        question *q = &list->items[list->count];
        q->line = number;
        status result = line_read(line, list, q, failure);
        if (result != STATUS_OK) {
            error_prefix(failure, "%s:%d", name, number);
            return result;
        }
        list->count++;
    }
    return STATUS_OK;
}

status questions_read(const char *name, slice bytes, question_list *list, error *failure)
{
    size_t count = filled_lines(bytes);
    *list = (question_list){ 0 };
    if (count == 0 || count > QUESTION_COUNT_MAX)
        return error_set(failure, STATUS_INVALID, "set",
                         "%s holds %zu questions; it must hold 1 to %d, one a line", name, count,
                         QUESTION_COUNT_MAX);
    list->items = calloc(count, sizeof list->items[0]);
    list->text = malloc(bytes.size + FRAME_BYTES * count);
    status result = STATUS_NO_MEMORY;
    if (list->items && list->text)
        result = lines_read(name, bytes, list, failure);
    else
        error_set(failure, result, "set", "memory is short for %zu questions", count);
    if (result != STATUS_OK)
        questions_close(list);
    return result;
}

void questions_close(question_list *list)
{
    free(list->items);
    free(list->text);
    *list = (question_list){ 0 };
}
