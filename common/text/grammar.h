// Grammars: what an answer may be, byte by byte. Compiled from a source that travels in the ticket;
// grammar_mask.h turns one into masks over a vocabulary.
//
// A source is a tag, a newline and the rest, UTF-8, at most GRAMMAR_SOURCE_MAX bytes:
//
//   json_schema\n<schema>    JSON that the schema allows
//   json_object\n            any JSON object
//   regex\n<pattern>         a text that the whole pattern matches
//   choice\n<["a", "b"]>     one of the strings, as it is
//   template\n<node>         a node is one of
//       "text"                                    these bytes
//       {"json_schema": schema}                   and {"json_object": true}, {"regex": "pattern"}
//       {"sequence": [node, ...]}
//       {"any": [node, ...]}                      one of them
//       {"repeat": node, "min": 1, "max": 8, "separator": "text"}    defaults 1, 1, ""; max at most
//       64
//
// So a forced call of one of two tools, up to four in a row, is
//   template\n{"repeat": {"sequence": ["<tool_call>\n", {"any": [
//       {"sequence": ["{\"name\": \"f\", \"arguments\": ", {"json_schema": {...}}, "}"]},
//       {"sequence": ["{\"name\": \"g\", \"arguments\": ", {"json_schema": {...}}, "}"]}]},
//     "\n</tool_call>"]}, "min": 1, "max": 4, "separator": "\n"}
//
// JSON is written in one way, so that a model cannot go on for ever without saying anything:
// - no white space but at most one space behind each ',' and ':';
// - properties in the order of the schema (those of allOf behind each other), then free ones;
// - numbers with at most 18 digits before the point, 16 behind it and 2 in the exponent (none where
//   there are bounds); an integer has neither point nor exponent;
// - strings of enum, const, pattern and format, and names: characters as they are, escapes only
//   where JSON demands them; free strings may use every escape but those of lone surrogates;
// - objects and arrays nest at most GRAMMAR_DEPTH_MAX deep.
// So less than the schema allows is written, and never anything else.
//
// JSON Schema (draft 2020-12): type, enum, const, properties, required, additionalProperties,
// patternProperties, propertyNames, minProperties, maxProperties, dependentRequired, items,
// prefixItems, minItems, maxItems, contains, uniqueItems, minLength, maxLength, pattern, format
// (date-time, date, time, uuid, ipv4, email), minimum, maximum, exclusiveMinimum, exclusiveMaximum,
// multipleOf (an integer), anyOf, allOf, oneOf (where the alternatives are numbers, strings or
// provably apart), not and if (where the complement can be written), $ref to "#..." with $defs and
// definitions. Annotations are passed over. Everything else, and what could not be kept
// (uniqueItems of other than an enum of a few values, minProperties that needs more than one free
// name), is refused by the keyword's name.
//
// Regular expressions: literals, . [classes] \d \w \s \D \W \S \t \n \r \f \v \0 \xHH \uHHHH \u{H},
// groups ( ) and (?: ), | ? * + {n} {n,} {n,m} and their lazy forms (which mean the same), ^ at the
// beginning and $ at the end of an alternative. \d \w \s are those of ASCII, . is all but ends of
// lines. As a source the pattern is anchored; as the keyword `pattern` it is searched for.
// Look-around, back references, \b and \p are refused by name.
//
// A compiled grammar never changes: any thread may use it. Time and memory of compiling are
// bounded whatever the source is.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

#define GRAMMAR_SOURCE_MAX ((size_t)1 << 18)
#define GRAMMAR_DEPTH_MAX 48

typedef struct grammar grammar;

// STATUS_UNSUPPORTED for a keyword or form that is not served, STATUS_TOO_LARGE where the automaton
// would pass its bounds, else STATUS_INVALID; failure->param is the keyword at fault, or empty
// where it is none, and the sentence names it. STATUS_NO_MEMORY.
status grammar_compile(slice source, grammar **compiled, error *failure);
// Holders are counted; the last release frees it. NULL is fine to release.
grammar *grammar_hold(grammar *g);
void grammar_release(grammar *g);
size_t grammar_size(const grammar *g); // bytes that it takes

typedef enum grammar_match {
    GRAMMAR_NO,       // no continuation of the text is in the grammar
    GRAMMAR_PREFIX,   // some continuation is
    GRAMMAR_COMPLETE, // the text itself is (and perhaps continuations)
} grammar_match;

// How `text` stands to the grammar. Slow: for tests and tools.
grammar_match grammar_match_of(const grammar *g, slice text);
