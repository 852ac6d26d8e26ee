// Facts about the table of jobs.
#include "worker/job.h"

#include "harness/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static handoff_key key_of(uint64_t number, uint32_t attempt)
{
    return (handoff_key){ 1, number, attempt };
}

static void jobs_are_found_by_request_and_attempt(void **state)
{
    (void)state;
    job_table *t;
    assert_int_equal(job_table_open(4, 3, &t), STATUS_OK);
    handoff_key first = key_of(1, 0), again = key_of(1, 1), other = key_of(2, 0);
    job *a = job_add(t, &first);
    assert_ptr_equal(job_find(t, &first, false), a);
    assert_null(job_find(t, &again, false));
    assert_ptr_equal(job_find(t, &again, true), a);
    assert_null(job_find(t, &other, true));
    a->state = JOB_ENDING; // its pages are still out, but the request may come again
    assert_null(job_find(t, &again, true));
    job *b = job_add(t, &again);
    assert_ptr_equal(job_find(t, &again, true), b);
    assert_ptr_equal(job_find(t, &first, false), a);
    job_remove(t, a);
    job_remove(t, b);
    assert_int_equal(job_count(t), 0);
    job_table_close(t);
}

static void a_ticket_is_remembered_after_its_job(void **state)
{
    (void)state;
    job_table *t;
    assert_int_equal(job_table_open(2, 2, &t), STATUS_OK);
    handoff_key first = key_of(1, 1), second = key_of(1, 2), other = { 2, 1, 1 };
    assert_false(job_came_before(t, &first));
    assert_true(job_came_before(t, &first));
    assert_false(job_came_before(t, &other)); // of another router
    assert_false(job_came_before(t, &second));
    assert_true(job_came_before(t, &first)); // an older attempt that comes late
    for (uint64_t i = 0; i < 2000; i++) {
        handoff_key key = key_of(10 + i, 1);
        assert_false(job_came_before(t, &key));
    }
    assert_true(job_came_before(t, &second));
    job_table_close(t);
}

static void a_full_table_refuses_and_slots_come_back_clean(void **state)
{
    (void)state;
    job_table *t;
    assert_int_equal(job_table_open(3, 2, &t), STATUS_OK);
    job *jobs[3];
    for (uint64_t i = 0; i < 3; i++) {
        handoff_key key = key_of(i, 0);
        jobs[i] = job_add(t, &key);
        jobs[i]->held[0] = jobs[i]->held[1] = (int32_t)i;
    }
    handoff_key more = key_of(9, 0);
    assert_null(job_add(t, &more));
    for (int i = 0; i < 3; i++) // nobody shares pages
        assert_int_equal(jobs[i]->held[1], i);
    jobs[1]->transfer_failed = true;
    job_remove(t, jobs[1]);
    assert_ptr_equal(job_at(t, 0), jobs[0]); // the order of arrival stays
    assert_ptr_equal(job_at(t, 1), jobs[2]);
    job *back = job_add(t, &more);
    assert_ptr_equal(job_at(t, 2), back);
    assert_false(back->transfer_failed);
    assert_int_equal(back->next_token, -1);
    assert_int_equal(job_count_in(t, JOB_WAITING), 3);
    job_table_close(t);
}

// Against a plain list of keys, in random order.
static void random_use_keeps_order_and_membership(void **state)
{
    (void)state;
    srand((unsigned)seed_choose());
    enum { CAPACITY = 16 };
    job_table *t;
    assert_int_equal(job_table_open(CAPACITY, 1, &t), STATUS_OK);
    uint64_t model[CAPACITY], next = 0;
    int count = 0;
    for (int round = 0; round < 5000; round++) {
        if (rand() % 2 == 0) {
            handoff_key key = key_of(next, 0);
            job *j = job_add(t, &key);
            assert_true((j == NULL) == (count == CAPACITY));
            if (j != NULL)
                model[count++] = next++;
        } else if (count > 0) {
            int at = rand() % count;
            handoff_key key = key_of(model[at], 0);
            job_remove(t, job_find(t, &key, false));
            for (int i = at; i + 1 < count; i++)
                model[i] = model[i + 1];
            count--;
        }
        assert_int_equal(job_count(t), count);
        for (int i = 0; i < count; i++)
            assert_int_equal(job_at(t, i)->key.number, model[i]);
    }
    job_table_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_are_found_by_request_and_attempt),
        cmocka_unit_test(a_ticket_is_remembered_after_its_job),
        cmocka_unit_test(a_full_table_refuses_and_slots_come_back_clean),
        cmocka_unit_test(random_use_keeps_order_and_membership),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
