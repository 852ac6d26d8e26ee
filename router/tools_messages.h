// The Messages API (Anthropic's shape) in terms of chat requests and answers: conversations, tools
// and choices on the way in, content blocks on the way out.
//
// In: a `system` text leads; blocks of type text become text, tool_use an assistant's tool_calls,
// tool_result messages of role tool, thinking an assistant's reasoning_content; redacted_thinking
// is passed over. Blocks of other types, and tools that the client does not define itself, are
// refused by their type. cache_control and citations have no effect on an answer and are ignored.
// Out: thought, text and calls are blocks of type thinking, text and tool_use, in this order.
#pragma once

#include "router/tools_answer.h"

// Put messages, tools, tool_choice and parallel_tool_calls of a Messages body into `converted`, the
// body of a chat request. Errors name the field of the Messages body.
status tools_messages_convert(json_t *body, json_t *converted, error *failure);

// Which block of a streamed answer is open. Zeroed at the beginning.
typedef struct tools_messages_blocks {
    enum { BLOCK_NONE, BLOCK_THINKING, BLOCK_TEXT, BLOCK_TOOL } open;
    size_t index; // of the open block, or the next
    size_t call;  // the call of the last tool block
} tools_messages_blocks;

// The events (event: ... data: ...) that tell what is new in `a`, and the stop of the last block at
// the `end`. The caller says tool_answer_taken.
void tools_messages_append_events(const tool_answer *a, tools_messages_blocks *blocks, bool end,
                                  buffer *out);
// The elements of `content` of a whole message, with commas between.
void tools_messages_append_content(const tool_answer *a, buffer *out);
