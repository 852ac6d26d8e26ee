// Lists, dicts, what can be walked, and sorting.
#include "text/template_private.h"

#include "base/hash.h"

enum { INDEX_FROM = 8 }; // entries above which a dict has an index

static void check_items(jinja_render *r, size_t count)
{
    if (count > r->limits.items)
        jinja_fail(&r->task, TEMPLATE_FAULT_LIMIT, "a list has more than %zu elements",
                   r->limits.items);
}

jinja_list *jinja_list_new(jinja_render *r, uint32_t capacity)
{
    check_items(r, capacity);
    jinja_list *list = jinja_allocate(&r->task, sizeof *list);
    *list = (jinja_list){ .capacity = capacity };
    if (capacity)
        list->items = jinja_allocate(&r->task, capacity * sizeof *list->items);
    return list;
}

void jinja_list_add(jinja_render *r, jinja_list *list, jinja_value v)
{
    jinja_work(r, 16);
    check_items(r, (size_t)list->count + 1);
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 4;
        list->items =
            jinja_resize(&r->task, list->items, list->capacity * sizeof v, capacity * sizeof v);
        list->capacity = capacity;
    }
    list->items[list->count++] = v;
}

jinja_value jinja_list_value(jinja_list *list, jinja_type type)
{
    return (jinja_value){ .type = (uint8_t)type, .list = list };
}

jinja_value jinja_iterator_value(jinja_render *r, jinja_list *list, const char *name)
{
    jinja_iterator *iterator = jinja_allocate(&r->task, sizeof *iterator);
    *iterator = (jinja_iterator){ .name = name, .list = list };
    return (jinja_value){ .type = JINJA_ITERATOR, .iterator = iterator };
}

jinja_value jinja_pair(jinja_render *r, jinja_value a, jinja_value b)
{
    jinja_list *list = jinja_list_new(r, 2);
    jinja_list_add(r, list, a);
    jinja_list_add(r, list, b);
    return jinja_list_value(list, JINJA_TUPLE);
}

jinja_list *jinja_items(jinja_render *r, const jinja_dict *dict)
{
    jinja_list *list = jinja_list_new(r, dict->count);
    for (uint32_t i = 0; i < dict->count; i++)
        jinja_list_add(r, list, jinja_pair(r, dict->entries[i].key, dict->entries[i].value));
    return list;
}

static jinja_list *characters(jinja_render *r, const jinja_string *s)
{
    jinja_string plain = *s; // characters of a safe string are not safe
    plain.safe = false;
    jinja_list *list = jinja_list_new(r, s->length);
    for (size_t at = 0, size; at < s->size; at += size) {
        jinja_decode(s->bytes + at, &size);
        jinja_list_add(r, list, jinja_part(r, &plain, at, at + size));
    }
    return list;
}

static jinja_list *rest_of(jinja_render *r, jinja_iterator *iterator)
{
    jinja_list *list = iterator->list;
    if (iterator->position > 0) {
        jinja_list *rest = jinja_list_new(r, 0);
        *rest = (jinja_list){ .items = list->items + iterator->position,
                              .count = list->count - iterator->position };
        rest->capacity = rest->count;
        list = rest;
    }
    iterator->position = iterator->list->count;
    return list;
}

jinja_list *jinja_iterate(jinja_render *r, jinja_value v)
{
    jinja_list *list;
    switch (v.type) {
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v.list;
    case JINJA_STRING:
        return characters(r, v.string);
    case JINJA_DICT:
        list = jinja_list_new(r, v.dict->count);
        for (uint32_t i = 0; i < v.dict->count; i++)
            jinja_list_add(r, list, v.dict->entries[i].key);
        return list;
    case JINJA_RANGE:
        list = jinja_list_new(r, (uint32_t)v.range->count);
        for (int64_t i = 0; i < v.range->count; i++)
            jinja_list_add(r, list, jinja_int(v.range->start + i * v.range->step));
        return list;
    case JINJA_VIEW:
        return v.view->list;
    case JINJA_ITERATOR:
        return rest_of(r, v.iterator);
    case JINJA_UNDEFINED:
        if (v.flag)
            jinja_fail_undefined(r, v);
        return jinja_list_new(r, 0);
    default:
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "a value of type %s cannot be iterated over",
                   jinja_type_name(v));
    }
}

int64_t jinja_length(jinja_render *r, jinja_value v)
{
    switch (v.type) {
    case JINJA_UNDEFINED:
        return jinja_iterate(r, v)->count;
    case JINJA_STRING:
        return v.string->length;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v.list->count;
    case JINJA_DICT:
        return v.dict->count;
    case JINJA_RANGE:
        return v.range->count;
    case JINJA_VIEW:
        return v.view->list->count;
    case JINJA_LOOP:
        return v.loop->list->count;
    default:
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "a value of type %s has no length",
                   jinja_type_name(v));
    }
}

// --- dicts ---

jinja_dict *jinja_dict_new(jinja_render *r)
{
    jinja_dict *dict = jinja_allocate(&r->task, sizeof *dict);
    *dict = (jinja_dict){ 0 };
    return dict;
}

// Equal keys have equal hashes: 1, 1.0 and true are one key.
static uint64_t hash_key(jinja_render *r, jinja_value key)
{
    int64_t integer;
    double real;
    uint64_t hash;
    if (jinja_integral(key, &integer))
        return hash64_of(&integer, sizeof integer, 1);
    if (jinja_number(key, &real)) {
        if (real >= -9e18 && real <= 9e18 && real == (double)(int64_t)real)
            return hash_key(r, jinja_int((int64_t)real));
        return hash64_of(&real, sizeof real, 2);
    }
    switch (key.type) {
    case JINJA_STRING:
        jinja_work(r, key.string->size);
        return hash64_of(key.string->bytes, key.string->size, 3);
    case JINJA_TUPLE:
        jinja_enter(r);
        hash = 4;
        for (uint32_t i = 0; i < key.list->count; i++) {
            uint64_t part = hash_key(r, key.list->items[i]);
            hash = hash64_of(&part, sizeof part, hash);
        }
        jinja_leave(r);
        return hash;
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return key.type;
    case JINJA_LIST:
    case JINJA_DICT:
    case JINJA_VIEW:
    case JINJA_WIDE:
        jinja_fail(&r->task, TEMPLATE_FAULT_TYPE, "a value of type %s cannot be a key here",
                   jinja_type_name(key));
    default:
        return hash64_of(&key.dict, sizeof key.dict, 5);
    }
}

static jinja_entry *find_entry(jinja_render *r, const jinja_dict *dict, jinja_value key,
                               uint64_t hash)
{
    if (!dict->index_size) {
        for (uint32_t i = 0; i < dict->count; i++)
            if (dict->entries[i].hash == hash && jinja_equal(r, dict->entries[i].key, key))
                return &dict->entries[i];
        return NULL;
    }
    uint32_t mask = dict->index_size - 1;
    for (uint32_t i = (uint32_t)hash & mask; dict->index[i]; i = (i + 1) & mask) {
        jinja_entry *entry = &dict->entries[dict->index[i] - 1];
        jinja_work(r, 8);
        if (entry->hash == hash && jinja_equal(r, entry->key, key))
            return entry;
    }
    return NULL;
}

static void index_add(jinja_dict *dict, uint32_t entry)
{
    uint32_t mask = dict->index_size - 1, i = (uint32_t)dict->entries[entry].hash & mask;
    while (dict->index[i])
        i = (i + 1) & mask;
    dict->index[i] = entry + 1;
}

static void index_grow(jinja_render *r, jinja_dict *dict)
{
    dict->index_size = dict->index_size ? dict->index_size * 2 : INDEX_FROM * 4;
    size_t bytes = dict->index_size * sizeof *dict->index;
    dict->index = jinja_allocate(&r->task, bytes);
    memset(dict->index, 0, bytes);
    for (uint32_t i = 0; i < dict->count; i++)
        index_add(dict, i);
}

void jinja_dict_set(jinja_render *r, jinja_dict *dict, jinja_value key, jinja_value v)
{
    uint64_t hash = hash_key(r, key);
    jinja_entry *entry = find_entry(r, dict, key, hash);
    jinja_work(r, 16);
    if (entry) {
        entry->value = v;
        return;
    }
    check_items(r, (size_t)dict->count + 1);
    if (dict->count == dict->capacity) {
        uint32_t capacity = dict->capacity ? dict->capacity * 2 : 4;
        dict->entries = jinja_resize(&r->task, dict->entries, dict->capacity * sizeof *entry,
                                     capacity * sizeof *entry);
        dict->capacity = capacity;
    }
    dict->entries[dict->count++] = (jinja_entry){ .key = key, .value = v, .hash = hash };
    if (dict->index_size && dict->count * 2 <= dict->index_size)
        index_add(dict, dict->count - 1);
    else if (dict->count > INDEX_FROM)
        index_grow(r, dict);
}

const jinja_value *jinja_dict_get(jinja_render *r, const jinja_dict *dict, jinja_value key)
{
    const jinja_entry *entry = find_entry(r, dict, key, hash_key(r, key));
    return entry ? &entry->value : NULL;
}

void jinja_dict_update(jinja_render *r, jinja_dict *dict, jinja_value with)
{
    if (with.type == JINJA_DICT) {
        for (uint32_t i = 0; i < with.dict->count; i++)
            jinja_dict_set(r, dict, with.dict->entries[i].key, with.dict->entries[i].value);
        return;
    }
    const jinja_list *pairs = jinja_iterate(r, with);
    for (uint32_t i = 0; i < pairs->count; i++) {
        const jinja_list *pair = jinja_iterate(r, pairs->items[i]);
        if (pair->count != 2)
            jinja_fail(&r->task, TEMPLATE_FAULT_TYPE,
                       "an element of a dict's pairs has length %u; 2 is required", pair->count);
        jinja_dict_set(r, dict, pair->items[0], pair->items[1]);
    }
}

// --- sorting: a merge sort, since Python's is stable, also in reverse ---

typedef struct sorted {
    jinja_value key, item;
} sorted;

static void merge(jinja_render *r, const sorted *from, uint32_t middle, uint32_t count,
                  bool reverse, sorted *to)
{
    uint32_t a = 0, b = middle;
    for (uint32_t i = 0; i < count; i++) {
        bool right = a == middle;
        if (!right && b < count) {
            jinja_work(r, 32);
            right = reverse ? jinja_order(r, from[a].key, from[b].key, "<") < 0
                            : jinja_order(r, from[b].key, from[a].key, "<") < 0;
        }
        to[i] = right ? from[b++] : from[a++];
    }
}

static void sort(jinja_render *r, sorted *data, sorted *spare, uint32_t count, bool reverse)
{
    if (count < 2)
        return;
    uint32_t middle = count / 2;
    sort(r, data, spare, middle, reverse);
    sort(r, data + middle, spare, count - middle, reverse);
    merge(r, data, middle, count, reverse, spare);
    memcpy(data, spare, count * sizeof *data);
}

void jinja_sort(jinja_render *r, jinja_value *keys, jinja_value *items, uint32_t count,
                bool reverse)
{
    sorted *data = jinja_allocate(&r->task, 2 * (size_t)count * sizeof *data + 1);
    for (uint32_t i = 0; i < count; i++)
        data[i] = (sorted){ keys[i], items[i] };
    sort(r, data, data + count, count, reverse);
    for (uint32_t i = 0; i < count; i++)
        items[i] = data[i].item;
}
