// A decode worker's hand-off takes an endpoint of whom a router named to it, and of nobody else.
#include "stranger.h"

// Several endpoints at a time; each is closed without a word, and no earlier than the time that a
// token may take to come.
static void an_endpoint_without_its_token_is_closed(void **state)
{
    (void)state;
    uint64_t begin_us = clock_now_us();
    admit(STRANGER, 7);
    admit(STRANGER + 1, 8);
    show(6); // nobody's
    connect_stranger();
    show(8); // another worker's
    connect_stranger();
    say_hello(MESSAGE_FABRIC_PROTOCOL, worker.identity.incarnation); // none where one is due
    connect_stranger();
    say_hello_with((handoff_token){ { 7, 2 } }, MESSAGE_FABRIC_PROTOCOL,
                   worker.identity.incarnation); // the right one but for its second half
    TURN_UNTIL(other.closes == 4);
    assert_true(clock_now_us() - begin_us > 2 * SECOND);
    assert_false(other.welcome || other.refused);
    connect_stranger();
    show(7); // nobody has used it up
    TURN_UNTIL(other.welcome);
}

static void an_endpoint_that_waits_for_its_token_may_say_nothing_else(void **state)
{
    (void)state;
    handoff_key key = { 1, 5, 1 };
    show(7);
    say_run(key, 1, 0, 1, 0);
    TURN_UNTIL(other.closed);
    connect_stranger();
    show(7);
    show(7);
    TURN_UNTIL(other.closed);
    assert_true(nothing_was_written());
}

static void a_token_admits_one_endpoint(void **state)
{
    (void)state;
    admit(STRANGER, 7);
    show(7);
    TURN_UNTIL(other.welcome);
    probe_all();
    fabric_peer first = other.peer;
    connect_stranger();
    show(7);
    TURN_UNTIL(other.closed);
    assert_false(other.welcome);
    // It did not take the place of the first one either.
    other.peer = first;
    handoff_key key = open_seat(4);
    say_run(key, other.generation, 0, 1, 0);
    say_record(key, other.generation, 1);
    TURN_UNTIL(peer_wait(&worker, HANDOFF_SEAT_FILLED, key, 0, NULL));
}

static void a_greeting_waits_for_its_ticket(void **state)
{
    (void)state;
    show(7);
    uint64_t begin_us = clock_now_us();
    while (clock_now_us() - begin_us < SECOND / 2)
        fabric_turn(other.f, 1000);
    assert_false(other.welcome || other.refused || other.closed);
    admit(STRANGER, 9);
    admit(STRANGER, 7);
    TURN_UNTIL(other.welcome);
}

int main(int argc, char **argv)
{
    (void)argc;
    fabric_exec(argv);
    log_level_set(getenv("PENSTOCK_VERBOSE") ? LOG_DEBUG : LOG_ERROR);
    const struct CMUnitTest tests[] = {
        TEST(an_endpoint_without_its_token_is_closed),
        TEST(an_endpoint_that_waits_for_its_token_may_say_nothing_else),
        TEST(a_token_admits_one_endpoint),
        TEST(a_greeting_waits_for_its_ticket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
