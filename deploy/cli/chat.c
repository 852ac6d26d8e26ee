// A conversation with the model. On a terminal: line by line, Ctrl-C stops the answer and not the
// program, Ctrl-D ends it. In a pipe: all of standard input is one question, and the answer alone
// goes to standard output.
#include "deploy/cli/cli.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "net/http_head.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUESTION_MAX ((size_t)4 << 20)
#define DIM "\033[2m"
#define PLAIN "\033[0m"

typedef struct chat {
    const cli *cli;
    const char *model;
    json_t *messages;
    bool terminal; // standard output is one
    // The answer that comes in.
    buffer lines; // of events, not used; bounded, as the answer is
    buffer answer;
    bool thinking; // thought is shown, and no answer yet
    double tokens;
    uint64_t asked_us, first_us, last_us;
} chat;

static atomic_bool interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

// ---- showing ----------------------------------------------------------------------------------

// What the model writes may be anything; a terminal would obey its control characters.
static void text_show(const chat *c, slice text)
{
    while (text.size > 0) {
        size_t size = utf8_sequence_size(text.data, text.size);
        unsigned char first = (unsigned char)text.data[0];
        bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f ||
                       (size == 2 && first == 0xc2 && (unsigned char)text.data[1] < 0xa0);
        if (c->terminal && (size == 0 || control))
            fputs("\xef\xbf\xbd", stdout);
        else
            fwrite(text.data, 1, size ? size : 1, stdout);
        size = size ? size : 1;
        text = (slice){ text.data + size, text.size - size };
    }
    fflush(stdout);
}

static void rate_show(const chat *c)
{
    double seconds = (double)(c->last_us - c->first_us) / 1e6;
    if (!c->terminal || c->tokens == 0)
        return;
    printf(DIM "%.0f tokens, first after %.2f s", c->tokens,
           (double)(c->first_us - c->asked_us) / 1e6);
    if (c->tokens > 1 && seconds > 0)
        printf(", %.1f tokens/s", (c->tokens - 1) / seconds);
    printf(PLAIN "\n");
}

// ---- an answer --------------------------------------------------------------------------------

static void thought_take(chat *c, const char *thought)
{
    if (!c->terminal)
        return;
    if (!c->thinking)
        fputs(DIM, stdout);
    c->thinking = true;
    text_show(c, slice_of(thought));
}

static void text_take(chat *c, const char *text)
{
    if (c->thinking)
        fputs(PLAIN "\n", stdout);
    c->thinking = false;
    buffer_append_text(&c->answer, text);
    text_show(c, slice_of(text));
}

static status event_take(chat *c, slice data, error *failure)
{
    json_t *event = json_loadb(data.data, data.size, 0, NULL);
    const json_t *wrong = json_object_get(event, "error");
    const json_t *delta =
        json_object_get(json_array_get(json_object_get(event, "choices"), 0), "delta");
    const char *text = json_string_value(json_object_get(delta, "content"));
    const char *thought = json_string_value(json_object_get(delta, "reasoning_content"));
    double tokens = cli_number(json_object_get(event, "usage"), "completion_tokens");
    status result = STATUS_OK;
    if (wrong) {
        result = error_set(failure, STATUS_PEER_REFUSED, "", "%s", cli_text(wrong, "message"));
    } else if ((text && text[0]) || (thought && thought[0])) {
        c->last_us = clock_now_us();
        if (c->first_us == 0)
            c->first_us = c->last_us;
        if (thought && thought[0])
            thought_take(c, thought);
        if (text && text[0])
            text_take(c, text);
    }
    if (tokens > 0)
        c->tokens = tokens;
    json_decref(event);
    return result;
}

// Whole lines of what has come; `*ended`: the end mark was among them.
static status lines_take(chat *c, bool *ended, error *failure)
{
    status result = STATUS_OK;
    const char *end;
    while (result == STATUS_OK && c->lines.size > 0 &&
           (end = memchr(c->lines.data, '\n', c->lines.size)) != NULL) {
        slice line = { c->lines.data, (size_t)(end - c->lines.data) };
        if (line.size > 6 && memcmp(line.data, "data: ", 6) == 0) {
            slice data = { line.data + 6, line.size - 6 };
            if (slice_equal(data, SLICE("[DONE]")))
                *ended = true;
            else
                result = event_take(c, data, failure);
        }
        buffer_drop_front(&c->lines, line.size + 1);
    }
    return result;
}

static status answer_stream(chat *c, error *failure)
{
    http_client *client = NULL;
    bool done = false, ended = false;
    json_t *body = json_pack("{s:s,s:O,s:b,s:{s:b}}", "model", c->model, "messages", c->messages,
                             "stream", 1, "stream_options", "include_usage", 1);
    status result = body ? cli_open(c->cli, c->cli->routers[0], "/v1/chat/completions", body,
                                    &interrupted, &client, failure)
                         : error_set(failure, STATUS_NO_MEMORY, "", "no memory for the question");
    json_decref(body);
    while (result == STATUS_OK && !done) {
        buffer piece = { 0 };
        result = http_client_read(client, &piece, &done, failure);
        buffer_append_slice(&c->lines, buffer_slice(&piece));
        buffer_close(&piece);
        if (result == STATUS_OK)
            result = lines_take(c, &ended, failure);
        if (result == STATUS_OK && (c->lines.overflow || c->answer.overflow))
            result = error_set(failure, STATUS_PEER_PROTOCOL, "", "the answer is too long");
    }
    http_client_close(client);
    if (result == STATUS_OK && !ended)
        result = error_set(failure, STATUS_PEER_CLOSED, "", "the answer was cut off");
    return result;
}

static bool message_add(chat *c, const char *role, slice text)
{
    json_t *message = json_pack("{s:s,s:s%}", "role", role, "content", text.data, text.size);
    return message && json_array_append_new(c->messages, message) == 0;
}

// Ask with what is in `messages`; the answer becomes part of them. A failure takes the question
// out again.
static status answer_get(chat *c, error *failure)
{
    buffer_clear(&c->lines);
    buffer_clear(&c->answer);
    c->thinking = false;
    c->tokens = 0;
    c->first_us = 0;
    c->asked_us = clock_now_us();
    status result = answer_stream(c, failure);
    if (c->thinking)
        fputs(PLAIN, stdout);
    if (c->answer.size > 0 || c->thinking || (c->terminal && result == STATUS_CANCELLED))
        fputs("\n", stdout);
    if (c->answer.size > 0 && (result == STATUS_OK || result == STATUS_CANCELLED))
        message_add(c, "assistant", buffer_slice(&c->answer));
    else if (result != STATUS_OK)
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    fflush(stdout);
    return result;
}

// ---- the conversation -------------------------------------------------------------------------

static void begin(chat *c, const char *system)
{
    json_array_clear(c->messages);
    if (system && system[0])
        message_add(c, "system", slice_of(system));
}

// A line that begins with a slash. False: the conversation is over.
static bool command_follow(chat *c, const char *line)
{
    if (strcmp(line, "/quit") == 0)
        return false;
    if (strcmp(line, "/clear") == 0) {
        const json_t *first = json_array_get(c->messages, 0);
        bool kept = first && strcmp(cli_text(first, "role"), "system") == 0;
        while (json_array_size(c->messages) > (kept ? 1u : 0u))
            json_array_remove(c->messages, json_array_size(c->messages) - 1);
        printf("(forgotten)\n");
    } else if (strncmp(line, "/system", 7) == 0 && (line[7] == ' ' || line[7] == 0)) {
        begin(c, line[7] ? line + 8 : NULL);
        printf("(begun anew with %s system message)\n", line[7] ? "this" : "no");
    } else {
        printf("/clear        forget what was said\n"
               "/system TEXT  begin anew with another system message\n"
               "/quit         or Ctrl-D: leave\n"
               "Ctrl-C        stop an answer\n");
    }
    return true;
}

static void line_follow(chat *c, slice line)
{
    error failure;
    if (http_text_is_utf8(line) && message_add(c, "user", line)) {
        status result = answer_get(c, &failure);
        if (result == STATUS_CANCELLED)
            printf("(stopped)\n");
        else if (result != STATUS_OK)
            cli_failed(&failure);
        else
            rate_show(c);
    } else {
        fprintf(stderr, "penstock: the line is not UTF-8 text\n");
    }
}

static int talk(chat *c)
{
    char *line = NULL;
    size_t room = 0;
    bool on = true;
    printf("%s; /help tells what else there is\n", c->model);
    while (on) {
        fputs("> ", stdout);
        fflush(stdout);
        interrupted = 0;
        errno = 0;
        ssize_t size = getline(&line, &room, stdin);
        if (size < 0 && errno == EINTR) { // Ctrl-C at the prompt: the line is thrown away
            clearerr(stdin);
            printf("\n");
            continue;
        }
        if (size < 0)
            break;
        while (size > 0 && (line[size - 1] == '\n' || line[size - 1] == '\r'))
            line[--size] = 0;
        if (line[0] == '/')
            on = command_follow(c, line);
        else if (size > 0)
            line_follow(c, (slice){ line, (size_t)size });
    }
    if (on)
        printf("\n");
    free(line);
    return 0;
}

static int answer_pipe(chat *c)
{
    error failure;
    buffer question = { .limit = QUESTION_MAX };
    char block[65536];
    for (size_t size; (size = fread(block, 1, sizeof block, stdin)) > 0;)
        buffer_append(&question, block, size);
    while (question.size > 0 && strchr("\r\n", question.data[question.size - 1]))
        question.size--;
    status result = STATUS_OK;
    if (question.overflow || question.size == 0 || !http_text_is_utf8(buffer_slice(&question)) ||
        !message_add(c, "user", buffer_slice(&question)))
        result = error_set(&failure, STATUS_INVALID, "",
                           "standard input must be a question of UTF-8 text, at most 4 MiB");
    buffer_close(&question);
    if (result == STATUS_OK)
        result = answer_get(c, &failure);
    return result == STATUS_OK ? 0 : cli_failed(&failure);
}

// The router's first model.
static status model_choose(const cli *c, json_t **models, const char **model, error *failure)
{
    status result = cli_request(c, c->routers[0], "/v1/models", NULL, models, failure);
    if (result != STATUS_OK)
        return result;
    *model = json_string_value(
        json_object_get(json_array_get(json_object_get(*models, "data"), 0), "id"));
    return *model
               ? STATUS_OK
               : error_set(failure, STATUS_NOT_FOUND, "", "the router serves no model to this key");
}

int cli_chat(const cli *c, const char *name, int count, char **arguments)
{
    (void)name, (void)count, (void)arguments;
    error failure;
    json_t *models = NULL;
    chat own = { .cli = c,
                 .model = c->model,
                 .messages = json_array(),
                 .terminal = isatty(1),
                 .lines = { .limit = CLI_ANSWER_MAX },
                 .answer = { .limit = CLI_ANSWER_MAX } };
    struct sigaction action = { .sa_handler = on_interrupt }; // without SA_RESTART: waiting ends
    int code;
    if (!c->model && model_choose(c, &models, &own.model, &failure) != STATUS_OK) {
        code = cli_failed(&failure);
    } else if (c->system && !http_text_is_utf8(slice_of(c->system))) {
        fprintf(stderr, "penstock: --system is not UTF-8 text\n");
        code = 2;
    } else {
        begin(&own, c->system);
        sigaction(SIGINT, &action, NULL);
        code = isatty(0) ? talk(&own) : answer_pipe(&own);
    }
    buffer_close(&own.lines);
    buffer_close(&own.answer);
    json_decref(own.messages);
    json_decref(models);
    return code;
}
