// Bodies of requests. Byte 0 picks the kind (its rest by REQUEST_KINDS) and the context; then the
// JSON.
//
// What is accepted fits: tokens exist, prompt and answer have room in the context. What is refused
// has a sentence.
#include "harness/tiny_model.h"
#include "router/request.h"

#include <unistd.h>

// Shows tools, and knows calls and thought, which a variable turns off.
static const char template_source[] =
    "{{ tools|tojson }}{{ documents|length if documents }}{% for m in messages %}{{ m.content }}"
    "{{ m.tool_calls|tojson if m.tool_calls }}{% endfor %}{# <tool_call> </think> #}"
    "{{ '<think>' if add_generation_prompt and (thinking is undefined or thinking) }}";

static models served;
static router_settings settings;
static model_encoders encoders;

static void open_once(void)
{
    char path[64], *arguments[] = { (char *)"fuzz", NULL };
    error failure;
    config_action action;
    tiny_model options = tiny_model_default(1);
    tiny_model_temporary(&options, path);
    CHECK(config_open(&router_program, 1, arguments, &settings, &action, &failure) == STATUS_OK);
    static model_settings source = { .name = (char *)"m", .chat_template = (char *)"" };
    source.file = path;
    CHECK(models_add(&served, &source, &failure) == STATUS_OK);
    prompt_model *model = &served.items[0].prompt;
    chat_close(model->chat);
    CHECK(chat_open(slice_of(template_source), SLICE(""), SLICE(""), &model->chat, &failure) ==
          STATUS_OK);
    model->tools = chat_traits_of(model->chat)->tools;
    model->reasons = chat_traits_of(model->chat)->thinks;
    CHECK(chat_traits_of(model->chat)->thinking_switch);
    CHECK(model_encoders_open(&served, &encoders) == STATUS_OK);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    request r = { 0 };
    error failure = { 0 };
    if (served.count == 0)
        open_once();
    if (size == 0)
        return 0;
    uint32_t context = 2 + 16u * data[0];
    atomic_store(&served.items[0].context, context);
    request_rules rules = { .models = &served, .settings = &settings };
    request_kind kind = data[0] % REQUEST_KINDS;
    slice body = { (const char *)data + 1, size - 1 };
    status result = request_parse(&rules, kind, body, &encoders, &r, &failure);
    if (result != STATUS_OK) {
        CHECK(failure.text[0] != 0);
        return 0;
    }
    int32_t vocabulary = served.items[0].prompt.identity.vocabulary;
    CHECK(r.prompt_count > 0 && r.priority >= 0 && r.priority <= 1);
    CHECK(!request_is_computed(kind) || (r.choices > 0 && r.stops));
    for (size_t k = 0; k < r.prompt_count; k++) {
        const request_prompt *p = &r.prompts[k];
        if (request_is_computed(kind)) {
            CHECK(p->tokens.count > 0 && p->max_tokens >= !r.echo && r.min_tokens <= p->max_tokens);
            CHECK(p->tokens.count + (size_t)p->max_tokens <= context);
        }
        for (size_t i = 0; i < p->tokens.count; i++)
            CHECK(p->tokens.ids[i] >= 0 && p->tokens.ids[i] < vocabulary);
    }
    CHECK(r.thinking != REQUEST_THINKING_OFF || !r.in_thought || r.continue_final_message);
    CHECK(r.thinking != REQUEST_THINKING_ON || (r.reasons && r.grammar.size == 0));
    for (size_t i = 0; i < r.bias_count; i++)
        CHECK(r.bias_tokens[i] >= 0 && r.bias_tokens[i] < vocabulary);
    request_close(&r);
    return 0;
}
