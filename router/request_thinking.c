// `thinking` of Anthropic's requests: what the client wishes of it, the template's variable that
// does it, and thought of earlier turns.
#include "router/request_private.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

#define BUDGET_MIN 1024
#define TYPES "\"enabled\", \"disabled\" or \"adaptive\""

static status display_check(json_t *thinking, error *failure)
{
    json_t *display = request_member(thinking, "display");
    const char *word = json_is_string(display) ? json_string_value(display) : "";
    if (!display || strcmp(word, "summarized") == 0)
        return STATUS_OK;
    if (!json_is_string(display))
        return request_must_be("thinking.display", display, "\"summarized\"", failure);
    bool known = strcmp(word, "omitted") == 0;
    return error_set(failure, known ? STATUS_UNSUPPORTED : STATUS_INVALID, "thinking.display",
                     "thinking.display is \"%.*s\"%s; right is \"summarized\"", utf8_fit(word, 40),
                     word, known ? ", which is not supported by this server" : "");
}

// Checked, and not enforced: the model ends its thought where it wants to.
static status budget_check(json_t *body, json_t *thinking, request_thinking wish, error *failure)
{
    json_t *budget = request_member(thinking, "budget_tokens");
    json_t *most = request_member(body, "max_tokens"); // may lack where tokens are only counted
    if (wish != REQUEST_THINKING_ON)
        return budget ? error_set(failure, STATUS_INVALID, "thinking.budget_tokens",
                                  "thinking.budget_tokens is given, and thinking.type is not "
                                  "\"enabled\"; right are both or none")
                      : STATUS_OK;
    if (!json_is_integer(budget))
        return request_must_be("thinking.budget_tokens", budget, "an integer of at least 1024",
                               failure);
    if (json_integer_value(budget) < BUDGET_MIN)
        return error_set(failure, STATUS_INVALID, "thinking.budget_tokens",
                         "thinking.budget_tokens is %lld; right is an integer of at least %d",
                         (long long)json_integer_value(budget), BUDGET_MIN);
    if (json_is_integer(most) && json_integer_value(budget) >= json_integer_value(most))
        return error_set(failure, STATUS_INVALID, "thinking.budget_tokens",
                         "thinking.budget_tokens is %lld; right is less than max_tokens (%lld)",
                         (long long)json_integer_value(budget),
                         (long long)json_integer_value(most));
    return STATUS_OK;
}

status request_thinking_read(json_t *body, request *r, error *failure)
{
    static const char *const types[] = { [REQUEST_THINKING_ON] = "enabled",
                                         [REQUEST_THINKING_OFF] = "disabled",
                                         [REQUEST_THINKING_ADAPTIVE] = "adaptive" };
    json_t *thinking = request_member(body, "thinking"), *type = request_member(thinking, "type");
    if (!thinking)
        return STATUS_OK;
    if (!json_is_object(thinking))
        return request_must_be("thinking", thinking, "an object with a type", failure);
    if (!json_is_string(type))
        return request_must_be("thinking.type", type, TYPES, failure);
    for (size_t i = 1; i < sizeof types / sizeof *types; i++)
        if (slice_equal(request_text(type), slice_of(types[i])))
            r->thinking = (request_thinking)i;
    if (r->thinking == REQUEST_THINKING_AS_IT_IS) {
        bool known = slice_equal(request_text(type), SLICE("between_tools"));
        return error_set(failure, known ? STATUS_UNSUPPORTED : STATUS_INVALID, "thinking.type",
                         "thinking.type is \"%.*s\"%s; right is " TYPES,
                         utf8_fit(json_string_value(type), 40), json_string_value(type),
                         known ? ", which is not supported by this server" : "");
    }
    status result = budget_check(body, thinking, r->thinking, failure);
    return result == STATUS_OK ? display_check(thinking, failure) : result;
}

status request_thought_read(json_t *block, const char *field, buffer *thought, error *failure)
{
    json_t *own = request_member(block, "thinking");
    status result = request_must_hold_string(block, field, "thinking", failure);
    if (result != STATUS_OK)
        return result;
    buffer_append(thought, json_string_value(own), json_string_length(own));
    return request_part_check(REQUEST_PART_THOUGHT, field, block, failure);
}

// ---- what the model does of it ----------------------------------------------------------------

// What holds the answer to a form from its first token on, so that no thought comes before it.
static const char *holder_of(const request *r, json_t *body)
{
    if (r->tools.forced)
        return "tool_choice";
    return request_member(body, "response_format") ? r->format_field : NULL;
}

static status enabled_check(const prompt_model *model, const char *holder, error *failure)
{
    if (!model->reasons)
        return error_set(failure, STATUS_UNSUPPORTED, "thinking.type",
                         "thinking.type is \"enabled\", and model %s %s; right is \"disabled\" or "
                         "\"adaptive\"",
                         model->identity.name,
                         chat_traits_of(model->chat)->thinks
                             ? "has its thought left in the text (the setting reasoning is off)"
                             : "does not think");
    if (!holder)
        return STATUS_OK;
    return error_set(failure, STATUS_INVALID, "thinking.type",
                     "thinking.type is \"enabled\", and %s holds the answer to its form from the "
                     "first token on; right is one of them",
                     holder);
}

// Set the template's variable, unless the client has.
static status switch_set(const char *name, bool on, json_t *given, json_t **variables,
                         error *failure)
{
    char field[64];
    json_t *own = request_member(given, name);
    snprintf(field, sizeof field, "chat_template_kwargs.%s", name);
    if (own && !json_is_boolean(own))
        return request_must_be(field, own, "true or false", failure);
    if (own && json_is_true(own) != on)
        return error_set(failure, STATUS_INVALID, field,
                         "%s and thinking.type say different things; right is one of them", field);
    *variables = given ? json_copy(given) : json_object();
    if (json_object_set_new(*variables, name, json_boolean(on)) == 0)
        return STATUS_OK;
    return error_set(failure, STATUS_NO_MEMORY, "thinking", "memory is short for thinking");
}

status request_thinking_apply(const prompt_model *model, const request *r, json_t *body,
                              json_t *given, json_t **variables, error *failure)
{
    request_thinking wish = r->thinking;
    *variables = NULL;
    if (wish == REQUEST_THINKING_AS_IT_IS || !model->chat)
        return STATUS_OK;
    const char *holder = holder_of(r, body), *name = chat_traits_of(model->chat)->thinking_switch;
    if (wish == REQUEST_THINKING_ON) {
        status result = enabled_check(model, holder, failure);
        if (result != STATUS_OK)
            return result;
    }
    if (!name || (wish == REQUEST_THINKING_ADAPTIVE && (holder || !model->reasons)))
        return STATUS_OK;
    return switch_set(name, wish != REQUEST_THINKING_OFF, given, variables, failure);
}

status request_thinking_agree(const prompt_model *model, const request *r, error *failure)
{
    if (r->thinking != REQUEST_THINKING_OFF || !r->in_thought || r->continue_final_message)
        return STATUS_OK;
    return error_set(failure, STATUS_UNSUPPORTED, "thinking.type",
                     "thinking.type is \"disabled\", and model %s always thinks: its chat template "
                     "opens a block of thought; right is \"enabled\" or \"adaptive\"",
                     model->identity.name);
}
