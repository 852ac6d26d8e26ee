// No Cancel is lost where a worker's mailbox is full. The mailbox is this test's own: it notes what
// is sent, and takes nothing while it is said to be full.
#include "net/mailbox.h"
#include "router/dispatcher_private.h"
#include "router/registry_cancel.h"
#include "router/registry_private.h"

#include <stdlib.h>

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

#define SENT_MAX 16384
#define INCARNATION 7

typedef struct sent {
    int kind; // Penstock__ToWorker__BodyCase
    uint64_t number;
    uint32_t attempt;
} sent;

static sent outbox[SENT_MAX];
static size_t outbox_count, outbox_room; // messages that it still takes
static status outbox_refusal;

status __wrap_mailbox_pair_send(mailbox_pair *p, slice data, bool urgent);

status __wrap_mailbox_pair_send(mailbox_pair *p, slice data, bool urgent)
{
    (void)p, (void)urgent;
    message_to_worker *m = NULL;
    error failure;
    if (outbox_room == 0)
        return outbox_refusal;
    outbox_room--;
    assert_int_equal(message_unpack_to_worker(data, &m, &failure), STATUS_OK);
    assert_true(outbox_count < SENT_MAX);
    sent *s = &outbox[outbox_count++];
    *s = (sent){ .kind = (int)m->body_case };
    if (m->body_case == PENSTOCK__TO_WORKER__BODY_CANCEL) {
        assert_int_equal(m->cancel->request->router, INCARNATION);
        s->number = m->cancel->request->number;
        s->attempt = m->cancel->attempt;
    }
    message_free(m);
    return STATUS_OK;
}

static router owner;
static registry *workers;
static registry_worker *worker;
static served_model *model;
static router_settings settings;
static int lost;

static void on_lost(registry_worker *w, status cause, void *context)
{
    (void)cause, (void)context;
    assert_null(registry_find(workers, w->serial));
    lost++;
}

static int setup(void **state)
{
    (void)state;
    error failure;
    lost = 0;
    outbox_count = 0;
    outbox_room = SIZE_MAX;
    outbox_refusal = STATUS_FULL;
    owner = (router){ .settings = &settings,
                      .incarnation = INCARNATION,
                      .models = { 1, { { .prompt.identity = { { 1, 2 }, 100, "m" } } } } };
    model = &owner.models.items[0];
    assert_int_equal(http_loop_open(&owner.loop, &failure), STATUS_OK);
    assert_int_equal(router_metrics_open(&owner.models, &owner.metrics), STATUS_OK);
    assert_int_equal(dispatcher_open(&owner, &owner.dispatcher, &failure), STATUS_OK);
    workers = owner.registry = calloc(1, sizeof *workers);
    assert_non_null(workers);
    workers->incarnation = INCARNATION;
    workers->hooks.lost = on_lost;
    workers->capacity = 1;
    workers->workers = calloc(1, sizeof(registry_worker *));
    worker = calloc(1, sizeof *worker);
    assert_true(workers->workers && worker);
    *worker = (registry_worker){ .serial = 3, .state = REGISTRY_ALIVE, .model = model };
    registry_index(workers, worker);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (registry_count(workers) > 0)
        registry_lose(workers, worker, STATUS_PEER_CLOSED);
    free(workers->workers);
    free(workers);
    dispatcher_close(owner.dispatcher);
    router_metrics_close(owner.metrics);
    http_loop_close(owner.loop);
    return 0;
}

static void expect_cancel(size_t index, uint64_t number, uint32_t attempt)
{
    assert_true(index < outbox_count);
    assert_int_equal(outbox[index].kind, PENSTOCK__TO_WORKER__BODY_CANCEL);
    assert_int_equal(outbox[index].number, number);
    assert_int_equal(outbox[index].attempt, attempt);
}

// What a worker that goes on with an attempt says.
static void tell_tokens(uint64_t router_incarnation, uint64_t number, uint32_t attempt,
                        Penstock__Finish finish)
{
    Penstock__RequestId id = PENSTOCK__REQUEST_ID__INIT;
    Penstock__TokenUpdate update = PENSTOCK__TOKEN_UPDATE__INIT;
    Penstock__TokenUpdate *updates[] = { &update };
    Penstock__TokenBatch batch = PENSTOCK__TOKEN_BATCH__INIT;
    Penstock__ToRouter m = PENSTOCK__TO_ROUTER__INIT;
    id.router = router_incarnation;
    id.number = number;
    update.request = &id;
    update.attempt = attempt;
    update.finish = finish;
    batch.n_updates = 1;
    batch.updates = updates;
    m.body_case = PENSTOCK__TO_ROUTER__BODY_TOKENS;
    m.tokens = &batch;
    dispatcher_on_message(worker, &m, &owner);
}

// ---- facts ------------------------------------------------------------------------------------

static void a_cancel_goes_at_once_where_there_is_room(void **state)
{
    (void)state;
    registry_cancel(workers, worker, 5, 2);
    assert_int_equal(outbox_count, 1);
    expect_cancel(0, 5, 2);
    assert_int_equal(registry_cancels_kept(worker), 0);
}

static void what_a_full_mailbox_refused_goes_before_anything_else(void **state)
{
    (void)state;
    outbox_room = 0;
    for (uint64_t i = 1; i <= 3; i++)
        registry_cancel(workers, worker, i, (uint32_t)i + 10);
    assert_int_equal(registry_cancels_kept(worker), 3);
    assert_int_equal(worker->state, REGISTRY_SUSPECT);
    registry_speak(workers, worker); // takes nothing, loses nothing
    assert_int_equal(outbox_count, 0);
    outbox_room = 2;
    registry_cancel(workers, worker, 4, 14); // finds its place behind the others
    assert_int_equal(outbox_count, 2);
    assert_int_equal(registry_cancels_kept(worker), 2);
    outbox_room = SIZE_MAX;
    registry_speak(workers, worker);
    assert_int_equal(outbox_count, 5);
    for (uint64_t i = 1; i <= 4; i++)
        expect_cancel(i - 1, i, (uint32_t)i + 10);
    assert_int_equal(outbox[4].kind, PENSTOCK__TO_WORKER__BODY_BEAT);
    assert_int_equal(registry_cancels_kept(worker), 0);
}

static void a_message_waits_while_cancels_do(void **state)
{
    (void)state;
    Penstock__DrainOrder drain = PENSTOCK__DRAIN_ORDER__INIT;
    Penstock__ToWorker m = PENSTOCK__TO_WORKER__INIT;
    m.body_case = PENSTOCK__TO_WORKER__BODY_DRAIN;
    m.drain = &drain;
    outbox_room = 0;
    registry_cancel(workers, worker, 1, 1);
    registry_cancel(workers, worker, 2, 1);
    outbox_room = 1;
    assert_int_equal(registry_send(workers, worker, &m, false), STATUS_FULL);
    assert_int_equal(outbox_count, 1);
    expect_cancel(0, 1, 1);
}

static void room_is_found_without_another_message(void **state)
{
    (void)state;
    outbox_room = 0;
    registry_cancel(workers, worker, 1, 1);
    outbox_room = SIZE_MAX;
    registry_cancels_turn(workers, worker);
    expect_cancel(0, 1, 1);
}

static void they_end_with_their_worker(void **state)
{
    (void)state;
    outbox_room = 0;
    registry_cancel(workers, worker, 1, 1);
    registry_lose(workers, worker, STATUS_PEER_CLOSED); // leaks are the sanitizer's to tell
    assert_int_equal(lost, 1);
    assert_int_equal(outbox_count, 0);
}

static void a_closed_mailbox_keeps_nothing(void **state)
{
    (void)state;
    outbox_room = 0;
    registry_cancel(workers, worker, 1, 1);
    outbox_refusal = STATUS_PEER_CLOSED;
    registry_cancel(workers, worker, 2, 1);
    assert_int_equal(registry_cancels_kept(worker), 0);
    assert_int_equal(outbox_count, 0);
}

static void who_tells_of_an_attempt_that_is_over_is_told(void **state)
{
    (void)state;
    outbox_room = 0;
    for (uint64_t i = 0; i < REGISTRY_CANCELS_MAX + 5; i++)
        registry_cancel(workers, worker, i, 1);
    assert_int_equal(registry_cancels_kept(worker), REGISTRY_CANCELS_MAX);
    tell_tokens(INCARNATION, REGISTRY_CANCELS_MAX + 4, 1, PENSTOCK__FINISH__FINISH_NONE);
    assert_int_equal(registry_cancels_kept(worker), REGISTRY_CANCELS_MAX);
    outbox_room = SIZE_MAX;
    registry_cancels_turn(workers, worker);
    assert_int_equal(outbox_count, REGISTRY_CANCELS_MAX);
    for (uint64_t i = 0; i < REGISTRY_CANCELS_MAX; i++)
        expect_cancel(i, i, 1);
    // Those that found no place: their next report is answered.
    tell_tokens(INCARNATION, REGISTRY_CANCELS_MAX + 4, 1, PENSTOCK__FINISH__FINISH_NONE);
    assert_int_equal(outbox_count, REGISTRY_CANCELS_MAX + 1);
    expect_cancel(REGISTRY_CANCELS_MAX, REGISTRY_CANCELS_MAX + 4, 1);
}

static void only_what_goes_on_here_is_told(void **state)
{
    (void)state;
    tell_tokens(INCARNATION, 9, 1, PENSTOCK__FINISH__FINISH_STOP);
    tell_tokens(INCARNATION + 1, 9, 1, PENSTOCK__FINISH__FINISH_NONE);
    assert_int_equal(outbox_count, 0);
}

static void there_is_a_limit_of_answers_in_a_turn(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2 * REGISTRY_ANSWERS_MAX; i++)
        tell_tokens(INCARNATION, i, 1, PENSTOCK__FINISH__FINISH_NONE);
    assert_int_equal(outbox_count, REGISTRY_ANSWERS_MAX);
    registry_cancels_turn(workers, worker);
    tell_tokens(INCARNATION, 1000, 3, PENSTOCK__FINISH__FINISH_NONE);
    expect_cancel(REGISTRY_ANSWERS_MAX, 1000, 3);
    assert_int_equal(router_metrics_value(owner.metrics, ROUTER_METRIC_STALE, "ended_request", "m"),
                     2 * REGISTRY_ANSWERS_MAX + 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_cancel_goes_at_once_where_there_is_room),
        TEST(what_a_full_mailbox_refused_goes_before_anything_else),
        TEST(a_message_waits_while_cancels_do),
        TEST(room_is_found_without_another_message),
        TEST(they_end_with_their_worker),
        TEST(a_closed_mailbox_keeps_nothing),
        TEST(who_tells_of_an_attempt_that_is_over_is_told),
        TEST(only_what_goes_on_here_is_told),
        TEST(there_is_a_limit_of_answers_in_a_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
