#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

static bool continues(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

size_t utf8_sequence_size(const char *data, size_t size)
{
    const unsigned char *byte = (const unsigned char *)data;
    if (size == 0)
        return 0;
    if (byte[0] < 0x80)
        return 1;
    if (byte[0] < 0xc2 || byte[0] > 0xf4 || size < 2 || !continues(byte[1]))
        return 0;
    if (byte[0] < 0xe0)
        return 2;
    if (size < 3 || !continues(byte[2]))
        return 0;
    if (byte[0] < 0xf0) {
        bool overlong = byte[0] == 0xe0 && byte[1] < 0xa0;
        bool surrogate = byte[0] == 0xed && byte[1] > 0x9f;
        return overlong || surrogate ? 0 : 3;
    }
    if (size < 4 || !continues(byte[3]))
        return 0;
    bool overlong = byte[0] == 0xf0 && byte[1] < 0x90;
    bool past_end = byte[0] == 0xf4 && byte[1] > 0x8f;
    return overlong || past_end ? 0 : 4;
}

int utf8_fit(const char *text, size_t most)
{
    size_t size = strnlen(text, most), start = size;
    while (start > 0 && size - start < 3 && continues((unsigned char)text[start - 1]))
        start--;
    if (start == 0 || (unsigned char)text[start - 1] < 0xc0)
        return (int)size;
    bool whole = utf8_sequence_size(text + start - 1, size - start + 1) > 0;
    return (int)(whole ? size : start - 1);
}

void utf8_make_printable(char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        size_t count = utf8_sequence_size(text, left);
        unsigned char first = (unsigned char)text[0];
        // U+0080 to U+009F are control characters as well.
        bool control = count == 1 ? first < 0x20 || first == 0x7f
                                  : first == 0xc2 && (unsigned char)text[1] < 0xa0;
        if (count == 0)
            count = 1;
        else if (!control) {
            text += count;
            left -= count;
            continue;
        }
        memset(text, '?', count);
        text += count;
        left -= count;
    }
}
