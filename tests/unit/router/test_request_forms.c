// What form the answer has: every API's way to ask for one is understood or refused with the
// field's name, and seen before anybody reads the body.
#include "request_fixture.h"

static const body_case cases[] = {
    { M, H ",\"response_format\":{\"type\":\"text\"}}", STATUS_OK, NULL },
    { M, H ",\"response_format\":{\"type\":\"json_object\"}}", STATUS_OK, NULL },
    { M, H ",\"response_format\":\"json\"}", STATUS_INVALID, "response_format" },
    { M, H ",\"response_format\":{\"type\":\"xml\"}}", STATUS_INVALID, "response_format.type" },
    { M, H ",\"response_format\":{\"type\":\"json_schema\"}}", STATUS_INVALID,
      "response_format.json_schema" },
    { M,
      H ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":"
        "{\"type\":\"object\"},\"strict\":true}}}",
      STATUS_OK, NULL },
    { M,
      H ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":"
        "{\"type\":\"object\",\"unevaluatedItems\":true}}}}",
      STATUS_UNSUPPORTED, "response_format" },
    { M, H ",\"ignore_eos\":true,\"response_format\":{\"type\":\"json_object\"}}", STATUS_INVALID,
      "ignore_eos" },
    { C, P ",\"structured_outputs\":{\"regex\":\"[a-c]+\"}}", STATUS_OK, NULL },
    { C, P ",\"structured_outputs\":{\"regex\":\"[\"}}", STATUS_INVALID, "structured_outputs" },
    { C, P ",\"structured_outputs\":{\"choice\":[\"a\",\"b\"]}}", STATUS_OK, NULL },
    { C, P ",\"structured_outputs\":{\"regex\":\"a\\u0000b\"}}", STATUS_INVALID,
      "structured_outputs" },
    { C, P ",\"structured_outputs\":{\"choice\":[]}}", STATUS_INVALID, "structured_outputs" },
    { C, P ",\"structured_outputs\":{\"json\":\"{}\",\"regex\":null}}", STATUS_OK, NULL },
    { C, P ",\"structured_outputs\":{\"json\":{},\"regex\":\"a\"}}", STATUS_INVALID,
      "structured_outputs" },
    { C, P ",\"structured_outputs\":{\"whitespace\":1}}", STATUS_UNSUPPORTED,
      "structured_outputs" },
    { C, P ",\"structured_outputs\":{}}", STATUS_INVALID, "structured_outputs" },
    { C,
      P ",\"structured_outputs\":{\"json_object\":true},\"response_format\":{\"type\":\"json_"
        "object\"}}",
      STATUS_INVALID, "structured_outputs" },
    // Anthropic's structured outputs.
    { A, T ",\"output_config\":{\"format\":" FORMAT ",\"effort\":\"high\"}}", STATUS_OK, NULL },
    { A, T ",\"output_format\":" FORMAT "}", STATUS_OK, NULL },
    { A, T ",\"output_format\":null,\"output_config\":{\"format\":null,\"effort\":null}}",
      STATUS_OK, NULL },
    { A, T ",\"output_config\":{\"format\":" FORMAT "},\"output_format\":" FORMAT "}",
      STATUS_INVALID, "output_format" },
    { A, T ",\"output_config\":{\"effort\":\"low\"}}", STATUS_UNSUPPORTED, "output_config.effort" },
    { A, T ",\"output_config\":{\"effort\":1}}", STATUS_UNSUPPORTED, "output_config.effort" },
    { A, T ",\"output_config\":{\"task_budget\":{}}}", STATUS_UNSUPPORTED, "output_config" },
    { A, T ",\"output_config\":\"json\"}", STATUS_INVALID, "output_config" },
    { A, T ",\"output_config\":{\"format\":{\"type\":\"json_object\"}}}", STATUS_INVALID,
      "output_config.format" },
    { A, T ",\"output_format\":{\"type\":\"json_schema\"}}", STATUS_INVALID, "output_format" },
    { A, T ",\"output_format\":[]}", STATUS_INVALID, "output_format" },
    { A,
      T ",\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{"
        "\"unevaluatedItems\":true}}}}",
      STATUS_UNSUPPORTED, "output_config.format" },
    { A, T ",\"ignore_eos\":true,\"output_format\":" FORMAT "}", STATUS_INVALID, "ignore_eos" },
};

static void every_form_is_understood_or_refused_by_name(void **state)
{
    (void)state;
    bodies_expect(cases, sizeof cases / sizeof *cases);
}

// However a field that brings one is spelt.
static void bodies_with_a_grammar_are_seen(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bool may;
    } bodies[] = {
        { P "}", false },
        { H ",\"user\":\"caf\\u00e9 \\u003cb\\u003e \\u0026 \\u20ac \\\\ud83d\\ude00\"}", false },
        { H ",\"user\":\"\\u00\"}", false },
        { H ",\"user\":\"\\u00", false },
        { H ",\"user\":\"\\u006", false },
        { H ",\"response_format\":{\"type\":\"json_object\"}}", true },
        { H ",\"\\u0072esponse_format\":{\"type\":\"json_object\"}}", true },
        { H ",\"response\\u005fformat\":{\"type\":\"json_object\"}}", true },
        { H ",\"response\\u005Fformat\":{\"type\":\"json_object\"}}", true },
        { P ",\"structured_o\\u0075tputs\":{\"regex\":\"a\"}}", true },
        { H ",\"tool_choic\\u0065\":\"required\"}", true },
        { T ",\"output_format\":" FORMAT "}", true },
        { T ",\"output_config\":{\"format\":" FORMAT "}}", true },
        { T ",\"output_confi\\u0067\":{\"format\":" FORMAT "}}", true },
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        if (request_may_have_grammar(slice_of(bodies[i].body)) != bodies[i].may)
            fail_msg("%s: wanted %d", bodies[i].body, bodies[i].may);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_understood_or_refused_by_name),
        cmocka_unit_test(bodies_with_a_grammar_are_seen),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
