// A template and the JSON of its variables, with a NUL between them: parsing and rendering end in
// text whose segments cover it, or in an error with a sentence and no text; twice the same.
#include "text/template.h"

#include <stdint.h>

static void check_output(const template_output *output)
{
    size_t end = 0;
    for (size_t i = 0; i < output->segment_count; i++) {
        const template_segment *s = &output->segments[i];
        CHECK(s->offset == end && s->size > 0);
        CHECK(i == 0 || s->from_template != s[-1].from_template);
        end += s->size;
    }
    CHECK(end == output->text.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    size_t source_size = nul ? (size_t)(nul - data) : size;
    template *opened = NULL;
    error failure = { 0 };
    slice source = { (const char *)data, source_size };
    if (template_open(source, &opened, &failure) != STATUS_OK) {
        CHECK(!opened && failure.text[0]);
        return 0;
    }
    template_output first = { 0 }, second = { 0 };
    template_limits limits = {
        .steps = 20000, .output_bytes = 1 << 16, .items = 5000, .memory_bytes = 8 << 20
    };
    json_t *variables = nul ? json_loadb((const char *)nul + 1, size - source_size - 1,
                                         JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, NULL)
                            : NULL;
    template_context context = { .variables = variables, .now_s = 1700000000 };
    status code = template_render(opened, &context, &limits, &first, &failure);
    CHECK(code == STATUS_OK ? first.fault == TEMPLATE_FAULT_NONE
                            : first.fault != TEMPLATE_FAULT_NONE && first.text.size == 0);
    check_output(&first);
    CHECK(template_render(opened, &context, &limits, &second, NULL) == code);
    CHECK(slice_equal(buffer_slice(&first.text), buffer_slice(&second.text)));
    json_decref(variables);
    template_output_close(&first);
    template_output_close(&second);
    template_close(opened);
    return 0;
}
