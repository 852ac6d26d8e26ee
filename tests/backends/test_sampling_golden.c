// tags: golden compute plain
// limit: 120
// The sampler against exact distributions made by an independent program (tests/golden/sampling),
// and against the argmax that backend_sample promises, draw by draw.
#include "support.h"
#include "oracle.h"

#include "base/random.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 256
#define VOCABULARY_MAX 2048
#define HISTORY_MAX 64

typedef struct vector {
    char name[32];
    int count;
    float *logits;
    int history_count;
    backend_token_count history[HISTORY_MAX];
} vector;

typedef struct vectors {
    vector items[64];
    int count;
} vectors;

static FILE *open_data(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/sampling/%s", folder, name);
    return fopen(path, "r");
}

static json_t *next_line(FILE *file)
{
    static char *line;
    static size_t capacity;
    json_error_t problem;
    if (getline(&line, &capacity, file) <= 1)
        return NULL;
    json_t *value = json_loads(line, JSON_DECODE_INT_AS_REAL, &problem);
    if (value == NULL)
        fail_msg("%s", problem.text);
    return value;
}

static void read_vector(const json_t *line, vector *v)
{
    json_t *logits = json_object_get(line, "logits"), *history = json_object_get(line, "history");
    snprintf(v->name, sizeof v->name, "%s", json_string_value(json_object_get(line, "name")));
    v->count = (int)json_array_size(logits);
    assert_true(v->count <= VOCABULARY_MAX);
    v->logits = floats_of((size_t)v->count);
    for (int i = 0; i < v->count; i++)
        v->logits[i] = (float)json_real_value(json_array_get(logits, (size_t)i));
    for (size_t i = 0; i < json_array_size(history); i++) {
        int32_t token = (int32_t)json_real_value(json_array_get(history, i));
        int at = 0;
        while (at < v->history_count && v->history[at].token != token)
            at++;
        assert_true(at < HISTORY_MAX);
        if (at == v->history_count)
            v->history[v->history_count++] = (backend_token_count){ token, 0, 0 };
        v->history[at].generated++;
        v->history[at].total++;
    }
}

static const vector *find_vector(const vectors *all, const char *name)
{
    for (int i = 0; i < all->count; i++)
        if (strcmp(all->items[i].name, name) == 0)
            return &all->items[i];
    fail_msg("there are no logits named %s", name);
    return NULL;
}

// ---- one case ---------------------------------------------------------------------------------

typedef struct golden {
    const vector *v;
    backend_sample sample;
    backend_token_bias biases[64];
    double probabilities[VOCABULARY_MAX]; // 0: not kept
    char text[256];
} golden;

static double number(const json_t *params, const char *name, double otherwise)
{
    const json_t *value = json_object_get(params, name);
    return value == NULL ? otherwise : json_real_value(value);
}

static void read_case(const json_t *line, const vectors *all, golden *g)
{
    json_t *params = json_object_get(line, "params"),
           *biases = json_object_get(params, "logit_bias");
    json_t *ids = json_object_get(line, "ids"), *probs = json_object_get(line, "probs"), *value;
    const char *key;
    g->v = find_vector(all, json_string_value(json_object_get(line, "logits")));
    g->sample = (backend_sample){
        .temperature = (float)number(params, "temperature", 1),
        .top_p = (float)number(params, "top_p", 1),
        .min_p = (float)number(params, "min_p", 0),
        .typical_p = (float)number(params, "typical_p", 1),
        .top_k = (int32_t)number(params, "top_k", 0),
        .repetition_penalty = (float)number(params, "repetition_penalty", 1),
        .frequency_penalty = (float)number(params, "frequency_penalty", 0),
        .presence_penalty = (float)number(params, "presence_penalty", 0),
        .seed = 20260131,
        .counts = g->v->history,
        .count_count = g->v->history_count,
        .biases = g->biases,
        .vocabulary = g->v->count,
    };
    json_object_foreach(biases, key, value)
    {
        assert_true(g->sample.bias_count < 64);
        g->biases[g->sample.bias_count++] =
            (backend_token_bias){ atoi(key), (float)json_real_value(value) };
    }
    memset(g->probabilities, 0, sizeof g->probabilities);
    for (size_t i = 0; i < json_array_size(probs); i++) {
        int id = ids == NULL ? (int)i : (int)json_real_value(json_array_get(ids, i));
        g->probabilities[id] = json_real_value(json_array_get(probs, i));
    }
    char *text = json_dumps(params, JSON_COMPACT);
    snprintf(g->text, sizeof g->text, "%s %s", g->v->name, text);
    free(text);
}

// The parameters are rounded to float here: 1.3 times a logit of 60 is off by 3e-6.
static void oracle_keeps_the_same_set(const golden *g)
{
    double p[VOCABULARY_MAX];
    oracle_distribution(g->v->logits, &g->sample, p);
    for (int i = 0; i < g->v->count; i++) {
        double want = g->probabilities[i];
        if ((want > 1e-30) != (p[i] > 1e-30) || fabs(p[i] - want) > 2e-5 * want + 1e-30)
            fail_msg("%s: the oracle gives token %d the probability %g, not %g", g->text, i, p[i],
                     want);
    }
}

// The token of output `index` by the definition: argmax of log p + noise over the kept tokens.
// `lead` is by how much it wins.
static int argmax(const golden *g, uint64_t index, double *lead)
{
    uint64_t key = random_row_key(g->sample.seed, g->sample.choice, index);
    double best = -INFINITY, second = -INFINITY;
    int token = -1;
    for (int i = 0; i < g->v->count; i++) {
        if (g->probabilities[i] <= 0)
            continue;
        double noise = -log(-log(random_unit(random_token_bits(key, (uint32_t)i))));
        double value = log(g->probabilities[i]) + noise;
        second = fmax(second, value > best ? best : value);
        token = value > best ? i : token;
        best = fmax(best, value);
    }
    *lead = best - second;
    return token;
}

// An index at which `token` would win with room to spare, could every token be drawn; false where
// that takes too long.
static bool index_for(const golden *g, const double *unfiltered, int token, uint64_t *index)
{
    double need = 1.5 - log(unfiltered[token]);
    for (uint64_t i = 0; unfiltered[token] > 1e-3 && i < 20000; i++) {
        uint64_t key = random_row_key(g->sample.seed, g->sample.choice, i);
        if (-log(-log(random_unit(random_token_bits(key, (uint32_t)token)))) > need) {
            *index = i;
            return true;
        }
    }
    return false;
}

typedef struct sampler {
    device d;
    backend_activation *logits;
    backend_sample samples[ROWS];
    backend_sampled results[ROWS];
} sampler;

static void draw_rows(sampler *s, const golden *g, const uint64_t *indices, int count)
{
    for (int i = 0; i < count; i++) {
        s->samples[i] = g->sample;
        s->samples[i].output_index = indices[i];
        s->samples[i].row = (int32_t)i;
    }
    s->d.table->sample(s->d.q, s->logits, s->samples, count, s->results);
    device_run(&s->d);
}

static void set_logits(sampler *s, const golden *g)
{
    float *all = floats_of(ROWS * VOCABULARY_MAX);
    for (int i = 0; i < ROWS; i++)
        memcpy(all + (size_t)i * VOCABULARY_MAX, g->v->logits, (size_t)g->v->count * sizeof *all);
    s->d.table->activation_write(s->d.q, s->logits, 0, ROWS, all);
    free(all);
}

// Each token gets the noise to win: kept ones are drawn, others are not, and the winner is the one
// that the definition names.
static void check_set(sampler *s, const golden *g)
{
    backend_sample plain = g->sample;
    double unfiltered[VOCABULARY_MAX], lead;
    uint64_t indices[ROWS];
    plain.top_k = 0;
    plain.top_p = plain.typical_p = 1;
    plain.min_p = 0;
    oracle_distribution(g->v->logits, &plain, unfiltered);
    int count = 0;
    for (int token = 0; token < g->v->count && count < 64; token++)
        count += index_for(g, unfiltered, token, &indices[count]);
    draw_rows(s, g, indices, count);
    for (int i = 0; i < count; i++) {
        int want = argmax(g, indices[i], &lead);
        // Probabilities have 7 digits here.
        if (s->results[i].token != want && lead > 1e-4)
            fail_msg("%s: output %llu is token %d, not %d", g->text, (unsigned long long)indices[i],
                     s->results[i].token, want);
    }
}

// Upper tail of chi-square with `degrees` degrees of freedom, by Wilson and Hilferty's cube root
// (1931): good to a few per cent of p in this tail, which the limit of 1e-6 allows for.
static double chi_square_tail(double x, int degrees)
{
    double k = 2.0 / (9.0 * degrees);
    double z = (cbrt(x / degrees) - (1 - k)) / sqrt(k);
    return 0.5 * erfc(z / sqrt(2));
}

static void check_frequencies(sampler *s, const golden *g, int draws)
{
    int *seen = calloc((size_t)g->v->count, sizeof *seen);
    for (int at = 0; at < draws; at += ROWS) {
        uint64_t indices[ROWS];
        for (int i = 0; i < ROWS; i++)
            indices[i] = (uint64_t)(at + i);
        draw_rows(s, g, indices, ROWS);
        for (int i = 0; i < ROWS; i++) {
            int token = s->results[i].token;
            assert_in_range(token, 0, g->v->count - 1);
            if (g->probabilities[token] <= 0)
                fail_msg("%s: token %d was drawn", g->text, token);
            seen[token]++;
        }
    }
    int total = (draws + ROWS - 1) / ROWS * ROWS, bins = 0;
    double sum = 0, rest = 0, rest_seen = 0;
    for (int i = 0; i < g->v->count; i++) {
        double expected = g->probabilities[i] * total;
        if (expected < 5) {
            rest += expected;
            rest_seen += seen[i];
            continue;
        }
        sum += (seen[i] - expected) * (seen[i] - expected) / expected;
        bins++;
    }
    if (rest > 5) {
        sum += (rest_seen - rest) * (rest_seen - rest) / rest;
        bins++;
    }
    free(seen);
    if (bins > 1 && chi_square_tail(sum, bins - 1) < 1e-6)
        fail_msg("%s: chi-square is %g with %d bins after %d draws", g->text, sum, bins, total);
}

// ---- the whole --------------------------------------------------------------------------------

static void read_vectors(const char *folder, vectors *all)
{
    FILE *file = open_data(folder, "logits.jsonl");
    assert_non_null(file);
    for (json_t *line; (line = next_line(file)) != NULL; json_decref(line)) {
        assert_true(all->count < 64);
        read_vector(line, &all->items[all->count++]);
    }
    fclose(file);
}

static void run_cases(const char *folder, int draws)
{
    static golden g;
    vectors all = { .count = 0 };
    read_vectors(folder, &all);
    for (int l = 0; l < SUPPORT_LEVELS; l++) {
        sampler s;
        FILE *file = open_data(folder, "cases.jsonl");
        int count = 0;
        assert_non_null(file);
        if (!device_open(&s.d, support_levels[l], 2)) {
            fclose(file);
            continue;
        }
        s.logits = device_activation(&s.d, ROWS, VOCABULARY_MAX, NULL);
        for (json_t *line; (line = next_line(file)) != NULL; json_decref(line), count++) {
            read_case(line, &all, &g);
            oracle_keeps_the_same_set(&g);
            set_logits(&s, &g);
            check_set(&s, &g);
            check_frequencies(&s, &g, draws);
        }
        printf("%s: %d cases, %d draws each\n", support_levels[l], count, draws);
        assert_true(count > 0);
        s.d.table->activation_close(s.logits);
        device_close(&s.d);
        fclose(file);
    }
    for (int i = 0; i < all.count; i++)
        free(all.items[i].logits);
}

static void draws_follow_the_exact_distributions(void **state)
{
    (void)state;
    run_cases(PENSTOCK_SOURCE_DIR "/tests/golden", getenv("PENSTOCK_FULL") == NULL ? 4096 : 200000);
}

static void draws_follow_the_whole_set_of_distributions(void **state)
{
    (void)state;
    const char *folder = getenv("PENSTOCK_GOLDEN");
    if (folder == NULL)
        folder = PENSTOCK_SOURCE_DIR "/../shared/golden";
    FILE *file = open_data(folder, "cases.jsonl");
    if (file == NULL) {
        printf("skipped: the whole set of sampling cases is not here\n");
        skip();
    }
    fclose(file);
    run_cases(folder, getenv("PENSTOCK_FULL") == NULL ? 256 : 200000);
}

// ---- the smallest temperatures ----------------------------------------------------------------

// Their inverse is no float. The other tokens' weights vanish, so each filter keeps the largest.
static void the_smallest_temperatures_take_the_largest(void **state)
{
    (void)state;
    enum { COUNT = 100, LARGEST = 37, FILTERS = 4, TEMPERATURES = 3 };
    static const float temperatures[TEMPERATURES] = { 2.9e-39f, 1e-40f, FLT_TRUE_MIN };
    static const backend_sample filters[FILTERS] = {
        { .top_p = 0.9f, .typical_p = 1 },
        { .top_p = 1, .typical_p = 1, .min_p = 0.1f },
        { .top_p = 1, .typical_p = 1, .top_k = 2 },
        { .top_p = 1, .typical_p = 0.5f },
    };
    static golden g;
    float logits[COUNT];
    double p[COUNT];
    vector v = { .count = COUNT, .logits = logits };
    for (int i = 0; i < COUNT; i++)
        logits[i] = i == LARGEST ? 2.5f : (float)(i % 7) / 4;
    g.v = &v;
    for (int l = 0; l < SUPPORT_LEVELS; l++) {
        sampler s;
        if (!device_open(&s.d, support_levels[l], 2))
            continue;
        s.logits = device_activation(&s.d, ROWS, VOCABULARY_MAX, NULL);
        set_logits(&s, &g);
        for (int i = 0; i < FILTERS * TEMPERATURES; i++) {
            uint64_t indices[2] = { 0, 1 };
            g.sample = filters[i % FILTERS];
            g.sample.repetition_penalty = 1;
            g.sample.vocabulary = COUNT;
            g.sample.temperature = temperatures[i / FILTERS];
            oracle_distribution(logits, &g.sample, p);
            assert_true(p[LARGEST] == 1);
            draw_rows(&s, &g, indices, 2);
            for (int row = 0; row < 2; row++)
                if (s.results[row].token != LARGEST)
                    fail_msg("%s, filter %d at %g: token %d", support_levels[l], i % FILTERS,
                             (double)g.sample.temperature, s.results[row].token);
        }
        s.d.table->activation_close(s.logits);
        device_close(&s.d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_exact_distributions),
        cmocka_unit_test(draws_follow_the_whole_set_of_distributions),
        cmocka_unit_test(the_smallest_temperatures_take_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
