// Bodies of requests, and what becomes of them: a table of cases is a test.
#pragma once

#include "router_fixture.h"

#define C REQUEST_COMPLETION
#define M REQUEST_CHAT
#define A REQUEST_MESSAGES
#define P "{\"model\":\"m\",\"prompt\":\"abc\""
#define T "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define FORMAT "{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}"
#define H "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

typedef struct body_case {
    request_kind kind;
    const char *body;
    status code;
    const char *param; // of a refusal
} body_case;

// What a refusal of an Anthropic request says; NULL: the body is understood.
typedef struct sentence {
    const char *body, *says;
} sentence;

static inline void sentences_expect(const sentence *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        request r = { 0 };
        error failure;
        status result = fixture_parse(A, slice_of(list[i].body), 2048, &r, &failure);
        if (result == STATUS_OK)
            request_close(&r);
        if (list[i].says ? result == STATUS_OK || strstr(failure.text, list[i].says) == NULL
                         : result != STATUS_OK)
            fail_msg("%s: \"%s\", wanted \"%s\"", list[i].body,
                     result == STATUS_OK ? "" : failure.text, list[i].says ? list[i].says : "");
    }
}

static inline void bodies_expect(const body_case *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        request r = { 0 };
        error failure;
        status result = fixture_parse(list[i].kind, slice_of(list[i].body), 2048, &r, &failure);
        if (result != list[i].code)
            fail_msg("%s: %s \"%s\", wanted %s", list[i].body, status_name(result), failure.text,
                     status_name(list[i].code));
        if (result == STATUS_OK) {
            assert_true(r.prompts[0].tokens.count > 0);
            assert_true(r.prompts[0].max_tokens > 0 || r.echo);
            request_close(&r);
            continue;
        }
        if (strcmp(failure.param, list[i].param) != 0)
            fail_msg("%s: param \"%s\", wanted \"%s\" (%s)", list[i].body, failure.param,
                     list[i].param, failure.text);
        assert_true(strlen(failure.text) > 10);
    }
}
