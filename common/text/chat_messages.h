// The messages of a request, checked and in the form that one template expects. For text/chat only.
//
// Plain functions on JSON; the caller owns what it passes and what it gets.
#pragma once

#include "text/chat.h"

// Check `messages` and make the array that the template gets. `roles` is filled with the strings
// that stand for roles in it (the very same json_t), so that they can count as markup. Both are new
// references, NULL on failure. Errors name the field; text of a client in them is shortened.
status chat_messages_prepare(json_t *messages, const chat_traits *traits, json_t **prepared,
                             json_t **roles, error *failure);
