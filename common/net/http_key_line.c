#include "net/http_key_line.h"

static const char blanks[] = " \t\r";

static bool name_valid(slice name)
{
    for (size_t i = 0; i < name.size; i++) {
        char c = name.data[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            c != '.' && c != '_' && c != '-')
            return false;
    }
    return name.size > 0 && name.size <= HTTP_KEY_NAME_MAX;
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool digest_parse(slice word, uint8_t digest[HTTP_DIGEST_SIZE])
{
    if (word.size != 7 + 2 * HTTP_DIGEST_SIZE || memcmp(word.data, "sha256:", 7) != 0)
        return false;
    for (size_t i = 0; i < HTTP_DIGEST_SIZE; i++) {
        int high = hex_value(word.data[7 + 2 * i]), low = hex_value(word.data[8 + 2 * i]);
        if (high < 0 || low < 0)
            return false;
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

// The next piece off the front of `text`, up to a byte of `ends`; false: there is none.
static bool piece_take(slice *text, const char *ends, slice *piece)
{
    while (text->size > 0 && strchr(ends, text->data[0]))
        *text = (slice){ text->data + 1, text->size - 1 };
    size_t size = 0;
    while (size < text->size && !strchr(ends, text->data[size]))
        size++;
    *piece = (slice){ text->data, size };
    *text = (slice){ text->data + size, text->size - size };
    return size > 0;
}

static bool number_parse(slice text, int64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || *number > HTTP_KEY_LIMIT_MAX)
            return false;
        *number = *number * 10 + (text.data[i] - '0');
    }
    return text.size > 0 && *number > 0 && *number <= HTTP_KEY_LIMIT_MAX;
}

bool http_key_line_take(slice *names, slice *name)
{
    return piece_take(names, ",", name);
}

static bool classes_parse(slice text, http_key_line *line)
{
    line->interactive = line->batch = false;
    for (slice name; http_key_line_take(&text, &name);) {
        if (slice_equal(name, SLICE("interactive")))
            line->interactive = true;
        else if (slice_equal(name, SLICE("batch")))
            line->batch = true;
        else
            return false;
    }
    return line->interactive || line->batch;
}

static bool models_parse(slice text, http_key_line *line)
{
    size_t count = 0;
    line->models = text;
    for (slice name; http_key_line_take(&text, &name);)
        count++;
    return count > 0 && count <= HTTP_KEY_MODELS_MAX;
}

// NULL, or what would be right.
static const char *option_parse(slice word, http_key_line *line)
{
    const char *equal = memchr(word.data, '=', word.size);
    slice name = { word.data, equal ? (size_t)(equal - word.data) : word.size };
    slice value = equal ? (slice){ equal + 1, word.size - name.size - 1 } : (slice){ "", 0 };
    int64_t *limit = slice_equal(name, SLICE("requests_per_minute")) ? &line->requests_per_minute
                     : slice_equal(name, SLICE("tokens_per_minute")) ? &line->tokens_per_minute
                     : slice_equal(name, SLICE("concurrent"))        ? &line->concurrent
                                                                     : NULL;
    if (limit)
        return number_parse(value, limit)
                   ? NULL
                   : "it must be a whole number above 0, and at most 1000000000000";
    if (slice_equal(word, SLICE("admin"))) {
        line->admin = true;
        return NULL;
    }
    if (slice_equal(name, SLICE("class")))
        return classes_parse(value, line) ? NULL
                                          : "right is interactive, batch, or both with a comma";
    if (slice_equal(name, SLICE("models")))
        return models_parse(value, line) ? NULL : "right is one to 64 models with commas";
    if (slice_equal(name, SLICE("tenant"))) {
        line->tenant = value;
        return name_valid(value) ? NULL : "right is 1 to 64 of letters, digits and . _ -";
    }
    return "right is requests_per_minute=, tokens_per_minute=, concurrent=, class=, models=, "
           "tenant= or admin";
}

bool http_key_line_empty(slice line)
{
    slice word;
    return !piece_take(&line, blanks, &word) || word.data[0] == '#';
}

status http_key_line_parse(slice line, http_key_line *parsed, error *failure)
{
    slice digest, option;
    *parsed = (http_key_line){ .interactive = true, .batch = true };
    if (!piece_take(&line, blanks, &parsed->name) || !name_valid(parsed->name))
        return error_set(failure, STATUS_BAD_CONFIG, "",
                         "a key's name is 1 to 64 of letters, digits and . _ -");
    int size = (int)parsed->name.size;
    parsed->tenant = parsed->name;
    if (!piece_take(&line, blanks, &digest) || !digest_parse(digest, parsed->digest))
        return error_set(failure, STATUS_BAD_CONFIG, "",
                         "key %.*s: behind the name stands sha256: with 64 hex digits, as "
                         "`penstock key` prints it",
                         size, parsed->name.data);
    while (piece_take(&line, blanks, &option)) {
        const char *wrong = option_parse(option, parsed);
        if (wrong)
            return error_set(failure, STATUS_BAD_CONFIG, "", "key %.*s has \"%.*s\"; %s", size,
                             parsed->name.data, (int)(option.size < 80 ? option.size : 80),
                             option.data, wrong);
    }
    return STATUS_OK;
}
