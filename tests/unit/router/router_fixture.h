// What the router's unit tests share: the tiny model's tokenizer and template, and default
// settings.
#pragma once

#include "harness/tiny_model.h"
#include "router/request.h"

#include <unistd.h>

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static prompt_model fixture_model;
static router_settings fixture_settings;
static encoder *fixture_encoder;

__attribute__((unused)) static int fixture_open(void **state)
{
    (void)state;
    char path[64], *arguments[] = { (char *)"test", NULL };
    error failure = { 0 };
    config_action action;
    tiny_model options = tiny_model_default(1);
    tiny_model_temporary(&options, path);
    assert_int_equal(
        config_open(&router_program, 1, arguments, &fixture_settings, &action, &failure),
        STATUS_OK);
    if (prompt_model_open(path, "m", &fixture_model, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    unlink(path);
    assert_int_equal(encoder_open(fixture_model.tokens, &fixture_encoder), STATUS_OK);
    return 0;
}

__attribute__((unused)) static int fixture_close(void **state)
{
    (void)state;
    encoder_close(fixture_encoder);
    prompt_model_close(&fixture_model);
    config_close(&router_program, &fixture_settings);
    return 0;
}

__attribute__((unused)) static status fixture_parse(request_kind kind, slice body, uint32_t context,
                                                    request *parsed, error *failure)
{
    request_rules rules = { &fixture_model, &fixture_settings, context };
    *failure = (error){ 0 };
    return request_parse(&rules, kind, body, fixture_encoder, parsed, failure);
}
