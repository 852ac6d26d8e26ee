#include "text/pretokenizer.h"

#include "base/log.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdlib.h>

// White_Space of Unicode, for use inside [].
#define SPACE                                                                                      \
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"       \
    "\\x{3000}"
#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"

// clang-format off
static const pretokenizer_family families[] = {
    { .name = "gpt-2",
      .pattern = CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+"
                 "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+" },
    // First every digit alone, then GPT-2 in the parts between. In one pattern that means: no
    // alternative takes a digit along, and space in front of a digit ends its part, so it is not
    // split before its last.
    { .name = "smollm",
      .pattern = "\\p{N}|" CONTRACTIONS "| ?\\p{L}+| ?[^" SPACE "\\p{L}\\p{N}]+"
                 "|[" SPACE "]+(?![^" SPACE "\\p{N}])|[" SPACE "]+" },
    { .name = "llama-bpe", .aliases = { "llama3", "llama-v3" },
      .pattern = "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                 "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+"
                 "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+",
      .whole_words = true, .adds_bos = true },
    { .name = "qwen2", .aliases = { "deepseek-r1-qwen" },
      .pattern = "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                 "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+"
                 "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+",
      .composes = true },
};
// clang-format on
#define FAMILY_COUNT (sizeof(families) / sizeof(families[0]))

struct pretokenizer {
    const pretokenizer_family *family;
    pcre2_code *code;
    pcre2_match_context *context;
    bool compiled; // to machine code
};

struct pretokenizer_work {
    pcre2_match_data *match;
};

static const pretokenizer_family *find_family(slice name)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (slice_equal(name, slice_of(families[i].name)))
            return &families[i];
        for (const char *const *alias = families[i].aliases; *alias != NULL; alias++)
            if (slice_equal(name, slice_of(*alias)))
                return &families[i];
    }
    return NULL;
}

static status unknown_family(slice name, error *failure)
{
    buffer known = { 0 };
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        buffer_printf(&known, "%s%s", i > 0 ? ", " : "", families[i].name);
    error_set(failure, STATUS_UNSUPPORTED, "tokenizer.ggml.pre",
              "tokenizer.ggml.pre is \"%.*s\", which is not supported; known are %s",
              name.size < 64 ? (int)name.size : 64, name.data, known.data ? known.data : "none");
    buffer_close(&known);
    return STATUS_UNSUPPORTED;
}

status pretokenizer_open(slice name, pretokenizer **opened, error *failure)
{
    int code;
    size_t place;
    const pretokenizer_family *family = find_family(name);
    if (family == NULL)
        return unknown_family(name, failure);
    pretokenizer *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return error_set(failure, STATUS_NO_MEMORY, "tokenizer", "memory is short");
    p->family = family;
    p->code = pcre2_compile((PCRE2_SPTR)family->pattern, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP, &code, &place, NULL);
    CHECK(p->code != NULL || code == PCRE2_ERROR_HEAP_FAILED);
    p->context = pcre2_match_context_create(NULL);
    if (p->code == NULL || p->context == NULL) {
        pretokenizer_close(p);
        return error_set(failure, STATUS_NO_MEMORY, "tokenizer", "memory is short");
    }
    p->compiled = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    if (!p->compiled)
        log_warn("text", "pre-tokenizer %s runs interpreted: no machine code may be made here",
                 family->name);
    *opened = p;
    return STATUS_OK;
}

void pretokenizer_close(pretokenizer *p)
{
    if (p == NULL)
        return;
    pcre2_match_context_free(p->context);
    pcre2_code_free(p->code);
    free(p);
}

const pretokenizer_family *pretokenizer_family_of(const pretokenizer *p)
{
    return p->family;
}

status pretokenizer_work_open(const pretokenizer *p, pretokenizer_work **opened)
{
    pretokenizer_work *work = calloc(1, sizeof(*work));
    if (work == NULL)
        return STATUS_NO_MEMORY;
    work->match = pcre2_match_data_create_from_pattern(p->code, NULL);
    if (work->match == NULL) {
        free(work);
        return STATUS_NO_MEMORY;
    }
    *opened = work;
    return STATUS_OK;
}

void pretokenizer_work_close(pretokenizer_work *work)
{
    if (work == NULL)
        return;
    pcre2_match_data_free(work->match);
    free(work);
}

status pretokenizer_next(const pretokenizer *p, pretokenizer_work *work, slice text, size_t begin,
                         size_t *end)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text.data;
    int count = p->compiled ? pcre2_jit_match(p->code, subject, text.size, begin, 0, work->match,
                                              p->context)
                            : pcre2_match(p->code, subject, text.size, begin, PCRE2_NO_UTF_CHECK,
                                          work->match, p->context);
    if (count == PCRE2_ERROR_NOMATCH) {
        *end = text.size;
        return STATUS_OK;
    }
    if (count < 0)
        return count == PCRE2_ERROR_NOMEMORY ? STATUS_NO_MEMORY : STATUS_INTERNAL;
    const size_t *span = pcre2_get_ovector_pointer(work->match);
    // A find that begins later ends the gap before it,
    // which is a piece; the find itself comes next.
    *end = span[0] > begin ? span[0] : span[1];
    return *end > begin ? STATUS_OK : STATUS_INTERNAL;
}
