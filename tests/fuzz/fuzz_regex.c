// A regular expression, and a text behind a NUL: it compiles or is refused with a sentence; as the
// keyword `pattern` it finds whatever it matches as a whole.
#include "text/grammar.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

// The pattern as a schema; NULL where JSON cannot hold it.
static char *schema_of(slice pattern)
{
    json_t *schema =
        json_pack("{s:s, s:s%}", "type", "string", "pattern", pattern.data, pattern.size);
    char *text = schema ? json_dumps(schema, JSON_COMPACT) : NULL;
    json_decref(schema);
    return text;
}

static void compare(const grammar *whole, slice pattern, slice text)
{
    buffer source = { 0 }, quoted = { 0 };
    grammar *part = NULL;
    char *schema = schema_of(pattern);
    buffer_append_text(&source, "json_schema\n");
    buffer_append_text(&source, schema ? schema : "");
    buffer_append_json(&quoted, text);
    if (schema && grammar_compile(buffer_slice(&source), &part, NULL) == STATUS_OK &&
        grammar_match_of(whole, text) == GRAMMAR_COMPLETE && !memchr(text.data, 0x7f, text.size))
        CHECK(grammar_match_of(part, buffer_slice(&quoted)) == GRAMMAR_COMPLETE);
    grammar_release(part);
    free(schema);
    buffer_close(&source);
    buffer_close(&quoted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    slice pattern = { (const char *)data, nul ? (size_t)(nul - data) : size };
    buffer source = { 0 };
    grammar *g = NULL;
    error failure = { 0 };
    buffer_append_text(&source, "regex\n");
    buffer_append_slice(&source, pattern);
    if (grammar_compile(buffer_slice(&source), &g, &failure) != STATUS_OK)
        CHECK(!g && failure.text[0]);
    else if (nul && size - pattern.size > 1)
        compare(g, pattern, (slice){ (const char *)nul + 1, size - pattern.size - 1 });
    grammar_release(g);
    buffer_close(&source);
    return 0;
}
