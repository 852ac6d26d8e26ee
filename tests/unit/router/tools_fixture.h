// What the tests of tools share: a template that shows them, and requests that offer two functions.
#pragma once

#include "router_fixture.h"

#include "router/answer.h"

#include <stdio.h>

#define BODY "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define F "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
#define G                                                                                          \
    "{\"type\":\"function\",\"function\":{\"name\":\"g-2\",\"description\":\"d\",\"strict\":true," \
    "\"parameters\":{\"properties\":{\"a\":{\"type\":\"integer\"}}}}}"
#define NAMED(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"

static const char hermes[] =
    "{% if tools %}<tools>{{ tools|tojson }}</tools><tool_call>{% endif %}{% for m in messages %}"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% if think %}<think>\n{% endif %}"
    "{% endif %}{# </think> #}{% if documents %}{{ documents[0].title }}{% endif %}";

static request parsed(const char *body)
{
    request r = { 0 };
    error failure;
    if (fixture_parse(REQUEST_CHAT, slice_of(body), 2048, &r, &failure) != STATUS_OK)
        fail_msg("%s: %s", body, failure.text);
    return r;
}
