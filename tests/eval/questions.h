// Multiple-choice questions: one JSON object a line (README.md of this folder).
#pragma once

#include "base/buffer.h"
#include "base/status.h"

#define QUESTION_CHOICES_MAX 26
#define QUESTION_COUNT_MAX 100000
#define QUESTION_LINE_MAX ((size_t)1 << 20) // bytes

typedef struct question {
    int line;                            // of the file, from 1
    slice prompt;                        // what each choice continues
    slice choices[QUESTION_CHOICES_MAX]; // as they stand behind it
    int choice_count, answer;
} question;

typedef struct question_list {
    question *items;
    size_t count;
    char *text; // what the slices point into
    size_t text_size;
} question_list;

// The questions of `bytes`; `name` stands for the file. STATUS_INVALID: "FILE:LINE: " and a
// sentence that names the field.
status questions_read(const char *name, slice bytes, question_list *list, error *failure);
void questions_close(question_list *list);
