// Model versions: weights that may be served at the same time, and how new requests are split
// between them.
//
// Without a list there is one version, the router's own file. A list names each version by its
// weights (32 hex digits, as /cluster shows them) and its share of new requests. All of them must
// have the router's tokenizer and template. A request begins on one version and stays within it:
// prefill, decode and recovery. Only one that has no token yet goes to another where its own has
// lost its last decode worker. Pure functions.
#pragma once

#include "base/buffer.h"
#include "base/config.h"
#include "base/hash.h"

#define VERSIONS_MAX 8

typedef struct version {
    hash128 weights;
    double share; // of new requests, relative to the others
} version;

typedef struct versions {
    hash128 own; // of the router's file
    size_t count;
    version items[VERSIONS_MAX];
} versions;

// "HEX:SHARE" each. STATUS_BAD_CONFIG and a sentence that names the settings' `key` for anything
// else, more than VERSIONS_MAX, one named twice, or shares that are all 0.
status versions_parse(const char *key, const config_strings *texts, hash128 own, versions *parsed,
                      error *failure);
// Whether workers of these weights may join: the router's own, and all that are listed.
bool versions_allow(const versions *v, hash128 weights);
// The version for a new request among those that are marked: their shares divide [0, 1), and `draw`
// falls into one of the parts. SIZE_MAX: none of them has a share.
size_t versions_choose(const versions *v, const bool marked[VERSIONS_MAX], double draw);
// Where a request falls: by its Idempotency-Key where there is one, so that every router sends it
// to the same version; else by its number, so that the shares are kept to at any time.
double versions_draw(slice key, uint64_t number);
// "fp_" and the first half of the weights' digits, as answers name their version.
void versions_fingerprint(hash128 weights, char text[24]);
