// Inside message_check: how a rule is written, and the rules that stand in files of their own.
#pragma once

#include "net/message.h"

#define DRAFTER_MAX 15 // bytes of a drafter's name

// The rule of one field: the message is dropped with this sentence where it does not hold. In a
// function with `failure` that returns a status.
#define RULE(condition, field, right)                                                              \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return error_set(failure, STATUS_PEER_PROTOCOL, field, "%s is not valid: %s", field,   \
                             right);                                                               \
    } while (0)

// message_check_guesses.c
status check_drafter(const void *message, error *failure);
status check_guess_state(const void *message, error *failure);
status check_guess_class(const void *message, error *failure);
status check_guesses(const void *message, error *failure);
