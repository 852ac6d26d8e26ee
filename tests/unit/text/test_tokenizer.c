// The tokenizer on a small vocabulary: special tokens, segments (B029), limits, merging against a
// naive oracle, threads.
#include "text/encoder.h"

#include "text/unicode.h"

#include "base/random.h"
#include "harness/seed.h"
#include "harness/small_tokenizer.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>

// 256 and on: he, ll, hell, hello, then the control and the user-defined tokens.
enum { HELL = 258 };
static const char *const merges[] = { "h e", "l l", "he ll", "hell o", NULL };
static const char *const controls[] = { "<|start|>", "<|end|>", "<think>", NULL };
static const char *const user_defined[] = { "<call>", "<call><call>", NULL };

static tokenizer *tokens;
static encoder *encode;

static tokenizer *open_small(const small_tokenizer *what)
{
    gguf_builder b = { 0 };
    gguf *file;
    tokenizer *opened;
    error failure = { 0 };
    small_tokenizer_put(&b, what);
    gguf_builder_u32(&b, "tokenizer.ggml.eos_token_id", 0);
    buffer bytes = gguf_builder_finish(&b);
    assert_int_equal(gguf_open_memory(bytes.data, bytes.size, "m", &file, &failure), STATUS_OK);
    if (tokenizer_open(file, &opened, &failure) != STATUS_OK)
        fail_msg("%s", failure.text);
    gguf_close(file);
    buffer_close(&bytes);
    return opened;
}

static int open_tokens(void **state)
{
    (void)state;
    tokens = open_small(
        &(small_tokenizer){ .merges = merges, .controls = controls, .user_defined = user_defined });
    return encoder_open(tokens, &encode) == STATUS_OK ? 0 : -1;
}

static int close_tokens(void **state)
{
    (void)state;
    encoder_close(encode);
    tokenizer_close(tokens);
    return 0;
}

// Ids as text: characters for the bytes, names in [] for the others.
static void describe(const token_list *list, buffer *out)
{
    static const char *const names[] = { "he", "ll", "hell", "hello" };
    for (size_t i = 0; i < list->count; i++) {
        int32_t id = list->ids[i];
        if (id < 256)
            buffer_append_byte(out, (char)id);
        else if (id < 260)
            buffer_printf(out, "[%s]", names[id - 256]);
        else
            buffer_printf(out, "{%.*s}", (int)tokenizer_token_bytes(tokens, id).size,
                          tokenizer_token_bytes(tokens, id).data);
    }
}

static void gives(const encoder_segment *segments, size_t count, const char *expected)
{
    token_list list = { 0 };
    error failure;
    buffer text = { 0 };
    assert_int_equal(encoder_encode(encode, segments, count, SIZE_MAX, &list, &failure), STATUS_OK);
    describe(&list, &text);
    assert_string_equal(text.data ? text.data : "", expected);
    token_list_close(&list);
    buffer_close(&text);
}

#define GIVES(expected, ...)                                                                       \
    gives((const encoder_segment[]){ __VA_ARGS__ },                                                \
          sizeof((const encoder_segment[]){ __VA_ARGS__ }) / sizeof(encoder_segment), expected)
#define MARKUP(text)                                                                               \
    {                                                                                              \
        SLICE(text), true                                                                          \
    }
#define CONTENT(text)                                                                              \
    {                                                                                              \
        SLICE(text), false                                                                         \
    }

static void control_tokens_need_leave_and_user_defined_ones_do_not(void **state)
{
    (void)state;
    GIVES("{<|start|>}[hello]{<|end|>}", MARKUP("<|start|>hello<|end|>"));
    GIVES("<|start|>[hello]<|end|>", CONTENT("<|start|>hello<|end|>"));
    GIVES("x{<call>}y", CONTENT("x<call>y"));
    GIVES("x{<call>}y", MARKUP("x<call>y"));
    GIVES("{<call><call>}{<call>}", MARKUP("<call><call><call>"));
    GIVES("{<call>}<cal", MARKUP("<call><cal"));
    GIVES("<|start", MARKUP("<|start"));
    GIVES("", CONTENT(""));
}

static void b029_content_never_becomes_a_control_token(void **state)
{
    (void)state;
    GIVES("{<|start|>}u <|end|><|start|>s{<|end|>}", MARKUP("<|start|>"), MARKUP("u "),
          CONTENT("<|end|><|start|>s"), MARKUP("<|end|>"));
    // Not across a border in either direction either,
    GIVES("<|end|>", MARKUP("<|en"), CONTENT("d|>"));
    GIVES("<|end|>", CONTENT("<|"), MARKUP("end|>"));
    GIVES("<|end|>", MARKUP("<|e"), CONTENT("n"), MARKUP("d|>"));
    // but neighbouring markup counts as one, and empty content does not part it.
    GIVES("{<|end|>}", MARKUP("<|en"), MARKUP("d|>"));
    GIVES("{<|end|>}", MARKUP("<|en"), CONTENT(""), MARKUP("d|>"));
    // User-defined tokens are text, wherever the border is.
    GIVES("{<call>}", MARKUP("<ca"), CONTENT("ll>"));
}

static void segments_merge_as_their_concatenation(void **state)
{
    (void)state;
    GIVES("[hello]", MARKUP("he"), CONTENT("ll"), MARKUP("o"));
    GIVES("{<|end|>}[hello]", MARKUP("<|end|>h"), CONTENT("ell"), CONTENT("o"));
    // Each segment is made valid by itself: two halves of a character are two replacements.
    GIVES(UNICODE_REPLACEMENT UNICODE_REPLACEMENT, CONTENT("\xc3"), CONTENT("\xa9"));
    GIVES("a" UNICODE_REPLACEMENT "{<|end|>}", CONTENT("a\xff"), MARKUP("<|end|>"));
}

static void b031_text_after_nul_is_kept(void **state)
{
    (void)state;
    token_list list = { 0 };
    error failure;
    const int32_t expected[] = { 'a', 0, HELL };
    assert_int_equal(encoder_encode_text(encode, SLICE("a\0hell"), true, SIZE_MAX, &list, &failure),
                     STATUS_OK);
    assert_int_equal(list.count, 3);
    assert_memory_equal(list.ids, expected, sizeof(expected));
    token_list_close(&list);
}

static void a_limit_refuses_and_leaves_the_list_alone(void **state)
{
    (void)state;
    token_list list = { 0 };
    error failure = { 0 };
    assert_true(token_list_append(&list, 7));
    assert_int_equal(encoder_encode_text(encode, SLICE("abc"), false, 2, &list, &failure),
                     STATUS_TOO_LARGE);
    assert_string_equal(failure.text, "the text of 3 bytes is more than 2 tokens long");
    assert_int_equal(list.count, 1);
    assert_int_equal(encoder_encode_text(encode, SLICE("abc"), false, 3, &list, &failure),
                     STATUS_OK);
    assert_int_equal(list.count, 4);
    // So many bytes cannot fit, whatever they are:
    // refused without being read (there is no such text).
    assert_int_equal(
        encoder_encode_text(encode, (slice){ "", (size_t)1 << 40 }, false, 10, &list, &failure),
        STATUS_TOO_LARGE);
    assert_int_equal(list.count, 4);
    token_list_close(&list);
}

// Byte-level BPE by its definition: the first merge of the list that fits anywhere, leftmost first.
static size_t merge_naively(const char *const *pairs, slice text, slice *parts)
{
    size_t count = text.size;
    for (size_t i = 0; i < count; i++)
        parts[i] = (slice){ text.data + i, 1 };
    for (bool again = true; again;) {
        again = false;
        for (size_t m = 0; pairs[m] != NULL && !again; m++) {
            const char *space = strchr(pairs[m], ' ');
            slice left = { pairs[m], (size_t)(space - pairs[m]) }, right = slice_of(space + 1);
            for (size_t i = 0; i + 1 < count && !again; i++) {
                if (!slice_equal(parts[i], left) || !slice_equal(parts[i + 1], right))
                    continue;
                parts[i].size += right.size;
                count--;
                memmove(parts + i + 1, parts + i + 2, (count - i - 1) * sizeof(parts[0]));
                again = true;
            }
        }
    }
    return count;
}

// Random merges over three letters, each made of parts that exist.
static size_t random_merges(uint64_t seed, char store[][24], const char **pairs, size_t wanted)
{
    char made[40][24] = { "a", "b", "c" };
    size_t made_count = 3, count = 0;
    for (uint64_t turn = 0; count < wanted && turn < 400; turn++) {
        uint64_t bits = random_mix(seed + turn);
        const char *left = made[bits % made_count], *right = made[(bits >> 20) % made_count];
        char joined[24];
        bool known = strlen(left) + strlen(right) > 8;
        snprintf(joined, sizeof(joined), "%.11s%.11s", left, right);
        for (size_t i = 0; i < made_count; i++)
            known |= strcmp(made[i], joined) == 0;
        if (known)
            continue;
        snprintf(store[count], 24, "%.11s %.11s", left, right);
        pairs[count] = store[count];
        snprintf(made[made_count++], 24, "%.23s", joined);
        count++;
    }
    pairs[count] = NULL;
    return count;
}

static void merging_equals_the_definition(void **state)
{
    (void)state;
    uint64_t seed = seed_choose();
    for (int round = 0; round < 60; round++) {
        char store[32][24];
        const char *pairs[33];
        uint64_t turn = random_mix(seed + (uint64_t)round);
        random_merges(turn, store, pairs, 3 + turn % 28);
        tokenizer *t = open_small(&(small_tokenizer){ .merges = pairs });
        encoder *e;
        assert_int_equal(encoder_open(t, &e), STATUS_OK);
        for (int i = 0; i < 100; i++) {
            char text[48];
            slice parts[48];
            token_list list = { 0 };
            error failure;
            size_t size = random_mix(turn + 1000 + (uint64_t)i) % sizeof(text);
            for (size_t j = 0; j < size; j++)
                text[j] = (char)('a' + random_mix(turn + (uint64_t)i * 64 + j) % 3);
            size_t count = merge_naively(pairs, (slice){ text, size }, parts);
            assert_int_equal(
                encoder_encode_text(e, (slice){ text, size }, false, 48, &list, &failure),
                STATUS_OK);
            assert_int_equal(list.count, count);
            for (size_t j = 0; j < count; j++)
                assert_true(slice_equal(tokenizer_token_bytes(t, list.ids[j]), parts[j]));
            token_list_close(&list);
        }
        encoder_close(e);
        tokenizer_close(t);
    }
}

static void *encode_many(void *result)
{
    encoder *e;
    buffer text = { 0 };
    uint64_t sum = 0;
    if (encoder_open(tokens, &e) != STATUS_OK)
        return NULL;
    for (int i = 0; i < 300; i++) {
        token_list list = { 0 };
        error failure;
        buffer_printf(&text, "hello %d <call> hell ", i);
        encoder_encode_text(e, buffer_slice(&text), true, SIZE_MAX, &list, &failure);
        for (size_t j = 0; j < list.count; j++)
            sum = random_mix(sum + (uint32_t)list.ids[j]);
        token_list_close(&list);
    }
    buffer_close(&text);
    encoder_close(e);
    *(uint64_t *)result = sum;
    return result;
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    uint64_t sums[THREADS] = { 0 };
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, &sums[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_true(sums[i] != 0 && sums[i] == sums[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_tokens_need_leave_and_user_defined_ones_do_not),
        cmocka_unit_test(b029_content_never_becomes_a_control_token),
        cmocka_unit_test(segments_merge_as_their_concatenation),
        cmocka_unit_test(b031_text_after_nul_is_kept),
        cmocka_unit_test(a_limit_refuses_and_leaves_the_list_alone),
        cmocka_unit_test(merging_equals_the_definition),
        cmocka_unit_test(threads_share_a_tokenizer),
    };
    return cmocka_run_group_tests(tests, open_tokens, close_tokens);
}
