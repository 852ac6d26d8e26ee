// One JSON value (RFC 8259) read byte by byte, without building it: where keys and values begin and
// end, and at which byte it stops being JSON.
//
// Plain data without memory of its own; nesting beyond JSON_SCANNER_DEPTH_MAX counts as broken.
// Bytes of strings are not checked to be UTF-8.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { JSON_SCANNER_DEPTH_MAX = 64 };

typedef struct json_scanner {
    uint8_t state;
    uint8_t depth;       // containers that are open
    uint8_t digits;      // of a \u escape, still to come
    bool is_key;         // the string at hand
    uint64_t objects;    // bit d: the container at depth d + 1 is an object
    const char *literal; // what is still to come of true, false or null
} json_scanner;

// What a byte did.
typedef enum json_happening {
    JSON_NOTHING, // it went on
    JSON_BEGAN,   // the byte is the first of a value
    JSON_KEY_BEGAN,
    JSON_KEY_ENDED,    // the closing quote of a key
    JSON_STRING_ENDED, // the closing quote of a string that is a value
    JSON_CLOSED,       // the bracket that ends an object or a list; depth 0: the value is whole
    JSON_BROKEN,       // the byte cannot stand here; the scanner is of no use any more
} json_happening;

// A zeroed scanner waits for a value. White space in front is allowed. Once an object or a list at
// depth 0 is closed, nothing may follow.
json_happening json_scanner_push(json_scanner *s, char byte);
