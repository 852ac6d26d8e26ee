// Workers join, speak, fall silent and go; each way to go is noticed.
#include "base/clock.h"
#include "router/registry.h"

#include <pthread.h>
#include <stdio.h>

#include <stdarg.h>
#include <stdatomic.h>
#include <setjmp.h>
#include <cmocka.h>

static http_loop *loop;
static registry *workers;
static router_settings settings;
static models served = { 1,
                         { { .prompt.identity = { { 1, 2 }, 100, "m" },
                             .prompt.context = 4096,
                             .versions = { .own = { 1, 2 } } } } };
static http_timer *stopper;
static int changed, lost, messages;
static status lost_cause;

static void on_changed(void *context)
{
    (void)context;
    changed++;
}

static void on_lost(registry_worker *w, status cause, void *context)
{
    (void)context;
    assert_null(w->pair);
    lost++;
    lost_cause = cause;
}

static void on_message(registry_worker *w, const message_to_router *m, void *context)
{
    (void)w, (void)m, (void)context;
    messages++;
}

static void on_settled(void *context)
{
    (void)context;
}

static void on_stop(void *context)
{
    (void)context;
    http_loop_stop(loop);
}

static void run_for(uint64_t duration_us)
{
    http_timer_start(stopper, duration_us);
    http_loop_run(loop);
}

// The loop runs until something is so; a loaded machine takes its time.
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        int looks = 0;                                                                             \
        for (; looks < 4000 && !(condition); looks++)                                              \
            run_for(5000);                                                                         \
        assert_true(looks < 4000);                                                                 \
    } while (0)

static int setup(void **state)
{
    (void)state;
    error failure;
    registry_hooks hooks = { on_changed, on_lost, on_message, on_settled, NULL };
    settings = (router_settings){ .control_listen = (char *)"tcp://127.0.0.1:0",
                                  .heartbeat_us = 20000,
                                  .suspect_after_us = 200000,
                                  .dead_after_us = 1000000,
                                  .workers_max = 2 };
    changed = lost = messages = 0;
    assert_int_equal(http_loop_open(&loop, &failure), STATUS_OK);
    assert_int_equal(http_timer_open(loop, on_stop, NULL, &stopper), STATUS_OK);
    assert_int_equal(registry_open(loop, &settings, &served, 7, &hooks, &workers, &failure),
                     STATUS_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    registry_close(workers);
    http_timer_close(stopper);
    http_loop_close(loop);
    return 0;
}

// ---- the worker's side ------------------------------------------------------------------------

typedef struct peer {
    mailbox_pair *pair;
    queue *events;
    hash128 weights, numeric;
    uint64_t incarnation;
    const char *name;
    uint32_t protocol;
    bool accepted;
    atomic_bool answered;
    char reason[512];
} peer;

#define EIGHT "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9" // of four characters
#define VERSION "1.0 " EIGHT EIGHT EIGHT EIGHT   // longer than what is kept of it

static peer peer_open(const char *name, uint64_t incarnation)
{
    peer p = { .weights = { 1, 2 },
               .numeric = { 3, 4 },
               .name = name,
               .incarnation = incarnation,
               .protocol = MESSAGE_PROTOCOL };
    error failure;
    assert_int_equal(queue_open(256, &p.events), STATUS_OK);
    assert_int_equal(mailbox_pair_listen("tcp://127.0.0.1:0", &mailbox_limits_default, p.events,
                                         NULL, &p.pair, &failure),
                     STATUS_OK);
    return p;
}

static void peer_close(peer *p)
{
    mailbox_pair_close(p->pair);
    for (mailbox_event *event; (event = queue_pop(p->events));)
        mailbox_event_free(event);
    queue_close(p->events);
}

static void *peer_ask(void *context)
{
    peer *p = context;
    Penstock__ModelIdentity identity = PENSTOCK__MODEL_IDENTITY__INIT;
    Penstock__Register r = PENSTOCK__REGISTER__INIT;
    Penstock__ControlRequest request = PENSTOCK__CONTROL_REQUEST__INIT;
    buffer question = { 0 }, answer = { 0 };
    message_control_reply *reply = NULL;
    error failure;
    identity.name = identity.architecture = identity.kv_layout = (char *)"x";
    identity.weights = (ProtobufCBinaryData){ 16, (uint8_t *)&p->weights };
    identity.numeric_id = (ProtobufCBinaryData){ 16, (uint8_t *)&p->numeric };
    identity.page_tokens = 64;
    identity.page_bytes = 4096;
    identity.context = 1000;
    identity.vocabulary = 100;
    r.worker = (char *)p->name;
    r.incarnation = p->incarnation;
    r.role = PENSTOCK__ROLE__ROLE_DECODE;
    r.model = &identity;
    r.pair_url = (char *)mailbox_pair_url(p->pair);
    r.fabric_host = (char *)"127.0.0.1";
    r.fabric_port = 1;
    r.pages = r.page_credits = 10;
    r.sequences = 4;
    r.version = (char *)VERSION;
    request.protocol = p->protocol;
    request.body_case = PENSTOCK__CONTROL_REQUEST__BODY_REGISTER;
    request.register_ = &r;
    message_pack(&request.base, &question);
    assert_int_equal(mailbox_request(registry_url(workers), buffer_slice(&question), 20000000,
                                     &answer, &failure),
                     STATUS_OK);
    assert_int_equal(message_unpack_control_reply(buffer_slice(&answer), &reply, &failure),
                     STATUS_OK);
    p->accepted = reply->accepted;
    snprintf(p->reason, sizeof p->reason, "%s", reply->reason);
    message_free(reply);
    buffer_close(&question);
    buffer_close(&answer);
    p->answered = true;
    return NULL;
}

// Registration blocks, so it has a thread while the registry's loop runs here.
static void peer_join(peer *p)
{
    pthread_t thread;
    p->answered = false;
    assert_int_equal(pthread_create(&thread, NULL, peer_ask, p), 0);
    UNTIL(p->answered);
    pthread_join(thread, NULL);
    if (p->accepted)
        UNTIL(registry_at(workers, registry_count(workers) - 1)->connected);
}

static void peer_beat_as(peer *p, uint64_t clock_ahead_us, bool healthy)
{
    Penstock__WorkerBeat beat = PENSTOCK__WORKER_BEAT__INIT;
    Penstock__ToRouter m = PENSTOCK__TO_ROUTER__INIT;
    buffer bytes = { 0 };
    uint64_t now = clock_now_us();
    beat.clock_us = now + clock_ahead_us;
    beat.router_clock_us = now - 100;
    beat.since_beat_us = 50;
    beat.healthy = healthy;
    beat.pages_free = 10;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_BEAT;
    m.beat = &beat;
    message_pack(&m.base, &bytes);
    UNTIL(mailbox_pair_send(p->pair, buffer_slice(&bytes), true) == STATUS_OK);
    buffer_close(&bytes);
}

static void peer_beat(peer *p, uint64_t clock_ahead_us)
{
    peer_beat_as(p, clock_ahead_us, true);
}

static void what_a_worker_tells_is_cut_between_characters(void **state)
{
    (void)state;
    peer p = peer_open("a", 11);
    peer_join(&p);
    assert_int_equal(registry_count(workers), 1);
    assert_string_equal(registry_at(workers, 0)->version, "1.0 " EIGHT EIGHT EIGHT "\xc3\xa9");
    peer_close(&p);
}

static void a_worker_is_usable_after_its_first_beat(void **state)
{
    (void)state;
    peer p = peer_open("a", 11);
    peer_join(&p);
    assert_true(p.accepted);
    assert_int_equal(registry_count(workers), 1);
    registry_worker *w = registry_at(workers, 0);
    assert_false(registry_usable(w));
    peer_beat(&p, 5000000);
    UNTIL(registry_usable(w));
    assert_int_equal(changed, 1);
    // Its clock is 5 s ahead: its stamps come out on ours.
    uint64_t now = clock_now_us();
    uint64_t aligned = registry_align(w, now + 5000000);
    assert_true(aligned >= now - w->clock_error_us - 1000);
    assert_true(aligned <= now + w->clock_error_us + 1000);
    assert_int_equal(registry_align(w, 0), 0);
    peer_join(&p); // asking again changes nothing
    assert_true(p.accepted);
    assert_int_equal(registry_count(workers), 1);
    peer_close(&p);
}

// A worker may say any number.
static void a_clock_of_any_time_is_measured(void **state)
{
    (void)state;
    static const uint64_t ahead[] = { UINT64_C(1) << 63, (UINT64_C(1) << 63) - 1, UINT64_MAX };
    for (size_t i = 0; i < sizeof ahead / sizeof *ahead; i++) {
        peer p = peer_open("a", 11 + i);
        peer_join(&p);
        uint64_t base = ahead[i] - clock_now_us(); // its clock says ahead[i], or a little more
        peer_beat(&p, base);
        registry_worker *w = registry_at(workers, registry_count(workers) - 1);
        UNTIL(registry_usable(w));
        uint64_t now = clock_now_us(), aligned = registry_align(w, now + base);
        assert_true(aligned >= now - w->clock_error_us - 1000);
        assert_true(aligned <= now + w->clock_error_us + 1000);
        for (int bit = 0; bit < 64; bit++)
            registry_align(w, UINT64_C(1) << bit);
        peer_close(&p);
    }
}

static void silence_is_suspect_then_death(void **state)
{
    (void)state;
    peer p = peer_open("a", 11);
    peer_join(&p);
    peer_beat(&p, 0);
    UNTIL(registry_at(workers, 0)->state == REGISTRY_ALIVE);
    UNTIL(registry_at(workers, 0)->state == REGISTRY_SUSPECT);
    peer_beat(&p, 0);
    UNTIL(registry_at(workers, 0)->state == REGISTRY_ALIVE);
    assert_int_equal(changed, 2);
    UNTIL(lost == 1);
    assert_int_equal(registry_count(workers), 0);
    assert_int_equal(lost_cause, STATUS_PEER_SILENT);
    peer_close(&p);
}

// What the peers said while this process stood still is behind its look at their silence.
static void the_routers_own_absence_is_not_their_silence(void **state)
{
    (void)state;
    peer p = peer_open("a", 11);
    peer_join(&p);
    peer_beat(&p, 0);
    UNTIL(registry_usable(registry_at(workers, 0)));
    clock_sleep_us((uint64_t)settings.dead_after_us * 3 / 2);
    run_for(60000); // at least one look
    assert_int_equal(registry_count(workers), 1);
    assert_int_equal(lost, 0);
    UNTIL(lost == 1);
    assert_int_equal(lost_cause, STATUS_PEER_SILENT);
    peer_close(&p);
}

static void a_worker_without_progress_gets_nothing_new(void **state)
{
    (void)state;
    peer p = peer_open("a", 11);
    peer_join(&p);
    peer_beat(&p, 0);
    UNTIL(registry_usable(registry_at(workers, 0)));
    peer_beat_as(&p, 0, false);
    UNTIL(!registry_usable(registry_at(workers, 0)));
    assert_string_equal(registry_state_name(registry_at(workers, 0)), "unhealthy");
    peer_beat(&p, 0);
    UNTIL(registry_usable(registry_at(workers, 0)));
    assert_int_equal(changed, 2);
    peer_close(&p);
}

static void a_closed_pair_is_death_at_once(void **state)
{
    (void)state;
    peer p = peer_open("a", 11);
    peer_join(&p);
    peer_beat(&p, 0);
    UNTIL(registry_usable(registry_at(workers, 0)));
    peer_close(&p);
    UNTIL(lost == 1);
    assert_int_equal(lost_cause, STATUS_PEER_CLOSED);
    assert_int_equal(registry_count(workers), 0);
}

static void a_broken_message_ends_the_worker(void **state)
{
    (void)state;
    peer p = peer_open("a", 11);
    peer_join(&p);
    UNTIL(mailbox_pair_send(p.pair, SLICE("\xff\xff\xff"), false) == STATUS_OK);
    UNTIL(lost == 1);
    assert_int_equal(lost_cause, STATUS_PEER_PROTOCOL);
    peer_close(&p);
}

static void a_restarted_worker_replaces_its_former_life(void **state)
{
    (void)state;
    peer first = peer_open("a", 11), second = peer_open("a", 12);
    peer_join(&first);
    peer_join(&second);
    assert_true(second.accepted);
    assert_int_equal(lost, 1);
    assert_int_equal(registry_count(workers), 1);
    assert_int_equal(registry_at(workers, 0)->incarnation, 12);
    peer_close(&first);
    peer_close(&second);
}

static void strangers_are_refused_with_a_sentence(void **state)
{
    (void)state;
    peer other = peer_open("a", 11), old = peer_open("b", 12), newer = peer_open("c", 13);
    other.weights.low = 9;
    peer_join(&other);
    assert_false(other.accepted);
    assert_non_null(strstr(other.reason, "other weights"));
    old.protocol = MESSAGE_PROTOCOL_OLDEST - 1;
    peer_join(&old);
    assert_false(old.accepted);
    assert_non_null(strstr(old.reason, "protocol is 0; this program understands 1 and 2"));
    newer.protocol = MESSAGE_PROTOCOL + 1;
    peer_join(&newer);
    assert_false(newer.accepted);
    assert_int_equal(registry_count(workers), 0);
    assert_int_equal(registry_refused(workers), 3);
    peer_close(&other);
    peer_close(&old);
    peer_close(&newer);
}

static void the_protocol_before_is_understood(void **state)
{
    (void)state;
    peer p = peer_open("a", 11);
    p.protocol = MESSAGE_PROTOCOL - 1;
    peer_join(&p);
    assert_true(p.accepted);
    assert_int_equal(registry_at(workers, 0)->protocol, MESSAGE_PROTOCOL - 1);
    peer_beat(&p, 0);
    UNTIL(registry_usable(registry_at(workers, 0)));
    peer_close(&p);
}

static void there_is_a_limit_of_workers(void **state)
{
    (void)state;
    settings.dead_after_us = 60000000;
    peer p[3] = { peer_open("a", 1), peer_open("b", 2), peer_open("c", 3) };
    for (int i = 0; i < 3; i++)
        peer_join(&p[i]);
    assert_true(p[0].accepted && p[1].accepted && !p[2].accepted);
    for (int i = 0; i < 3; i++)
        peer_close(&p[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_a_worker_tells_is_cut_between_characters),
        TEST(a_worker_is_usable_after_its_first_beat),
        TEST(a_clock_of_any_time_is_measured),
        TEST(silence_is_suspect_then_death),
        TEST(the_routers_own_absence_is_not_their_silence),
        TEST(a_worker_without_progress_gets_nothing_new),
        TEST(a_closed_pair_is_death_at_once),
        TEST(a_broken_message_ends_the_worker),
        TEST(a_restarted_worker_replaces_its_former_life),
        TEST(strangers_are_refused_with_a_sentence),
        TEST(the_protocol_before_is_understood),
        TEST(there_is_a_limit_of_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
