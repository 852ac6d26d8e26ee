// Several models of one router: names and weights tell them apart, and no two share any of them.
#include "router/models.h"

#include "harness/tiny_model.h"

#include <unistd.h>

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static char paths[2][64];

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        tiny_model options = tiny_model_default(i + 1);
        tiny_model_temporary(&options, paths[i]);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(paths[0]) + unlink(paths[1]);
}

static model_settings source(size_t path, const char *name, char **aliases, size_t count)
{
    return (model_settings){ .file = paths[path],
                             .name = (char *)name,
                             .chat_template = (char *)"",
                             .aliases = { count, aliases } };
}

static void requests_and_workers_find_their_model(void **state)
{
    (void)state;
    error failure = { 0 };
    models m = { 0 };
    char *aliases[] = { (char *)"small", (char *)"tiny" };
    model_settings one = source(0, "one", NULL, 0), two = source(1, "two", aliases, 2);
    assert_int_equal(models_add(&m, &one, &failure), STATUS_OK);
    assert_int_equal(models_add(&m, &two, &failure), STATUS_OK);
    assert_ptr_equal(models_find(&m, SLICE("one")), &m.items[0]);
    assert_ptr_equal(models_find(&m, SLICE("two")), &m.items[1]);
    assert_ptr_equal(models_find(&m, SLICE("tiny")), &m.items[1]);
    assert_null(models_find(&m, SLICE("tin")));
    assert_null(models_find(&m, SLICE("")));
    for (size_t i = 0; i < 2; i++)
        assert_ptr_equal(models_of_weights(&m, m.items[i].prompt.identity.weights), &m.items[i]);
    assert_null(models_of_weights(&m, (hash128){ 1, 2 }));
    // A version belongs to the model that lists it; a file's own weights to that file all the same.
    m.items[0].versions.items[0].weights = (hash128){ 1, 2 };
    assert_ptr_equal(models_of_weights(&m, (hash128){ 1, 2 }), &m.items[0]);
    m.items[0].versions.items[0].weights = m.items[1].prompt.identity.weights;
    assert_ptr_equal(models_of_weights(&m, m.items[1].prompt.identity.weights), &m.items[1]);
    assert_int_equal(model_context(&m.items[0]), m.items[0].prompt.context);
    buffer names = { 0 };
    models_list_names(&m, 0, &names);
    assert_string_equal(names.data, "\"one\", \"two\"");
    buffer_clear(&names);
    models_list_names(&m, 1, &names);
    assert_string_equal(names.data, "\"two\"");
    assert_ptr_equal(models_first(&m, 0), &m.items[0]);
    assert_ptr_equal(models_first(&m, 1), &m.items[1]);
    assert_null(models_first(&m, 3));
    buffer_close(&names);
    models_close(&m);
}

static void what_two_models_share_is_refused(void **state)
{
    (void)state;
    error failure = { 0 };
    models m = { 0 };
    char *taken[] = { (char *)"one" };
    model_settings one = source(0, "one", NULL, 0);
    assert_int_equal(models_add(&m, &one, &failure), STATUS_OK);
    model_settings same_name = source(1, "one", NULL, 0), same_alias = source(1, "two", taken, 1),
                   same_file = source(0, "two", NULL, 0), no_file = source(1, "two", NULL, 0);
    no_file.file = (char *)"/nowhere/x.gguf";
    assert_int_equal(models_add(&m, &same_name, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "two models are called \"one\""));
    assert_int_equal(models_add(&m, &same_alias, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "two models are called \"one\""));
    assert_int_equal(models_add(&m, &same_file, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "have the same weights"));
    assert_int_not_equal(models_add(&m, &no_file, &failure), STATUS_OK);
    assert_int_equal(m.count, 1);
    models_close(&m);
}

static void a_template_of_its_own_takes_the_place_of_the_files(void **state)
{
    (void)state;
    error failure = { 0 };
    models m = { 0 };
    char path[] = "/tmp/penstock-template-XXXXXX";
    int file = mkstemp(path);
    const char text[] = "{% for m in messages %}<{{ m['role'] }}>{% endfor %}";
    assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
    model_settings with = source(0, "one", NULL, 0);
    with.chat_template = path;
    assert_int_equal(models_add(&m, &with, &failure), STATUS_OK);
    assert_non_null(m.items[0].prompt.chat);
    models_close(&m);
    // The end of a loop that did not begin.
    assert_int_equal(pwrite(file, "{% if ", 6, 0), 6);
    assert_int_not_equal(models_add(&m, &with, &failure), STATUS_OK);
    assert_non_null(strstr(failure.text, path));
    with.chat_template = (char *)"/nowhere/x.jinja";
    assert_int_equal(models_add(&m, &with, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "cannot open the chat template /nowhere/x.jinja"));
    close(file);
    unlink(path);
}

// Settings with both models in the list `models`, and the versions of each.
static router_settings settings_of(model_settings rows[2], config_strings *one, config_strings *two)
{
    rows[0] = source(0, "one", NULL, 0);
    rows[1] = source(1, "two", NULL, 0);
    rows[0].versions = *one;
    rows[1].versions = *two;
    return (router_settings){ .model = { .file = (char *)"" }, .further_models = { 2, rows } };
}

#define A "0000000000000001000000000000000a"
#define B "0000000000000002000000000000000b"

static void versions_are_read_again_for_every_model(void **state)
{
    (void)state;
    error failure = { 0 };
    models m = { 0 };
    config_strings none = { 0 };
    char *a[] = { (char *)A ":1" }, *b[] = { (char *)A ":0", (char *)B ":3" },
         *bad[] = { (char *)"x" };
    config_strings of_a = { 1, a }, of_b = { 2, b }, of_bad = { 1, bad };
    model_settings rows[2], fresh_rows[2];
    router_settings s = settings_of(rows, &none, &none), fresh;
    assert_int_equal(models_open(&s, &m, &failure), STATUS_OK);
    // Checked before anything is taken, each by its own name.
    fresh = settings_of(fresh_rows, &of_a, &of_bad);
    assert_int_equal(models_versions_check(&m, &s, &fresh, &failure), STATUS_BAD_CONFIG);
    assert_string_equal(failure.param, "models[1].versions");
    fresh = settings_of(fresh_rows, &of_a, &of_b);
    assert_int_equal(models_versions_check(&m, &s, &fresh, &failure), STATUS_BAD_CONFIG);
    assert_non_null(strstr(failure.text, "\"one\" and \"two\" have the same weights"));
    fresh = settings_of(fresh_rows, &none, &of_b);
    assert_int_equal(models_versions_check(&m, &s, &fresh, &failure), STATUS_OK);
    assert_int_equal(m.items[1].versions.count, 1);
    // Groups in another order are others, of which nothing is taken before a restart.
    fresh = settings_of(fresh_rows, &none, &of_bad);
    model_settings kept = fresh_rows[0];
    fresh_rows[0] = fresh_rows[1];
    fresh_rows[1] = kept;
    assert_int_equal(models_versions_check(&m, &s, &fresh, &failure), STATUS_OK);
    rows[1].versions = of_b;
    models_versions_take(&m);
    assert_int_equal(m.items[0].versions.count, 1);
    assert_true(
        hash128_equal(m.items[0].versions.items[0].weights, m.items[0].prompt.identity.weights));
    assert_int_equal(m.items[1].versions.count, 2);
    assert_ptr_equal(models_of_weights(&m, (hash128){ 11, 2 }), &m.items[1]);
    models_close(&m);
}

// What is taken was checked, also where other keys that need a restart changed with it.
static void versions_are_checked_although_files_change(void **state)
{
    (void)state;
    error failure = { 0 };
    models m = { 0 };
    config_strings none = { 0 };
    char *bad[] = { (char *)"x" };
    config_strings of_bad = { 1, bad };
    model_settings row = source(1, "two", NULL, 0), fresh_row = row;
    router_settings s = { .model = source(0, "one", NULL, 0), .further_models = { 1, &row } };
    router_settings fresh = { .model = source(1, "one", NULL, 0),
                              .further_models = { 1, &fresh_row } };
    assert_int_equal(models_open(&s, &m, &failure), STATUS_OK);
    fresh.model.versions = of_bad;
    assert_int_equal(models_versions_check(&m, &s, &fresh, &failure), STATUS_BAD_CONFIG);
    assert_string_equal(failure.param, "policy.versions");
    fresh.model.versions = none;
    fresh_row.versions = of_bad;
    assert_int_equal(models_versions_check(&m, &s, &fresh, &failure), STATUS_BAD_CONFIG);
    assert_string_equal(failure.param, "models[0].versions");
    fresh_row.versions = none;
    assert_int_equal(models_versions_check(&m, &s, &fresh, &failure), STATUS_OK);
    models_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_and_workers_find_their_model),
        cmocka_unit_test(what_two_models_share_is_refused),
        cmocka_unit_test(versions_are_read_again_for_every_model),
        cmocka_unit_test(versions_are_checked_although_files_change),
        cmocka_unit_test(a_template_of_its_own_takes_the_place_of_the_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
