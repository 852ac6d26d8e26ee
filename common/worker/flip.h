// A worker becomes one of the other role: after its drain the same process executes the other
// role's program, which lies beside its own.
//
// The new arguments are the old ones, without settings of keys that only the old role has
// ("decode.x=1"), and with `config` in place of the old --config where it is not empty. Whether the
// other program takes them is tried before the drain, by having it print its configuration. Step
// thread.
#pragma once

#include "base/status.h"

typedef struct flip flip;

// `role` is the new role's name, `own` the old one's; argv is main's. STATUS_BAD_CONFIG with the
// other program's own sentence where it would not start. Takes a moment: the program runs once.
status flip_prepare(const char *own, const char *role, const char *config, int argc, char **argv,
                    flip **prepared, error *failure);
// Returns only where the program could not be executed; the error says why.
void flip_execute(const flip *f, error *failure);
void flip_free(flip *f); // NULL is allowed
