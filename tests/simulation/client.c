#include "client.h"

#include "cluster.h"
#include "fake_model.h"

#include "harness/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>

// With the longest answer they fit the smallest context, 320.
#define COMMON_MAX 80
#define OWN_MAX 110
#define ANSWER_MAX 120

static client *clients;
static uint64_t clients_made;

client *client_list(void)
{
    return clients;
}

// ---- the right answer -------------------------------------------------------------------------

static void answer_expect(client *c)
{
    uint64_t chain = 0;
    size_t size = 0;
    for (size_t i = 0; i < c->prompt_count; i++)
        chain = fake_model_chain(chain, c->prompt[i]);
    c->expected_finish = "length";
    for (c->expected_tokens = 0; c->expected_tokens < c->max_tokens;) {
        int32_t token = fake_model_draw(chain, c->seed, c->expected_tokens >= c->min_tokens);
        c->expected_tokens++;
        if (token == FAKE_MODEL_END_TOKEN) {
            c->expected_finish = "stop";
            break;
        }
        CHECK(size + 1 < sizeof c->expected);
        c->expected[size++] = (char)(token - TINY_MODEL_BYTE_FIRST);
        chain = fake_model_chain(chain, token);
    }
}

// Some letters of the answer end it where they come first.
static void stop_choose(client *c)
{
    size_t size = strlen(c->expected), length = world_between(1, 3);
    if (size < length || !world_chance(0.2))
        return;
    size_t at = world_between(0, size - length);
    memcpy(c->stop, c->expected + at, length);
    *strstr(c->expected, c->stop) = 0;
    c->expected_finish = "stop";
}

// ---- the question -----------------------------------------------------------------------------

static void prompt_choose(client *c)
{
    // Some prompts begin alike, so that pages are shared.
    size_t common = world_chance(0.5) ? world_between(1, COMMON_MAX) : 0;
    uint64_t family = world_between(1, 3);
    c->prompt_count = common + world_between(1, world_chance(0.3) ? 12 : OWN_MAX);
    for (size_t i = 0; i < c->prompt_count; i++) {
        uint64_t letter = i < common ? (family * 31 + i * i) % 58 : world_between(0, 57);
        c->prompt[i] = TINY_MODEL_BYTE_FIRST + 'A' + (int32_t)letter;
    }
}

client *client_begin(process *asked, client_patience patience)
{
    client *c = calloc(1, sizeof *c);
    CHECK(c);
    c->number = ++clients_made;
    c->router = asked;
    c->patience = patience;
    c->begun_us = world_now_us();
    c->stream = world_chance(0.8);
    prompt_choose(c);
    c->max_tokens = world_between(1, world_chance(0.3) ? ANSWER_MAX : 24);
    c->min_tokens = world_chance(0.3) ? world_between(0, c->max_tokens) : 0;
    c->seed = world_between(0, 1000000);
    if (patience != CLIENT_BEARS_NOTHING && world_chance(0.1))
        c->leave_after = world_between(1, 3000);
    answer_expect(c);
    stop_choose(c);
    c->next = clients;
    clients = c;
    world_counts[WORLD_REQUESTS]++;

    buffer body = { 0 };
    buffer_append_text(&body, "{\"model\":\"tiny\",\"prompt\":[");
    for (size_t i = 0; i < c->prompt_count; i++)
        buffer_printf(&body, i ? ",%d" : "%d", c->prompt[i]);
    buffer_printf(&body, "],\"max_tokens\":%zu,\"min_tokens\":%zu,\"seed\":%llu,\"stream\":%s",
                  c->max_tokens, c->min_tokens, (unsigned long long)c->seed,
                  c->stream ? "true" : "false");
    if (c->stop[0]) {
        buffer_append_text(&body, ",\"stop\":");
        buffer_append_json(&body, slice_of(c->stop));
    }
    if (world_chance(0.3))
        buffer_append_text(&body, ",\"priority\":1");
    if (patience != CLIENT_BEARS_NOTHING && cluster_client_timeout_s() > 0)
        buffer_printf(&body, ",\"timeout\":%.3f", cluster_client_timeout_s());
    buffer_append_byte(&body, '}');
    world_trace("client %llu asks %s prompt %zu max_tokens %zu expects \"%s\" %s",
                (unsigned long long)c->number, asked->name, c->prompt_count, c->max_tokens,
                c->expected, c->expected_finish);
    http_post(c, "/v1/completions", buffer_slice(&body));
    buffer_close(&body);
    return c;
}

// ---- what comes -------------------------------------------------------------------------------

static void client_end_with(client *c, client_end end, world_count count)
{
    c->end = end;
    c->ended_us = world_now_us();
    world_counts[count]++;
    world_trace("client %llu ends %s after %.3f s %s", (unsigned long long)c->number,
                world_count_names[count], (double)(c->ended_us - c->begun_us) / 1e6, c->error_code);
}

// The value of a JSON string behind `key`; no escapes are needed for the world's alphabet but one.
static bool string_after(slice text, const char *key, char *value, size_t room)
{
    const char *at = memmem(text.data, text.size, key, strlen(key));
    if (!at)
        return false;
    size_t size = 0;
    const char *end = text.data + text.size;
    for (at += strlen(key); at < end && *at != '"'; at++) {
        at += *at == '\\' && at + 1 < end;
        if (size + 1 < room)
            value[size++] = *at;
    }
    value[size] = 0;
    return true;
}

static void text_take(client *c, slice event)
{
    char text[1100];
    if (!string_after(event, "\"text\":\"", text, sizeof text))
        return;
    size_t size = strlen(text);
    CHECK(c->got_size + size < sizeof c->got);
    memcpy(c->got + c->got_size, text, size + 1);
    c->got_size += size;
    if (strncmp(c->got, c->expected, c->got_size) != 0)
        world_violation("client %llu got \"%s\", the right answer is \"%s\"",
                        (unsigned long long)c->number, c->got, c->expected);
    string_after(event, "\"finish_reason\":\"", c->finish, sizeof c->finish);
}

static void event_take(client *c, slice event)
{
    if (event.size == 0 || event.data[0] == ':')
        return;
    if (c->done_mark)
        world_violation("client %llu gets more after the end mark", (unsigned long long)c->number);
    if (memmem(event.data, event.size, "\"error\":", 8)) {
        c->error_event = true;
        string_after(event, "\"code\":\"", c->error_code, sizeof c->error_code);
    } else if (memmem(event.data, event.size, "[DONE]", 6)) {
        c->done_mark = true;
    } else {
        text_take(c, event);
    }
}

void client_on_data(client *c, int status_code, slice data)
{
    if (c->end != CLIENT_WAITS)
        return;
    c->status_code = status_code;
    buffer_append_slice(&c->head, data);
    if (c->stream && status_code == 200) {
        for (const char *end; c->head.size > 0 && (end = strstr(c->head.data, "\n\n")) != NULL;) {
            size_t size = (size_t)(end - c->head.data);
            event_take(c, (slice){ c->head.data, size });
            buffer_drop_front(&c->head, size + 2);
        }
    }
    if (c->leave_after && c->got_size * 100 + c->head.size >= c->leave_after) {
        world_counts[WORLD_LEAVES]++;
        http_leave(c);
        client_end_with(c, CLIENT_ABANDONED, WORLD_ABANDONED);
    }
}

// Whoever is given up has waited as long as its router may try.
static void given_up_check(const client *c)
{
    const uint64_t slack_us = 10000; // a router's clock is a little before the world's
    uint64_t waited_us = world_now_us() - c->begun_us + slack_us;
    if (waited_us < cluster_retry_budget_us())
        world_violation("client %llu is given up with %.1f s of its retry budget left",
                        (unsigned long long)c->number,
                        (double)(cluster_retry_budget_us() - waited_us) / 1e6);
}

static void error_end(client *c)
{
    if (c->status_code == 429) {
        client_end_with(c, CLIENT_LIMITED, WORLD_LIMITED);
        return;
    }
    bool poison = strcmp(c->error_code, "poison") == 0;
    if (c->patience == CLIENT_BEARS_NOTHING || (c->patience == CLIENT_BEARS_POISON && !poison))
        world_violation("client %llu is answered %d %s although a worker of each kind lives",
                        (unsigned long long)c->number, c->status_code, c->error_code);
    static const struct {
        const char *code;
        world_count count;
    } causes[] = { { "no_worker", WORLD_NO_WORKER },    { "worker_failed", WORLD_GAVE_UP },
                   { "handoff_failed", WORLD_GAVE_UP }, { "poison", WORLD_POISON },
                   { "deadline", WORLD_DEADLINES },     { "draining", WORLD_DRAINED } };
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++)
        if (strcmp(c->error_code, causes[i].code) == 0) {
            if (causes[i].count == WORLD_GAVE_UP)
                given_up_check(c);
            client_end_with(c, CLIENT_FAILED, causes[i].count);
            return;
        }
    world_violation("client %llu is answered %d %s, for which there is no reason",
                    (unsigned long long)c->number, c->status_code, c->error_code);
}

void client_on_end(client *c)
{
    if (c->end != CLIENT_WAITS)
        return;
    c->http = NULL;
    if (c->status_code != 200 || !c->stream) {
        if (c->head.size > 0)
            event_take(c, buffer_slice(&c->head));
        c->done_mark = c->status_code == 200;
    }
    if (c->error_event) {
        error_end(c);
        return;
    }
    if (!c->done_mark)
        world_violation("the answer of client %llu ends without its end mark",
                        (unsigned long long)c->number);
    if (strcmp(c->got, c->expected) != 0 || strcmp(c->finish, c->expected_finish) != 0)
        world_violation("client %llu got \"%s\" %s, the right answer is \"%s\" %s",
                        (unsigned long long)c->number, c->got, c->finish, c->expected,
                        c->expected_finish);
    world_counts[WORLD_TOKENS] += c->expected_tokens;
    client_end_with(c, CLIENT_ANSWERED, WORLD_ANSWERED);
}

void client_on_cut(client *c)
{
    if (c->end != CLIENT_WAITS)
        return;
    if (c->patience != CLIENT_BEARS_ALL)
        world_violation("client %llu was cut off although its router lives",
                        (unsigned long long)c->number);
    client_end_with(c, CLIENT_CUT_OFF, WORLD_CUT_OFF);
}
