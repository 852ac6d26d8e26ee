#include "base/metrics.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

const double metrics_latency_buckets[] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                           1,     2.5,    5,     10,   20,    30,   60,  120 };
const size_t metrics_latency_bucket_count =
    sizeof(metrics_latency_buckets) / sizeof(metrics_latency_buckets[0]);

// Updates are relaxed: each number is right by itself, and nothing else is published by it.
struct metrics_series {
    const metrics_spec *spec;
    metrics_series *next;
    char *labels[METRICS_LABELS_MAX];
    bool visible; // the folded series of a labelled metric shows only once it is used; under the
                  // lock
    _Atomic double value; // histogram: the sum
    _Atomic uint64_t
        buckets[METRICS_BUCKETS_MAX + 1]; // each its own, not cumulative; the last is +Inf
};

typedef struct family {
    const metrics_spec *spec;
    metrics_series *first;
    size_t count;          // without `folded`
    metrics_series folded; // what has no labels, or no room: its labels are all "other"
} family;

struct metrics {
    pthread_mutex_t lock; // of the lists, not of the values
    size_t count;
    family families[];
};

static size_t label_count(const metrics_spec *spec)
{
    size_t count = 0;
    while (count < METRICS_LABELS_MAX && spec->labels[count] != NULL)
        count++;
    return count;
}

static bool name_is_valid(const char *name, bool label)
{
    const char *allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    bool reserved = label && strncmp(name, "__", 2) == 0;
    return name[0] != 0 && !(name[0] >= '0' && name[0] <= '9') &&
           name[strspn(name, allowed)] == 0 && !reserved;
}

// The table is the programmer's: a mistake in it ends the process at start.
static void check_spec(const metrics_spec *spec)
{
    size_t size = strlen(spec->name);
    bool total = size > 6 && strcmp(spec->name + size - 6, "_total") == 0;
    CHECK(name_is_valid(spec->name, false));
    CHECK(total == (spec->kind == METRICS_COUNTER));
    CHECK(spec->help != NULL && spec->help[0] != 0);
    for (size_t i = 0; i < label_count(spec); i++)
        CHECK(name_is_valid(spec->labels[i], true) && strcmp(spec->labels[i], "le") != 0);
    CHECK((spec->bucket_count > 0) == (spec->kind == METRICS_HISTOGRAM));
    CHECK(spec->bucket_count <= METRICS_BUCKETS_MAX);
    for (size_t i = 1; i < spec->bucket_count; i++)
        CHECK(spec->buckets[i - 1] < spec->buckets[i]);
}

status metrics_open(const metrics_spec *specs, size_t count, metrics **opened)
{
    metrics *m = calloc(1, sizeof(*m) + count * sizeof(m->families[0]));
    if (m == NULL)
        return STATUS_NO_MEMORY;
    m->count = count;
    for (size_t i = 0; i < count; i++) {
        family *f = &m->families[i];
        check_spec(&specs[i]);
        f->spec = &specs[i];
        f->folded.spec = &specs[i];
        f->folded.visible = label_count(&specs[i]) == 0;
    }
    pthread_mutex_init(&m->lock, NULL);
    *opened = m;
    return STATUS_OK;
}

static void series_free(metrics_series *s)
{
    for (size_t i = 0; i < METRICS_LABELS_MAX; i++)
        free(s->labels[i]);
    free(s);
}

void metrics_close(metrics *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->count; i++) {
        for (metrics_series *s = m->families[i].first; s != NULL;) {
            metrics_series *next = s->next;
            series_free(s);
            s = next;
        }
    }
    pthread_mutex_destroy(&m->lock);
    free(m);
}

// Where the series with these labels hangs in the list, or where it would.
static metrics_series **find_series(family *f, const char *const *label_values)
{
    metrics_series **link = &f->first;
    size_t labels = label_count(f->spec);
    for (; *link != NULL; link = &(*link)->next) {
        size_t equal = 0;
        while (equal < labels && strcmp((*link)->labels[equal], label_values[equal]) == 0)
            equal++;
        if (equal == labels)
            break;
    }
    return link;
}

static metrics_series *series_new(const metrics_spec *spec, const char *const *label_values)
{
    metrics_series *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->spec = spec;
    s->visible = true;
    for (size_t i = 0; i < label_count(spec); i++) {
        s->labels[i] = strdup(label_values[i]);
        if (s->labels[i] == NULL) {
            series_free(s);
            return NULL;
        }
    }
    return s;
}

metrics_series *metrics_series_of(metrics *m, size_t index, const char *const *label_values)
{
    CHECK(index < m->count);
    family *f = &m->families[index];
    if (label_count(f->spec) == 0)
        return &f->folded;
    pthread_mutex_lock(&m->lock);
    metrics_series **link = find_series(f, label_values);
    metrics_series *s = *link;
    if (s == NULL && f->count < METRICS_SERIES_MAX) {
        s = series_new(f->spec, label_values);
        *link = s;
        f->count += s != NULL;
    }
    if (s == NULL) {
        s = &f->folded;
        s->visible = true;
    }
    pthread_mutex_unlock(&m->lock);
    return s;
}

void metrics_series_drop(metrics *m, size_t index, const char *const *label_values)
{
    CHECK(index < m->count);
    family *f = &m->families[index];
    if (label_count(f->spec) == 0)
        return;
    pthread_mutex_lock(&m->lock);
    metrics_series **link = find_series(f, label_values);
    metrics_series *s = *link;
    if (s != NULL) {
        *link = s->next;
        f->count--;
        series_free(s);
    }
    pthread_mutex_unlock(&m->lock);
}

static void add_to(_Atomic double *number, double amount)
{
    double old = atomic_load_explicit(number, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(number, &old, old + amount, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

void metrics_add(metrics_series *s, double amount)
{
    CHECK(s->spec->kind == METRICS_GAUGE || (s->spec->kind == METRICS_COUNTER && amount >= 0));
    add_to(&s->value, amount);
}

void metrics_set(metrics_series *s, double value)
{
    CHECK(s->spec->kind == METRICS_GAUGE);
    atomic_store_explicit(&s->value, value, memory_order_relaxed);
}

void metrics_observe(metrics_series *s, double value)
{
    CHECK(s->spec->kind == METRICS_HISTOGRAM);
    size_t bucket = 0;
    while (bucket < s->spec->bucket_count && !(value <= s->spec->buckets[bucket]))
        bucket++;
    atomic_fetch_add_explicit(&s->buckets[bucket], 1, memory_order_relaxed);
    add_to(&s->value, value);
}

double metrics_value(const metrics_series *s)
{
    return atomic_load_explicit(&s->value, memory_order_relaxed);
}

double metrics_total(metrics *m, size_t index, const char *const *label_values)
{
    CHECK(index < m->count);
    family *f = &m->families[index];
    size_t labels = label_count(f->spec);
    pthread_mutex_lock(&m->lock);
    double sum = labels == 0 ? metrics_value(&f->folded) : 0;
    for (const metrics_series *s = f->first; s != NULL; s = s->next) {
        bool equal = true;
        for (size_t i = 0; i < labels; i++)
            equal = equal && (!label_values[i] || strcmp(s->labels[i], label_values[i]) == 0);
        sum += equal ? metrics_value(s) : 0;
    }
    pthread_mutex_unlock(&m->lock);
    return sum;
}

static void render_number(double number, buffer *out)
{
    if (isnan(number))
        buffer_append_text(out, "NaN");
    else if (isinf(number))
        buffer_append_text(out, number > 0 ? "+Inf" : "-Inf");
    else if (number == floor(number) && fabs(number) < 0x1p53)
        buffer_printf(out, "%.0f", number);
    else
        buffer_printf(out, "%.15g", number);
}

// HELP escapes backslash and line end; a label's value also the quote.
static void render_escaped(const char *text, bool label, buffer *out)
{
    for (const char *at = text; *at != 0; at++) {
        if (*at == '\n')
            buffer_append_text(out, "\\n");
        else if (*at == '\\' || (label && *at == '"'))
            buffer_append(out, (char[]){ '\\', *at }, 2);
        else
            buffer_append_byte(out, *at);
    }
}

// NAME[suffix]{labels[,le="bound"]} with the space that follows it.
static void render_name(const metrics_series *s, const char *suffix, const double *bound,
                        buffer *out)
{
    size_t labels = label_count(s->spec);
    buffer_printf(out, "%s%s", s->spec->name, suffix);
    if (labels > 0 || bound != NULL)
        buffer_append_byte(out, '{');
    for (size_t i = 0; i < labels; i++) {
        buffer_printf(out, "%s%s=\"", i ? "," : "", s->spec->labels[i]);
        render_escaped(s->labels[i] ? s->labels[i] : "other", true, out);
        buffer_append_byte(out, '"');
    }
    if (bound != NULL) {
        buffer_append_text(out, labels ? ",le=\"" : "le=\"");
        render_number(*bound, out);
        buffer_append_byte(out, '"');
    }
    buffer_append_text(out, labels > 0 || bound != NULL ? "} " : " ");
}

static void render_series(metrics_series *s, buffer *out)
{
    if (!s->visible)
        return;
    if (s->spec->kind != METRICS_HISTOGRAM) {
        render_name(s, "", NULL, out);
        render_number(metrics_value(s), out);
        buffer_append_byte(out, '\n');
        return;
    }
    uint64_t count = 0;
    for (size_t i = 0; i <= s->spec->bucket_count; i++) {
        double bound = i < s->spec->bucket_count ? s->spec->buckets[i] : INFINITY;
        count += atomic_load_explicit(&s->buckets[i], memory_order_relaxed);
        render_name(s, "_bucket", &bound, out);
        buffer_printf(out, "%llu\n", (unsigned long long)count);
    }
    render_name(s, "_sum", NULL, out);
    render_number(metrics_value(s), out);
    buffer_append_byte(out, '\n');
    render_name(s, "_count", NULL, out);
    buffer_printf(out, "%llu\n", (unsigned long long)count);
}

static const char *const kinds[] = { "counter", "gauge", "histogram" };

void metrics_render(metrics *m, buffer *out)
{
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < m->count; i++) {
        family *f = &m->families[i];
        if (f->first == NULL && !f->folded.visible)
            continue;
        buffer_printf(out, "# HELP %s ", f->spec->name);
        render_escaped(f->spec->help, false, out);
        buffer_printf(out, "\n# TYPE %s %s\n", f->spec->name, kinds[f->spec->kind]);
        for (metrics_series *s = f->first; s != NULL; s = s->next)
            render_series(s, out);
        render_series(&f->folded, out);
    }
    pthread_mutex_unlock(&m->lock);
}

void metrics_describe(const metrics_spec *specs, size_t count, buffer *out)
{
    buffer_append_text(out,
                       "| metric | type | labels | what it says |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < count; i++) {
        buffer_printf(out, "| `%s` | %s |", specs[i].name, kinds[specs[i].kind]);
        for (size_t k = 0; k < label_count(&specs[i]); k++)
            buffer_printf(out, "%s `%s`", k ? "," : "", specs[i].labels[k]);
        buffer_printf(out, " | %s |\n", specs[i].help);
    }
}
