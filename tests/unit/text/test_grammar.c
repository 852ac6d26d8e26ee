// Grammars by the texts that they allow: own cases, the shared reference data, and sources that are
// refused by name.
// limit: 120
#include "text/grammar.h"

#include "harness/places.h"

#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>

static const struct {
    const char *source, *text;
    grammar_match match;
} cases[] = {
    // Regular expressions as a source are anchored.
    { "regex\n[ab]+c?", "abac", GRAMMAR_COMPLETE },
    { "regex\n[ab]+c?", "abacc", GRAMMAR_NO },
    { "regex\n[ab]+c?", "", GRAMMAR_PREFIX },
    { "regex\nfoo|ba{2,3}r", "baar", GRAMMAR_COMPLETE },
    { "regex\nfoo|ba{2,3}r", "bar", GRAMMAR_NO },
    { "regex\n(a|b*?)*", "abba", GRAMMAR_COMPLETE },
    { "regex\n\\d{3}-\\w\\s\\D\\S\\W", "123-_ x.+", GRAMMAR_COMPLETE },
    { "regex\n[^a-c\\d]", "\xc3\xa9", GRAMMAR_COMPLETE },
    { "regex\n[^a-c\\d]", "\xc3", GRAMMAR_PREFIX },
    { "regex\n[^a-c\\d]", "b", GRAMMAR_NO },
    { "regex\n.", "\n", GRAMMAR_NO },
    { "regex\n\\u00e9\\x41\\u{1F389}",
      "\xc3\xa9"
      "A"
      "\xf0\x9f\x8e\x89",
      GRAMMAR_COMPLETE },
    { "regex\n^a$|^$b", "a", GRAMMAR_COMPLETE },
    { "regex\na{", "a{", GRAMMAR_COMPLETE },
    { "regex\n", "", GRAMMAR_COMPLETE },
    // Choices are texts, not patterns.
    { "choice\n[\"a.c\",\"a\",\"\xc3\xa4\"]", "a.c", GRAMMAR_COMPLETE },
    { "choice\n[\"a.c\",\"a\"]", "a", GRAMMAR_COMPLETE },
    { "choice\n[\"a.c\",\"ab\"]", "a", GRAMMAR_PREFIX },
    { "choice\n[\"a.c\",\"a\"]", "abc", GRAMMAR_NO },
    // JSON objects.
    { "json_object\n", "{\"a\":[1,-2.5e3,\"\\u00e9\\ud83c\\udf89\"], \"b\": {}}",
      GRAMMAR_COMPLETE },
    { "json_object\n", "[]", GRAMMAR_NO },
    { "json_object\n", "{\"a\":\"\\ud83c\"", GRAMMAR_NO },
    { "json_object\n", "{\"a\":\"\\udc00", GRAMMAR_NO },
    { "json_object\n", "{\"a\":  1}", GRAMMAR_NO },
    { "json_object\n", "{\"a\":01", GRAMMAR_NO },
    { "json_object\n", "{\"a\":\"\xff", GRAMMAR_NO },
    { "json_object\n", "{\"a\":1} ", GRAMMAR_NO },
    // Templates.
    { "template\n{\"repeat\":{\"sequence\":[\"<\",{\"any\":[\"a\",{\"json_schema\":{\"type\":"
      "\"null\"}}]},"
      "\">\"]},\"min\":1,\"max\":2,\"separator\":\";\"}",
      "<null>;<a>", GRAMMAR_COMPLETE },
    { "template\n{\"repeat\":{\"sequence\":[\"<\",\"a>\"]},\"min\":1,\"max\":2,\"separator\":\";"
      "\"}",
      "<a>;<a>;", GRAMMAR_NO },
    { "template\n{\"sequence\":[{\"json_object\":true},{\"regex\":\"x*\"}]}", "{}xx",
      GRAMMAR_COMPLETE },
    // References are those of their own schema in a template.
    { "template\n{\"sequence\":[{\"json_schema\":{\"$defs\":{\"n\":{\"type\":\"integer\"}},\"$"
      "ref\":"
      "\"#/$defs/n\"}},{\"json_schema\":{\"$defs\":{\"n\":{\"type\":\"null\"}},\"$ref\":\"#/$defs/"
      "n\"}}]}",
      "7null", GRAMMAR_COMPLETE },
    // Bounds are exact.
    { "json_schema\n{\"minimum\":0.1,\"exclusiveMaximum\":0.3,\"type\":\"number\"}", "0.1",
      GRAMMAR_COMPLETE },
    { "json_schema\n{\"minimum\":0.1,\"exclusiveMaximum\":0.3,\"type\":\"number\"}", "0.29999",
      GRAMMAR_COMPLETE },
    { "json_schema\n{\"minimum\":0.1,\"exclusiveMaximum\":0.3,\"type\":\"number\"}", "0.300",
      GRAMMAR_NO },
    { "json_schema\n{\"minimum\":-10,\"maximum\":-0.5,\"type\":\"number\"}", "-0.5",
      GRAMMAR_COMPLETE },
    { "json_schema\n{\"minimum\":-10,\"maximum\":-0.5,\"type\":\"number\"}", "-10.01", GRAMMAR_NO },
    { "json_schema\n{\"minimum\":1e2,\"type\":\"integer\",\"multipleOf\":7}", "105",
      GRAMMAR_COMPLETE },
    { "json_schema\n{\"minimum\":1e2,\"type\":\"integer\",\"multipleOf\":7}", "98",
      GRAMMAR_PREFIX },
    // Complements leave no other spelling of what they take out.
    { "json_schema\n{\"type\":\"integer\",\"not\":{\"const\":0}}", "0", GRAMMAR_NO },
    { "json_schema\n{\"type\":\"integer\",\"not\":{\"const\":-0.0}}", "0", GRAMMAR_NO },
    { "json_schema\n{\"type\":\"integer\",\"not\":{\"const\":0}}", "-0", GRAMMAR_NO },
    { "json_schema\n{\"type\":\"integer\",\"not\":{\"const\":0}}", "-1", GRAMMAR_COMPLETE },
    { "json_schema\n{\"type\":\"number\",\"not\":{\"const\":0}}", "-0.0", GRAMMAR_PREFIX },
    { "json_schema\n{\"type\":\"integer\",\"not\":{\"multipleOf\":200}}", "300000000",
      GRAMMAR_PREFIX },
    // A property that nothing can satisfy is never begun; one that is demanded ends the way.
    { "json_schema\n{\"properties\":{\"a\":false},\"additionalProperties\":false,\"type\":"
      "\"object\"}",
      "{\"", GRAMMAR_NO },
    { "json_schema\n{\"anyOf\":[{\"type\":\"object\",\"required\":[\"x\"],\"properties\":{\"x\":{"
      "\"$ref\":"
      "\"#\"}}},{\"type\":\"null\"}],\"$comment\":\"ends only in null\"}",
      "{\"x\":{\"x\":null}}", GRAMMAR_COMPLETE },
    // Control characters of a constant are written as JSON wants them.
    { "json_schema\n{\"const\":\"a\\u0001\\n\\\"\"}", "\"a\\u0001\\n\\\"\"", GRAMMAR_COMPLETE },
    { "json_schema\n{\"const\":\"a\\u0001\\n\\\"\"}", "\"a\\u0002", GRAMMAR_NO },
    { "json_schema\n{\"items\":{\"enum\":[\"a\",1,null]},\"uniqueItems\":true,\"type\":\"array\","
      "\"minItems\":2}",
      "[1, null]", GRAMMAR_COMPLETE },
    { "json_schema\n{\"items\":{\"enum\":[\"a\",1,null]},\"uniqueItems\":true,\"type\":\"array\","
      "\"minItems\":2}",
      "[1,1", GRAMMAR_NO },
    { "json_schema\n{\"contains\":{\"const\":1},\"items\":{\"enum\":[1,2]},\"type\":\"array\","
      "\"maxItems\":2}",
      "[2,1]", GRAMMAR_COMPLETE },
    { "json_schema\n{\"contains\":{\"const\":1},\"items\":{\"enum\":[1,2]},\"type\":\"array\","
      "\"maxItems\":2}",
      "[2,2", GRAMMAR_NO },
    { "json_schema\n{\"format\":\"date\",\"type\":\"string\"}", "\"1900-02-29", GRAMMAR_NO },
    { "json_schema\n{\"format\":\"date\",\"type\":\"string\"}", "\"2000-02-29\"",
      GRAMMAR_COMPLETE },
};

static void texts_match_as_they_should(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        grammar *g = NULL;
        error failure = { 0 };
        if (grammar_compile(slice_of(cases[i].source), &g, &failure) != STATUS_OK)
            fail_msg("%s: %s", cases[i].source, failure.text);
        grammar_match match = grammar_match_of(g, slice_of(cases[i].text));
        if (match != cases[i].match)
            print_message("%s: %s gives %d and not %d\n", cases[i].source, cases[i].text, match,
                          cases[i].match);
        wrong += match != cases[i].match;
        grammar_release(g);
    }
    assert_int_equal(wrong, 0);
}

static const struct {
    const char *source;
    status code;
    const char *param, *text; // part of the sentence
} refusals[] = {
    { "bnf\nx", STATUS_UNSUPPORTED, "", "json_schema, json_object, regex" },
    { "json_schema\n{", STATUS_INVALID, "", "not valid JSON" },
    { "json_schema\n[]", STATUS_INVALID, "", "a schema must be" },
    { "json_schema\n{\"typo\":1}", STATUS_UNSUPPORTED, "typo", "typo is not served" },
    { "json_schema\n{\"type\":\"text\"}", STATUS_INVALID, "type", "type must be" },
    { "json_schema\n{\"uniqueItems\":true}", STATUS_UNSUPPORTED, "uniqueItems", "uniqueItems" },
    { "json_schema\n{\"format\":\"uri\"}", STATUS_UNSUPPORTED, "format", "\"uri\"" },
    { "json_schema\n{\"multipleOf\":0.01}", STATUS_UNSUPPORTED, "multipleOf", "0.01" },
    { "json_schema\n{\"$ref\":\"http://a/b\"}", STATUS_UNSUPPORTED, "$ref", "http://a/b" },
    { "json_schema\n{\"$ref\":\"#/nowhere\"}", STATUS_INVALID, "$ref", "leads nowhere" },
    { "json_schema\n{\"$ref\":\"#\"}", STATUS_INVALID, "$ref", "back to it" },
    { "json_schema\n{\"anyOf\":[{\"$ref\":\"#\"}]}", STATUS_INVALID, "$ref", "back to themselves" },
    { "json_schema\n{\"pattern\":\"(?=a)\"}", STATUS_UNSUPPORTED, "pattern", "look-around" },
    { "json_schema\n{\"pattern\":\"a\\\\b\"}", STATUS_UNSUPPORTED, "pattern", "not served" },
    { "json_schema\n{\"pattern\":\"((\"}", STATUS_INVALID, "pattern", "without its )" },
    { "json_schema\n{\"uniqueItems\":1}", STATUS_INVALID, "uniqueItems", "true or false" },
    { "json_schema\n{\"patternProperties\":[]}", STATUS_INVALID, "patternProperties", "an object" },
    { "json_schema\n{\"dependentRequired\":{\"a\":\"b\"}}", STATUS_INVALID, "dependentRequired",
      "arrays of names" },
    { "json_schema\n{\"minLength\":-1}", STATUS_INVALID, "minLength", "from 0" },
    { "json_schema\n{\"type\":\"integer\",\"minimum\":\"1\"}", STATUS_INVALID, "minimum",
      "a number" },
    { "json_schema\nfalse", STATUS_INVALID, "", "no finite value" },
    { "json_schema\n{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", STATUS_INVALID, "",
      "no finite value" },
    { "json_schema\n{\"type\":\"string\",\"minLength\":3,\"maxLength\":1,\"pattern\":\"a\"}",
      STATUS_INVALID, "", "no finite value" },
    { "json_schema\n{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":3,\"maxItems\":"
      "1}",
      STATUS_INVALID, "", "no finite value" },
    { "json_schema\n{\"type\":\"object\",\"minProperties\":3,\"maxProperties\":1}", STATUS_INVALID,
      "", "no finite value" },
    { "json_schema\n{\"type\":\"object\",\"required\":[\"x\"],\"properties\":{\"x\":{\"$ref\":\"#"
      "\"}}}",
      STATUS_INVALID, "", "no finite value" },
    { "json_schema\n{\"type\":\"object\",\"minProperties\":3}", STATUS_UNSUPPORTED, "minProperties",
      "kept apart" },
    { "json_schema\n{\"oneOf\":[{\"type\":\"object\"},{\"type\":\"object\",\"minProperties\":1}]}",
      STATUS_UNSUPPORTED, "oneOf", "overlap" },
    { "json_schema\n{\"not\":{\"type\":\"array\",\"minItems\":1}}", STATUS_UNSUPPORTED, "not",
      "complement" },
    { "json_schema\n{\"type\":\"integer\",\"not\":{\"multipleOf\":300}}", STATUS_UNSUPPORTED, "not",
      "complement" },
    { "json_schema\n{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"integer\",\"multipleOf\":300}]}",
      STATUS_UNSUPPORTED, "oneOf", "complement" },
    { "json_schema\n{\"type\":\"array\",\"maxItems\":1000000}", STATUS_TOO_LARGE, "maxItems",
      "items" },
    { "regex\na{1001}", STATUS_TOO_LARGE, "", "more than 1000" },
    { "regex\n(([a-z]{1,900}){1,900}){1,900}", STATUS_TOO_LARGE, "", "too large" },
    { "regex\n(a|b)*a(a|b){20}", STATUS_TOO_LARGE, "", "states" },
    { "regex\n((((((){1000}){1000}){1000}){1000}){1000}){1000}", STATUS_TOO_LARGE, "",
      "too much work" },
    { "regex\n*", STATUS_INVALID, "", "nothing" },
    { "regex\n^+x", STATUS_INVALID, "", "nothing" },
    { "regex\nx${2}", STATUS_INVALID, "", "nothing" },
    { "regex\n\\1", STATUS_UNSUPPORTED, "", "not served" },
    { "choice\n[]", STATUS_INVALID, "", "at least one" },
    { "choice\n[\"\"]", STATUS_INVALID, "", "at least one character" },
    { "choice\n{}", STATUS_INVALID, "", "array" },
    { "template\n{\"repeat\":\"x\",\"max\":65}", STATUS_INVALID, "", "max above 64" },
    { "template\n{\"other\":1}", STATUS_INVALID, "", "none of" },
    { "template\n{\"repeat\":{\"repeat\":{\"repeat\":{\"repeat\":{\"repeat\":\"\",\"min\":64,"
      "\"max\":64},\"min\":64,\"max\":64},\"min\":64,\"max\":64},\"min\":64,\"max\":64},\"min\":64,"
      "\"max\":64}",
      STATUS_TOO_LARGE, "", "too much work" },
};

static void what_is_not_served_is_refused_by_name(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        grammar *g = NULL;
        error failure = { 0 };
        status code = grammar_compile(slice_of(refusals[i].source), &g, &failure);
        bool right = code == refusals[i].code && strcmp(failure.param, refusals[i].param) == 0 &&
                     strstr(failure.text, refusals[i].text) != NULL && g == NULL;
        if (!right)
            print_message("%s: %s, param %s: %s\n", refusals[i].source, status_name(code),
                          failure.param, failure.text);
        wrong += !right;
        grammar_release(g);
    }
    assert_int_equal(wrong, 0);
}

// Each level evaluates the next one twice; `members` stand at each.
static void doubling_append(buffer *source, const char *members)
{
    buffer_append_text(source, "json_schema\n{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 60; i++)
        buffer_printf(source,
                      "\"d%d\":{%s\"allOf\":[{%s\"$ref\":\"#/$defs/d%d\"},"
                      "{%s\"$ref\":\"#/$defs/d%d\"}]},",
                      i, members, members, i + 1, members, i + 1);
    buffer_append_text(source, "\"d60\":{\"type\":\"integer\"}}}");
}

static void deep_and_wide_sources_end(void **state)
{
    (void)state;
    buffer source = { 0 };
    grammar *g = NULL;
    error failure;
    doubling_append(&source, "");
    assert_int_not_equal(grammar_compile(buffer_slice(&source), &g, &failure), STATUS_OK);
    buffer_clear(&source);
    doubling_append(&source, "\"type\":[],"); // nothing is allowed, so nothing is made
    assert_int_not_equal(grammar_compile(buffer_slice(&source), &g, &failure), STATUS_OK);
    buffer_clear(&source);
    buffer_append_text(&source, "regex\n");
    for (int i = 0; i < 100000; i++)
        buffer_append_byte(&source, '(');
    assert_int_equal(grammar_compile(buffer_slice(&source), &g, &failure), STATUS_TOO_LARGE);
    buffer_clear(&source);
    buffer_append_text(&source, "json_object\n");
    assert_int_equal(grammar_compile(buffer_slice(&source), &g, &failure), STATUS_OK);
    buffer_clear(&source);
    buffer_append_text(&source, "{\"a\":");
    for (int i = 1; i < GRAMMAR_DEPTH_MAX; i++)
        buffer_append_byte(&source, '[');
    assert_int_equal(grammar_match_of(g, buffer_slice(&source)), GRAMMAR_PREFIX);
    buffer_append_byte(&source, '[');
    assert_int_equal(grammar_match_of(g, buffer_slice(&source)), GRAMMAR_NO);
    grammar_release(g);
    // Ways that part and meet again, 60 times: too many for a machine to go, but it ends.
    buffer_clear(&source);
    buffer_append_text(&source, "template\n{\"sequence\":[\"\"");
    for (int i = 0; i < 60; i++)
        buffer_append_text(&source, ",{\"any\":[{\"regex\":\"a*\"},{\"regex\":\"b*\"}]}");
    buffer_append_text(&source, "]}");
    assert_int_equal(grammar_compile(buffer_slice(&source), &g, &failure), STATUS_OK);
    assert_int_equal(grammar_match_of(g, SLICE("a")), GRAMMAR_NO);
    grammar_release(g);
    buffer_close(&source);
}

// ---- addresses ---------------------------------------------------------------------------------

// Where the parser's objects lie: one behind the other, or one before the other.
static _Alignas(16) char heap[1 << 16];
static size_t heap_used;
static bool heap_falls;

static void *heap_allocate(size_t size)
{
    size = (size + 15) / 16 * 16;
    if (size > sizeof heap - heap_used)
        return NULL;
    heap_used += size;
    return heap_falls ? heap + sizeof heap - heap_used : heap + heap_used - size;
}

static void heap_free(void *data)
{
    (void)data;
}

static void addresses_order_nothing(void **state)
{
    (void)state;
    static const char source[] =
        "json_schema\n{\"type\":\"object\",\"properties\":{\"p\":{\"type\":\"object\","
        "\"properties\":{\"x\":{}},\"required\":[\"x\"]}},\"required\":[\"p\"],\"allOf\":[{"
        "\"properties\":{\"p\":{\"properties\":{\"y\":{}},\"required\":[\"y\"]}}}]}";
    for (int falls = 0; falls < 2; falls++) {
        grammar *g = NULL;
        error failure = { 0 };
        heap_used = 0;
        heap_falls = falls == 1;
        json_set_alloc_funcs(heap_allocate, heap_free);
        status code = grammar_compile(slice_of(source), &g, &failure);
        json_set_alloc_funcs(malloc, free);
        if (code != STATUS_OK)
            fail_msg("%s", failure.text);
        assert_int_equal(grammar_match_of(g, SLICE("{\"p\":{\"x\":")), GRAMMAR_PREFIX);
        assert_int_equal(grammar_match_of(g, SLICE("{\"p\":{\"y\":")), GRAMMAR_NO);
        assert_int_equal(grammar_match_of(g, SLICE("{\"p\":{\"x\":1,\"y\":2}}")), GRAMMAR_COMPLETE);
        grammar_release(g);
    }
}

// ---- the reference data ------------------------------------------------------------------------

// Of the valid instances so many are not written: another order of properties, white space, other
// spellings of a number or a character. No schema is refused.
#define VALID_NOT_WRITTEN 19

typedef struct tally {
    int schemas, accepted, not_written, wrong;
} tally;

static void run_schema(tally *t, const json_t *row)
{
    char *schema = json_dumps(json_object_get(row, "schema"), JSON_ENCODE_ANY | JSON_COMPACT);
    const char *name = json_string_value(json_object_get(row, "name"));
    buffer source = { 0 };
    grammar *g = NULL;
    error failure = { 0 };
    size_t i;
    json_t *value;
    buffer_printf(&source, "json_schema\n%s", schema);
    free(schema);
    t->schemas++;
    if (grammar_compile(buffer_slice(&source), &g, &failure) != STATUS_OK) {
        print_message("%s is refused: %s\n", name, failure.text);
        t->wrong++;
    }
    json_array_foreach(json_object_get(row, "valid"), i, value)
    {
        slice text = { json_string_value(value), json_string_length(value) };
        bool fine = g && grammar_match_of(g, text) == GRAMMAR_COMPLETE;
        t->accepted += fine;
        t->not_written += g && !fine;
    }
    json_array_foreach(json_object_get(row, "invalid"), i, value)
    {
        slice text = { json_string_value(value), json_string_length(value) };
        if (g && grammar_match_of(g, text) == GRAMMAR_COMPLETE) {
            print_message("%s: accepts %s\n", name, text.data);
            t->wrong++;
        }
    }
    grammar_release(g);
    buffer_close(&source);
}

static void the_reference_schemas_accept_nothing_invalid(void **state)
{
    (void)state;
    tally t = { 0 };
    buffer bytes = { 0 };
    slice line;
    const char *path = places_shared(PENSTOCK_SOURCE_DIR, "golden/json_schema/cases.jsonl");
    if (!path) {
        print_message("skipped: no shared file golden/json_schema/cases.jsonl\n");
        skip();
    }
    assert_true(places_read(path, &bytes));
    slice rest = buffer_slice(&bytes);
    while (slice_take_line(&rest, &line)) {
        json_t *row = json_loadb(line.data, line.size, JSON_ALLOW_NUL, NULL);
        assert_non_null(row);
        run_schema(&t, row);
        json_decref(row);
    }
    buffer_close(&bytes);
    print_message("%d schemas, %d valid instances accepted, %d not written\n", t.schemas,
                  t.accepted, t.not_written);
    assert_int_equal(t.wrong, 0);
    assert_in_range(t.schemas, 80, INT32_MAX);
    assert_in_range(t.not_written, 0, VALID_NOT_WRITTEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_match_as_they_should),
        cmocka_unit_test(what_is_not_served_is_refused_by_name),
        cmocka_unit_test(deep_and_wide_sources_end),
        cmocka_unit_test(addresses_order_nothing),
        cmocka_unit_test(the_reference_schemas_accept_nothing_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
