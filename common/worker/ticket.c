#include "worker/ticket.h"

#include <string.h>

_Static_assert(MESSAGE_STOP_IDS_MAX <= SEQUENCE_STOP_IDS_MAX,
               "stop ids of a ticket fit the engine");
_Static_assert(MESSAGE_BIASES_MAX <= SEQUENCE_BIAS_MAX, "biases of a ticket fit the engine");
_Static_assert(MESSAGE_TOP_MAX <= BACKEND_TOP_MAX, "alternatives of a ticket fit the engine");

static backend_sample sampling_read(const Penstock__Sampling *s, backend_token_bias *biases)
{
    for (size_t i = 0; i < s->n_biases; i++)
        biases[i] = (backend_token_bias){ s->bias_tokens[i], s->biases[i] };
    return (backend_sample){
        .temperature = s->temperature,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .typical_p = s->typical_p,
        .top_k = s->top_k,
        .repetition_penalty = s->repetition_penalty,
        .frequency_penalty = s->frequency_penalty,
        .presence_penalty = s->presence_penalty,
        .seed = s->seed,
        .choice = s->choice,
        .biases = biases,
        .bias_count = (int32_t)s->n_biases,
        .top_count = (int32_t)s->top_logprobs,
    };
}

status ticket_read(const message_ticket *ticket, sequence_mode mode, void *owner,
                   backend_token_bias *biases, sequence_request *request, error *failure)
{
    if (ticket->adapter[0] != 0)
        return error_set(failure, STATUS_UNSUPPORTED, "adapter",
                         "this worker has no adapter named %s", ticket->adapter);
    *request = (sequence_request){
        .tokens = ticket->tokens,
        .token_count = (int32_t)ticket->n_tokens,
        .prompt_count = (int32_t)ticket->prompt_count,
        .spare_tokens = (int32_t)ticket->spare_tokens,
        .mode = mode,
        .class = ticket->priority == 0 ? SEQUENCE_INTERACTIVE : SEQUENCE_BATCH,
        .max_tokens = (int32_t)ticket->max_tokens,
        .min_tokens = (int32_t)ticket->min_tokens,
        .ignore_eos = ticket->ignore_eos,
        .stop_id_count = (int32_t)ticket->n_stop_ids,
        .sampling = sampling_read(ticket->sampling, biases),
        .scores = ticket->prompt_scores,
        .logits_hash = ticket->logits_hash,
        .owner = owner,
    };
    for (size_t i = 0; i < ticket->n_stop_ids; i++)
        request->stop_ids[i] = ticket->stop_ids[i];
    if (ticket->prefix_salt.len == sizeof(request->prefix_salt))
        memcpy(&request->prefix_salt, ticket->prefix_salt.data, sizeof(request->prefix_salt));
    return STATUS_OK;
}
