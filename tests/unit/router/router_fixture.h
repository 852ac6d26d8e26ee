// What the router's unit tests share: the tiny model's tokenizer and template, and default
// settings; and another template.
#pragma once

#include "harness/tiny_model.h"
#include "router/request.h"

#include <unistd.h>

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static models fixture_models;
static prompt_model *const fixture_model = &fixture_models.items[0].prompt;
static router_settings fixture_settings;
static model_encoders fixture_encoders;

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
    model_settings source = { .file = path, .name = (char *)"m", .chat_template = (char *)"" };
    if (models_add(&fixture_models, &source, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    unlink(path);
    fixture_models.items[0].source = &fixture_settings.model;
    assert_int_equal(model_encoders_open(&fixture_models, &fixture_encoders), STATUS_OK);
    return 0;
}

__attribute__((unused)) static int fixture_close(void **state)
{
    (void)state;
    model_encoders_close(&fixture_encoders);
    models_close(&fixture_models);
    config_close(&router_program, &fixture_settings);
    return 0;
}

__attribute__((unused)) static status fixture_parse(request_kind kind, slice body, uint32_t context,
                                                    request *parsed, error *failure)
{
    request_rules rules = { .models = &fixture_models, .settings = &fixture_settings };
    atomic_store(&fixture_models.items[0].context, context);
    *failure = (error){ 0 };
    return request_parse(&rules, kind, body, &fixture_encoders, parsed, failure);
}

__attribute__((unused)) static void template_set(const char *source)
{
    error failure = { 0 };
    chat_close(fixture_model->chat);
    if (chat_open(slice_of(source), SLICE(""), SLICE(""), &fixture_model->chat, &failure) !=
        STATUS_OK)
        fail_msg("%s", failure.text);
    fixture_model->tools = chat_traits_of(fixture_model->chat)->tools;
    fixture_model->reasons = chat_traits_of(fixture_model->chat)->thinks;
}
