// What a request asks for in sum: of all its prompts and the answers to each.
#include "request_fixture.h"

// Every answer has a copy of its prompt's text, made when the request comes.
static void what_comes_back_of_prompts_has_a_bound_in_sum(void **state)
{
    (void)state;
#define TOKENS "{\"model\":\"m\",\"prompt\":[[5,6,7]]"
    static const body_case sums[] = {
        { C, TOKENS ",\"n\":3}", STATUS_OK, NULL },
        { C, TOKENS ",\"n\":2,\"echo\":true,\"max_tokens\":0}", STATUS_OK, NULL },
        { C, TOKENS ",\"n\":3,\"echo\":true,\"max_tokens\":0}", STATUS_INVALID, "echo" },
        { C, TOKENS ",\"n\":1,\"best_of\":3,\"echo\":true}", STATUS_INVALID, "echo" },
        { C, "{\"model\":\"m\",\"prompt\":[[5,6,7],[5,6],[7,8]],\"echo\":true}", STATUS_INVALID,
          "echo" },
        { C, TOKENS ",\"n\":2,\"echo\":true,\"logprobs\":0}", STATUS_OK, NULL },
        { C, TOKENS ",\"n\":2,\"echo\":true,\"logprobs\":1}", STATUS_INVALID, "logprobs" },
        { C, TOKENS ",\"n\":2,\"prompt_logprobs\":1}", STATUS_INVALID, "prompt_logprobs" },
    };
#undef TOKENS
    int64_t usual = fixture_settings.prompt_scores_max;
    fixture_settings.prompt_scores_max = 6;
    bodies_expect(sums, sizeof sums / sizeof *sums);
    fixture_settings.prompt_scores_max = usual;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_back_of_prompts_has_a_bound_in_sum),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
