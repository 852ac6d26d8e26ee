#include "text/chat.h"

#include "text/chat_messages.h"
#include "text/pattern.h"
#include "text/reasoning.h"

#include <stdio.h>
#include <stdlib.h>

struct chat {
    template *template;
    char *bos, *eos; // NULL: none
    size_t bos_size, eos_size;
    chat_traits traits;
};

// --- one render of prepared messages ---

static bool set_token(json_t *variables, json_t *markup, const char *name, const char *text,
                      size_t size)
{
    if (!text)
        return true;
    json_t *value = json_stringn(text, size);
    return json_array_append_new(markup, value) == 0 &&
           json_object_set(variables, name, value) == 0;
}

// Render with `markup` (the role strings; bos and eos are added to it).
static status render(const chat *c, const chat_request *request, json_t *messages, json_t *markup,
                     const template_limits *limits, template_output *output, error *failure)
{
    json_t *variables = json_is_object(request->extra) ? json_copy(request->extra) : json_object();
    json_t *tools = request->tools ? request->tools : json_null();
    json_t *documents = request->documents ? request->documents : json_null();
    bool failed = json_object_set(variables, "messages", messages) != 0;
    failed = json_object_set(variables, "tools", tools) != 0 || failed;
    failed = json_object_set(variables, "documents", documents) != 0 || failed;
    failed = json_object_set(variables, "add_generation_prompt",
                             json_boolean(request->add_generation_prompt)) != 0 ||
             failed;
    failed = !set_token(variables, markup, "bos_token", c->bos, c->bos_size) || failed;
    failed = !set_token(variables, markup, "eos_token", c->eos, c->eos_size) || failed;
    template_context context = { .variables = variables,
                                 .markup = markup,
                                 .integers = request->integers,
                                 .now_s = request->now_s };
    status result = failed ? error_set(failure, STATUS_NO_MEMORY, "", "no memory for the prompt")
                           : template_render(c->template, &context, limits, output, failure);
    json_decref(variables);
    return result;
}

// --- what a template needs, found out by trying ---

enum { PROBE_OUTPUT_MAX = 1 << 16 };

// Render a conversation for a probe; true if it worked. The output stays in `output`. `extra`: as
// in chat_request.
static bool probe(const chat *c, const char *conversation, json_t *extra, template_output *output)
{
    json_t *messages = json_loads(conversation, 0, NULL), *markup = json_array();
    template_limits limits = { .steps = 200000, .output_bytes = PROBE_OUTPUT_MAX };
    chat_request request = { .extra = extra, .add_generation_prompt = true };
    CHECK(messages); // the conversations are below
    bool worked =
        markup && render(c, &request, messages, markup, &limits, output, NULL) == STATUS_OK;
    json_decref(messages);
    json_decref(markup);
    return worked;
}

static bool shows(const template_output *output, const char *text)
{
    return output->text.size > 0 && strstr(output->text.data, text) != NULL;
}

// Null or "" as content, an object or a JSON text as arguments: take the first pair that works and
// does not print the arguments as Python would.
static void probe_calls(chat *c, template_output *output)
{
    static const char *const contents[] = { "null", "\"\"" };
    static const char *const arguments[] = { "{\"needle\": 1}", "\"{\\\"needle\\\": 1}\"" };
    char conversation[512];
    for (int i = 0; i < 4; i++) {
        snprintf(
            conversation, sizeof conversation,
            "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
            "\"content\": %s, \"tool_calls\": [{\"id\": \"abcdefghi\", \"type\": \"function\", "
            "\"function\": {\"name\": \"f\", \"arguments\": %s}}]}, {\"role\": \"tool\", "
            "\"tool_call_id\": \"abcdefghi\", \"name\": \"f\", \"content\": \"b\"}]",
            contents[i / 2], arguments[i % 2]);
        if (!probe(c, conversation, NULL, output) || shows(output, "'needle'"))
            continue;
        c->traits.null_content_as_text = i / 2 == 1;
        c->traits.arguments_as_text = i % 2 == 1;
        return;
    }
}

static void probe_parts(chat *c, template_output *output)
{
    static const char text[] = "[{\"role\": \"user\", \"content\": \"needle\"}]";
    static const char parts[] = "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
                                "\"text\": \"needle\"}]}]";
    if (probe(c, text, NULL, output) && shows(output, "needle"))
        return;
    c->traits.content_as_parts =
        probe(c, parts, NULL, output) && shows(output, "needle") && !shows(output, "'needle'");
}

// Whether the prompt is another one where the variable is true than where it is false.
static bool switches(const chat *c, const char *name, template_output *output)
{
    const char *content =
        c->traits.content_as_parts ? "[{\"type\": \"text\", \"text\": \"a\"}]" : "\"a\"";
    char conversation[128];
    template_output other = { 0 };
    json_t *on = json_pack("{s:b}", name, 1), *off = json_pack("{s:b}", name, 0);
    snprintf(conversation, sizeof conversation, "[{\"role\": \"user\", \"content\": %s}]", content);
    bool differ = on && off && probe(c, conversation, on, output) &&
                  probe(c, conversation, off, &other) &&
                  !slice_equal(buffer_slice(&output->text), buffer_slice(&other.text));
    json_decref(on);
    json_decref(off);
    template_output_close(&other);
    return differ;
}

static void probe_switch(chat *c, template_output *output)
{
    static const char *const names[] = { "enable_thinking", "thinking" };
    for (size_t i = 0; c->traits.thinks && !c->traits.thinking_switch && i < 2; i++)
        if (template_mentions(c->template, names[i]) && switches(c, names[i], output))
            c->traits.thinking_switch = names[i];
}

static char *copy_of(slice text)
{
    char *copy = malloc(text.size + 1);
    if (copy) {
        memcpy(copy, text.data, text.size);
        copy[text.size] = '\0';
    }
    return copy;
}

status chat_open(slice source, slice bos, slice eos, chat **opened, error *failure)
{
    status result = STATUS_OK;
    template_output output = { 0 };
    *opened = NULL;
    chat *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the chat template");
    TRY(template_open(source, &c->template, failure));
    c->bos = bos.size > 0 ? copy_of(bos) : NULL;
    c->eos = eos.size > 0 ? copy_of(eos) : NULL;
    if ((bos.size > 0 && !c->bos) || (eos.size > 0 && !c->eos))
        TRY(error_set(failure, STATUS_NO_MEMORY, "", "no memory for the chat template"));
    c->bos_size = bos.size;
    c->eos_size = eos.size;
    c->traits.reads_tools = template_mentions(c->template, "tools");
    c->traits.reads_tool_calls = template_mentions(c->template, "tool_calls");
    c->traits.reads_bos = template_mentions(c->template, "bos_token");
    c->traits.knows_developer = template_mentions(c->template, "developer");
    c->traits.thinks = reasoning_in_template(source);
    c->traits.tools = tool_format_detect(source);
    probe_calls(c, &output);
    probe_parts(c, &output);
    probe_switch(c, &output);
    template_output_close(&output);
    *opened = c;
    return STATUS_OK;
fail:
    chat_close(c);
    return result;
}

void chat_close(chat *c)
{
    if (!c)
        return;
    template_close(c->template);
    free(c->bos);
    free(c->eos);
    free(c);
}

const chat_traits *chat_traits_of(const chat *c)
{
    return &c->traits;
}

// --- a request ---

// Tools and documents.
static status check_objects(json_t *list, const char *name, error *failure)
{
    size_t index;
    json_t *item;
    if (!list || json_is_null(list))
        return STATUS_OK;
    if (!json_is_array(list))
        return error_set(failure, STATUS_INVALID, name, "%s must be a list", name);
    json_array_foreach(list, index, item)
    {
        char param[64];
        snprintf(param, sizeof param, "%s[%zu]", name, index);
        if (!json_is_object(item))
            return error_set(failure, STATUS_INVALID, param, "%s must be an object", param);
    }
    return STATUS_OK;
}

static status check_extra(json_t *extra, error *failure)
{
    static const char *const reserved[] = {
        "messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", NULL
    };
    if (!extra || json_is_null(extra))
        return STATUS_OK;
    if (!json_is_object(extra))
        return error_set(failure, STATUS_INVALID, "chat_template_kwargs",
                         "chat_template_kwargs must be an object");
    for (const char *const *name = reserved; *name; name++) {
        char param[64];
        snprintf(param, sizeof param, "chat_template_kwargs.%s", *name);
        if (json_object_get(extra, *name))
            return error_set(failure, STATUS_INVALID, param, "%s cannot be set here", param);
    }
    return STATUS_OK;
}

// The text of the last message, which the prompt is to end with.
static status final_text(const chat_request *request, json_t *messages, slice *text, error *failure)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    json_t *content = json_object_get(last, "content");
    if (request->add_generation_prompt)
        return error_set(failure, STATUS_INVALID, "continue_final_message",
                         "continue_final_message and add_generation_prompt exclude each other");
    if (json_is_array(content)) // the one text part that chat_messages_prepare makes
        content = json_object_get(json_array_get(content, 0), "text");
    *text = (slice){ json_string_value(content), json_string_length(content) };
    if (!json_is_string(content) || json_object_get(last, "tool_calls") || text->size == 0)
        return error_set(failure, STATUS_INVALID, "continue_final_message",
                         "continue_final_message needs a last message with text and no tool_calls");
    return STATUS_OK;
}

static slice trim(slice text)
{
    while (text.size > 0 && strchr(" \t\r\n", text.data[0]) && text.data[0])
        text = (slice){ text.data + 1, text.size - 1 };
    while (text.size > 0 && strchr(" \t\r\n", text.data[text.size - 1]) && text.data[text.size - 1])
        text.size--;
    return text;
}

// Where the last place that holds `core` ends; 0: there is none.
static status last_end(slice text, slice core, size_t *end, error *failure)
{
    *end = 0;
    if (core.size == 0 || core.size > text.size)
        return STATUS_OK;
    pattern p = { .text = core, .fallback = malloc(core.size * sizeof p.fallback[0]) };
    if (!p.fallback)
        return error_set(failure, STATUS_NO_MEMORY, "", "no memory for the prompt");
    pattern_prepare(&p);
    for (size_t i = 0; i < text.size; i++)
        if (pattern_push(&p, text.data[i])) {
            *end = i + 1;
            pattern_again(&p);
        }
    free(p.fallback);
    return STATUS_OK;
}

// Cut the rendered text behind the last place that holds `final`, with the white space at its end
// where the template kept it.
static status cut_behind(slice final, template_output *output, error *failure)
{
    slice core = trim(final), text = buffer_slice(&output->text);
    size_t tail = (size_t)(final.data + final.size - (core.data + core.size)), end;
    status result = last_end(text, core, &end, failure);
    if (result != STATUS_OK)
        return result;
    if (end == 0)
        return error_set(failure, STATUS_INVALID, "continue_final_message",
                         "the chat template does not show the text of the last message");
    if (text.size - end >= tail && memcmp(text.data + end, core.data + core.size, tail) == 0)
        end += tail;
    output->text.size = end;
    output->text.data[end] = '\0';
    while (output->segments[output->segment_count - 1].offset >= end)
        output->segment_count--;
    template_segment *last = &output->segments[output->segment_count - 1];
    last->size = end - last->offset;
    return STATUS_OK;
}

bool chat_opens_reasoning(const chat *c, const chat_request *request, const template_output *output)
{
    if (!c->traits.thinks || output->segment_count == 0)
        return false;
    const template_segment *last = &output->segments[output->segment_count - 1];
    return (last->from_template || request->continue_final_message) &&
           reasoning_is_open((slice){ output->text.data + last->offset, last->size });
}

status chat_render(const chat *c, const chat_request *request, const template_limits *limits,
                   template_output *output, error *failure)
{
    status result = STATUS_OK;
    error why = { 0 };
    json_t *messages = NULL, *roles = NULL;
    buffer_clear(&output->text);
    output->segment_count = 0;
    output->fault = TEMPLATE_FAULT_NONE;
    TRY(check_objects(request->tools, "tools", failure));
    TRY(check_objects(request->documents, "documents", failure));
    TRY(check_extra(request->extra, failure));
    TRY(chat_messages_prepare(request->messages, &c->traits, &messages, &roles, failure));
    slice final = { NULL, 0 };
    if (request->continue_final_message)
        TRY(final_text(request, messages, &final, failure));
    result = render(c, request, messages, roles, limits, output, &why);
    if (result != STATUS_OK)
        error_set(
            failure, result, "messages", "%s%s",
            output->fault == TEMPLATE_FAULT_RAISED ? "" : "the chat template failed: ", why.text);
    else if (request->continue_final_message)
        TRY(cut_behind(final, output, failure));
fail:
    if (result != STATUS_OK) {
        buffer_clear(&output->text);
        output->segment_count = 0;
    }
    json_decref(messages);
    json_decref(roles);
    return result;
}
