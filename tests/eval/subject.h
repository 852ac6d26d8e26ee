// What penstock-eval measures: a model file with a type of KV cache, and its tokenizer.
//
// A subject is opened in two steps, so that what can be refused by reading the file is refused
// before its weights are loaded: subject_open (metadata and tokenizer), then subject_load. One
// thread.
#pragma once

#include "eval/options.h"
#include "harness/forced/forced.h"
#include "model/engine.h"
#include "text/encoder.h"

#define SUBJECT_PATH_MAX 1024
#define SUBJECT_TEXT_MAX ((size_t)64 << 20)  // bytes of a text or set
#define SUBJECT_TOKENS_MAX ((size_t)1 << 22) // of a text

// "FILE" or "FILE,kv=TYPE" of the command line.
typedef struct subject_name {
    char path[SUBJECT_PATH_MAX];
    char kv_type[16]; // a value of engine.kv_type
} subject_name;

typedef struct subject {
    subject_name name;
    char file[128]; // the path without its folders, printable
    tensor_type kv_type;
    model_config config;
    tokenizer *tokenizer;
    encoder *encoder;
    hash128 vocabulary; // of what every token is: equal for models whose logits can be compared
    int32_t bos;        // in front of every text, or TOKENIZER_NO_ID
    int32_t chunk;      // positions computed at a time
    forced *model;      // NULL until subject_load
} subject;

// STATUS_INVALID with a sentence. `kv_type` is meant where the text names none.
status subject_name_parse(const char *text, const char *kv_type, subject_name *name,
                          error *failure);

// What the command line names: every model with every type of --kv-type, or with the type that it
// names itself.
#define SUBJECT_NAMES_MAX (EVAL_MODELS_MAX * EVAL_KV_TYPES_MAX)
status subject_names(const eval_options *o, subject_name names[SUBJECT_NAMES_MAX], int *count,
                     error *failure);

status subject_open(const subject_name *name, subject *s, error *failure);
// Room for `context` tokens; `threads` and `level` as the engine's settings.
status subject_load(subject *s, int32_t context, int threads, const char *level, error *failure);
void subject_close(subject *s); // accepts a zeroed one

// Refuses two models whose rows of logits do not mean the same tokens.
status subject_compare(const subject *reference, const subject *s, error *failure);
// The ids of a text, without BOS; text that looks like a control token is plain text.
status subject_encode(const subject *s, slice text, token_list *tokens, error *failure);
// Bytes that a token stands for.
size_t subject_token_size(const subject *s, int32_t token);

// A whole file of at most SUBJECT_TEXT_MAX bytes. The caller closes `text`.
status subject_file_read(const char *path, buffer *text, error *failure);
