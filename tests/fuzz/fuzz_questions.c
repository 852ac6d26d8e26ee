// A set of questions: it is read whole, with an answer among the choices of each and strings that
// lie in the list's own text, or refused with a sentence and nothing left.
#include "eval/questions.h"

static void check_inside(const question_list *list, slice s)
{
    CHECK(s.size > 0 && s.data >= list->text);
    CHECK(s.data + s.size <= list->text + list->text_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    question_list list;
    error failure = { 0 };
    if (questions_read("set", (slice){ (const char *)data, size }, &list, &failure) != STATUS_OK) {
        CHECK(failure.text[0] && !list.items && !list.text && list.count == 0);
        return 0;
    }
    CHECK(list.count > 0 && list.count <= QUESTION_COUNT_MAX);
    for (size_t i = 0; i < list.count; i++) {
        const question *q = &list.items[i];
        CHECK(q->choice_count >= 2 && q->choice_count <= QUESTION_CHOICES_MAX);
        CHECK(q->answer >= 0 && q->answer < q->choice_count);
        CHECK(q->line > (i > 0 ? q[-1].line : 0));
        check_inside(&list, q->prompt);
        for (int c = 0; c < q->choice_count; c++)
            check_inside(&list, q->choices[c]);
    }
    questions_close(&list);
    return 0;
}
