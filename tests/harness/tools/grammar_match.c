// How texts stand to grammars, for tests that are not written in C: lines of JSON
// {"source": ..., "text": ...} on stdin, a line "no", "prefix" or "complete" for each on stdout, or
// "refused: " and why.
#include "text/grammar.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static slice text_of(const json_t *string)
{
    return (slice){ json_string_value(string), json_string_length(string) };
}

int main(void)
{
    static const char *const names[] = { "no", "prefix", "complete" };
    char *line = NULL;
    size_t capacity = 0;
    for (ssize_t size; (size = getline(&line, &capacity, stdin)) > 0;) {
        json_t *row = json_loadb(line, (size_t)size, JSON_ALLOW_NUL, NULL);
        grammar *g = NULL;
        error failure;
        CHECK(row != NULL);
        if (grammar_compile(text_of(json_object_get(row, "source")), &g, &failure) == STATUS_OK)
            puts(names[grammar_match_of(g, text_of(json_object_get(row, "text")))]);
        else
            printf("refused: %s\n", failure.text);
        grammar_release(g);
        json_decref(row);
    }
    free(line);
    return 0;
}
