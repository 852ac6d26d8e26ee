#include "workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

engine_settings workload_settings(char *model)
{
    return (engine_settings){ .model = model,
                              .level = "auto",
                              .cores = "",
                              .kv_type = "f16",
                              .page_tokens = 64,
                              .prefix_reuse = true,
                              .chunk_tokens = 512 };
}

uint64_t workload_pool_bytes(const engine_settings *settings, int layers, int kv_heads,
                             int head_size, int sequences, int tokens)
{
    int64_t pages = (int64_t)(tokens / settings->page_tokens + 2) * sequences;
    tensor_type type = TENSOR_F16; // engine_open refuses an unknown one by name
    (void)engine_kv_type_of(settings->kv_type, &type, NULL);
    // The 8-bit types keep a scale of 2 bytes for each head of a token.
    int64_t head_bytes =
        tensor_block_bytes(type) > 0 ? head_size * tensor_block_bytes(type) : head_size + 2;
    return (uint64_t)(pages * settings->page_tokens * 2 * layers * kv_heads * head_bytes);
}

status workload_try(engine *e, int number, int count, int max_tokens, sequence_mode mode,
                    void *owner, sequence **begun)
{
    error failure = { 0 };
    int32_t vocabulary = engine_facts_of(e)->vocabulary;
    int32_t *tokens = malloc((size_t)count * sizeof *tokens);
    CHECK(tokens);
    for (int i = 0; i < count; i++)
        tokens[i] = (int32_t)(((int64_t)(i + number) * 7919 + 13) % vocabulary);
    sequence_request request = {
        .tokens = tokens,
        .token_count = count,
        .prompt_count = count,
        .mode = mode,
        .max_tokens = max_tokens,
        .ignore_eos = true,
        .sampling = { .top_p = 1, .typical_p = 1, .repetition_penalty = 1 },
        .owner = owner,
    };
    status result = engine_sequence_open(e, &request, begun, &failure);
    free(tokens);
    if (result == STATUS_OK)
        engine_sequence_start(e, *begun);
    else if (result != STATUS_OVERLOADED)
        fprintf(stderr, "the engine takes no sequence: %s\n", failure.text);
    CHECK(result == STATUS_OK || result == STATUS_OVERLOADED);
    return result;
}

sequence *workload_begin(engine *e, int number, int count, int max_tokens, sequence_mode mode,
                         void *owner)
{
    sequence *begun = NULL;
    status result = workload_try(e, number, count, max_tokens, mode, owner, &begun);
    CHECK(result == STATUS_OK);
    return begun;
}
