// The formats of tool calls, one row each.
#include "text/tool_calls_private.h"

// clang-format off
static const tool_syntax formats[] = {
    [TOOL_FORMAT_NONE] = { .layout = { .name = "none" } },
    [TOOL_FORMAT_HERMES] = {
        .layout = { "hermes", "<tool_call>\n", "{\"name\": ", ", \"arguments\": ", "}",
                    "\n</tool_call>\n<tool_call>\n", "\n</tool_call>" },
        .open = { "<tool_call>" },
        .close = "</tool_call>",
    },
    [TOOL_FORMAT_LLAMA3] = {
        .layout = { "llama3", "", "{\"name\": ", ", \"parameters\": ", "}", "; ", "" },
        .open = { "<|python_tag|>" },
        .separator = ";",
        .list = true,
        .bare = true,
        .mark_is_control = true,
    },
    [TOOL_FORMAT_MISTRAL] = {
        .layout = { "mistral", "[TOOL_CALLS][", "{\"name\": ", ", \"arguments\": ", "}", ", ", "]" },
        .open = { "[TOOL_CALLS]" },
        .list = true,
        .mark_is_control = true,
    },
    [TOOL_FORMAT_GEMMA] = {
        .layout = { "gemma", "```tool_code\n[", "{\"name\": ", ", \"parameters\": ", "}", ", ",
                    "]\n```" },
        .open = { "```tool_code" },
        .close = "```",
        .list = true,
        .bare = true,
    },
};
// clang-format on

const tool_syntax *tool_syntax_of(tool_format format)
{
    return &formats[format];
}

const tool_layout *tool_layout_of(tool_format format)
{
    return &formats[format].layout;
}

const char *tool_format_mark(tool_format format)
{
    return formats[format].mark_is_control ? formats[format].open[0] : NULL;
}

bool tool_format_find(slice name, tool_format *format)
{
    for (int i = 0; i < TOOL_FORMAT_COUNT; i++) {
        if (slice_equal(name, slice_of(formats[i].layout.name))) {
            *format = (tool_format)i;
            return true;
        }
    }
    return false;
}

static bool spells(slice source, const char *text)
{
    return memmem(source.data, source.size, text, strlen(text)) != NULL;
}

tool_format tool_format_detect(slice source)
{
    if (source.size == 0)
        return TOOL_FORMAT_NONE;
    if (spells(source, "<function=")) // calls written as tags, not as JSON
        return TOOL_FORMAT_NONE;
    if (spells(source, "<tool_call>"))
        return TOOL_FORMAT_HERMES;
    if (spells(source, "[TOOL_CALLS]"))
        return TOOL_FORMAT_MISTRAL;
    if (spells(source, "<|python_tag|>") ||
        (spells(source, "<|start_header_id|>") && spells(source, "parameters")))
        return TOOL_FORMAT_LLAMA3;
    return spells(source, "<start_of_turn>") ? TOOL_FORMAT_GEMMA : TOOL_FORMAT_NONE;
}
