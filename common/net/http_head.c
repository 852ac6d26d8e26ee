#include "net/http_head.h"

#include "base/utf8.h"

#include <string.h>
#include <strings.h>

// RFC 9110 section 5.6.2: what names of fields and methods are made of.
static bool is_token_byte(unsigned char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
        return true;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_token(slice s)
{
    for (size_t i = 0; i < s.size; i++)
        if (!is_token_byte((unsigned char)s.data[i]))
            return false;
    return s.size > 0;
}

static bool refuse(http_refusal *refusal, int status, const char *text)
{
    *refusal = (http_refusal){ status, text };
    return false;
}

bool http_text_equal(slice text, const char *other)
{
    size_t size = strlen(other);
    return text.size == size && strncasecmp(text.data, other, size) == 0;
}

bool http_text_is_utf8(slice text)
{
    for (size_t at = 0; at < text.size;) {
        size_t size = utf8_sequence_size(text.data + at, text.size - at);
        if (size == 0)
            return false;
        at += size;
    }
    return true;
}

size_t http_head_find(const char *data, size_t size, size_t seen, size_t size_max,
                      http_refusal *refusal)
{
    *refusal = (http_refusal){ 0 };
    size_t start = 0; // RFC 9112 section 2.2: empty lines before a request line are skipped
    while (start + 1 < size && start < 8 && data[start] == '\r' && data[start + 1] == '\n')
        start += 2;
    if (start < size && data[start] != '\r' && !is_token_byte((unsigned char)data[start])) {
        refuse(refusal, 400, "the request does not begin with a method");
        return 0;
    }
    if (start + 1 < size && data[start] == '\r') {
        refuse(refusal, 400, "the request line is missing");
        return 0;
    }
    for (size_t at = seen > start ? seen : start; at < size; at++) {
        if (data[at] != '\n')
            continue;
        if (at == start || data[at - 1] != '\r') {
            refuse(refusal, 400, "a line of the head ends without a carriage return");
            return 0;
        }
        if (at >= start + 3 && data[at - 2] == '\n') {
            if (at + 1 <= size_max)
                return at + 1;
            break;
        }
    }
    if (size >= size_max)
        refuse(refusal, 431, "the request line and header fields are too large");
    return 0;
}

// "GET /path?query HTTP/1.1"; absolute targets (http://host/path) are cut to their path.
static bool request_line_parse(slice line, http_head *head, http_refusal *refusal)
{
    const char *end = line.data + line.size;
    const char *first = memchr(line.data, ' ', line.size);
    const char *last = memrchr(line.data, ' ', line.size);
    if (!first || first == last)
        return refuse(refusal, 400, "the request line is not METHOD TARGET HTTP/1.1");
    head->method = (slice){ line.data, (size_t)(first - line.data) };
    slice target = { first + 1, (size_t)(last - first) - 1 };
    slice version = { last + 1, (size_t)(end - last) - 1 };
    if (!is_token(head->method))
        return refuse(refusal, 400, "the method is not a token");
    if (version.size != 8 || memcmp(version.data, "HTTP/1.", 7) != 0 ||
        (version.data[7] != '0' && version.data[7] != '1'))
        return refuse(refusal,
                      version.size > 5 && memcmp(version.data, "HTTP/", 5) == 0 ? 505 : 400,
                      "the protocol version is not HTTP/1.1 or HTTP/1.0");
    head->minor = version.data[7] - '0';
    for (size_t i = 0; i < target.size; i++) {
        unsigned char c = (unsigned char)target.data[i];
        if (c <= 0x20 || c >= 0x7f)
            return refuse(refusal, 400,
                          "the request target holds a byte that is not printable ASCII");
    }
    if (target.size >= 7 && strncasecmp(target.data, "http://", 7) == 0) {
        const char *slash = memchr(target.data + 7, '/', target.size - 7);
        target = slash ? (slice){ slash, (size_t)(target.data + target.size - slash) }
                       : (slice){ "/", 1 };
    }
    if (target.size == 0 || (target.data[0] != '/' && !(target.size == 1 && target.data[0] == '*')))
        return refuse(refusal, 400, "the request target is not a path");
    const char *mark = memchr(target.data, '?', target.size);
    head->path = mark ? (slice){ target.data, (size_t)(mark - target.data) } : target;
    head->query = mark ? (slice){ mark + 1, (size_t)(target.data + target.size - mark) - 1 }
                       : (slice){ "", 0 };
    return true;
}

static bool field_parse(slice line, http_head *head, http_refusal *refusal)
{
    if (line.data[0] == ' ' || line.data[0] == '\t')
        return refuse(refusal, 400, "a header field is folded over several lines");
    const char *colon = memchr(line.data, ':', line.size);
    if (!colon || !is_token((slice){ line.data, (size_t)(colon - line.data) }))
        return refuse(refusal, 400, "a header field is not \"Name: value\"");
    slice value = { colon + 1, (size_t)(line.data + line.size - colon) - 1 };
    while (value.size > 0 && (value.data[0] == ' ' || value.data[0] == '\t'))
        value = (slice){ value.data + 1, value.size - 1 };
    while (value.size > 0 &&
           (value.data[value.size - 1] == ' ' || value.data[value.size - 1] == '\t'))
        value.size--;
    for (size_t i = 0; i < value.size; i++) {
        unsigned char c = (unsigned char)value.data[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return refuse(refusal, 400, "a header field holds a control character");
    }
    if (!http_text_is_utf8(value))
        return refuse(refusal, 400, "a header field is not UTF-8");
    if (head->field_count == HTTP_FIELDS_MAX)
        return refuse(refusal, 431, "there are more than 100 header fields");
    head->fields[head->field_count++] =
        (http_field){ { line.data, (size_t)(colon - line.data) }, value };
    return true;
}

slice http_head_field(const http_head *head, const char *name)
{
    for (size_t i = 0; i < head->field_count; i++)
        if (http_text_equal(head->fields[i].name, name))
            return head->fields[i].value;
    return (slice){ NULL, 0 };
}

size_t http_head_field_count(const http_head *head, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < head->field_count; i++)
        count += http_text_equal(head->fields[i].name, name);
    return count;
}

static bool length_parse(slice text, uint64_t *length)
{
    uint64_t value = 0;
    if (text.size == 0 || text.size > 18)
        return false;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        value = value * 10 + (uint64_t)(text.data[i] - '0');
    }
    *length = value;
    return true;
}

static bool framing_parse(http_head *head, http_refusal *refusal)
{
    size_t codings = http_head_field_count(head, "Transfer-Encoding");
    size_t lengths = http_head_field_count(head, "Content-Length");
    if (codings > 0) {
        if (lengths > 0)
            return refuse(refusal, 400, "Transfer-Encoding and Content-Length exclude each other");
        if (codings > 1 || !http_text_equal(http_head_field(head, "Transfer-Encoding"), "chunked"))
            return refuse(refusal, 400, "Transfer-Encoding must be exactly \"chunked\"");
        if (head->minor == 0)
            return refuse(refusal, 400, "HTTP/1.0 has no Transfer-Encoding");
        head->chunked = true;
    }
    if (lengths > 1)
        return refuse(refusal, 400, "there is more than one Content-Length");
    if (lengths == 1) {
        if (!length_parse(http_head_field(head, "Content-Length"), &head->length))
            return refuse(refusal, 400, "Content-Length is not a decimal number");
        head->has_length = true;
    }
    return true;
}

// True if the comma-separated list `value` names `option`.
static bool list_names(slice value, const char *option)
{
    size_t at = 0;
    while (at < value.size) {
        size_t end = at;
        while (end < value.size && value.data[end] != ',')
            end++;
        slice item = { value.data + at, end - at };
        while (item.size > 0 && (item.data[0] == ' ' || item.data[0] == '\t'))
            item = (slice){ item.data + 1, item.size - 1 };
        while (item.size > 0 &&
               (item.data[item.size - 1] == ' ' || item.data[item.size - 1] == '\t'))
            item.size--;
        if (http_text_equal(item, option))
            return true;
        at = end + 1;
    }
    return false;
}

static bool fields_judge(http_head *head, http_refusal *refusal)
{
    size_t hosts = http_head_field_count(head, "Host");
    if (hosts > 1 || (hosts == 0 && head->minor == 1))
        return refuse(refusal, 400, hosts ? "there is more than one Host" : "Host is missing");
    if (!framing_parse(head, refusal))
        return false;
    slice connection = http_head_field(head, "Connection");
    head->keep_alive =
        head->minor == 1 ? !list_names(connection, "close") : list_names(connection, "keep-alive");
    slice expect = http_head_field(head, "Expect");
    if (expect.data && !http_text_equal(expect, "100-continue"))
        return refuse(refusal, 417, "Expect may only be 100-continue");
    head->expects_continue = expect.data && head->minor == 1;
    return true;
}

bool http_head_parse(const char *data, size_t size, http_head *head, http_refusal *refusal)
{
    *refusal = (http_refusal){ 0 };
    head->field_count = 0;
    head->chunked = head->has_length = false;
    head->length = 0;
    const char *end = data + size;
    bool first = true;
    while (data < end) {
        const char *stop = memchr(data, '\n', (size_t)(end - data));
        if (!stop || stop == data || stop[-1] != '\r')
            return refuse(refusal, 400, "a line of the head ends without CRLF");
        slice line = { data, (size_t)(stop - data) - 1 };
        data = stop + 1;
        if (line.size == 0) {
            if (first)
                continue;
            break;
        }
        if (memchr(line.data, '\r', line.size))
            return refuse(refusal, 400, "a carriage return stands inside a line of the head");
        if (!(first ? request_line_parse(line, head, refusal) : field_parse(line, head, refusal)))
            return false;
        first = false;
    }
    if (first)
        return refuse(refusal, 400, "the request line is missing");
    return fields_judge(head, refusal);
}

bool http_content_is_json(slice type)
{
    const char *mark = memchr(type.data ? type.data : "", ';', type.size);
    slice kind = mark ? (slice){ type.data, (size_t)(mark - type.data) } : type;
    while (kind.size > 0 && kind.data[kind.size - 1] == ' ')
        kind.size--;
    if (!http_text_equal(kind, "application/json"))
        return false;
    if (!mark)
        return true;
    slice rest = { mark + 1, (size_t)(type.data + type.size - mark) - 1 };
    while (rest.size > 0 && rest.data[0] == ' ')
        rest = (slice){ rest.data + 1, rest.size - 1 };
    return rest.size == 0 || http_text_equal(rest, "charset=utf-8") ||
           http_text_equal(rest, "charset=\"utf-8\"") || http_text_equal(rest, "charset=utf8");
}
