// Workers of one machine share its cores: each takes a disjoint set where there are enough.
//
// A claim on a core is a lock on a small file in a folder that the machine's workers have in
// common; the system lets go of it when the process ends, however it ends. "auto" takes half of the
// cores that affinity allows, at least one, those with the fewest claims first: a prefill and a
// decode worker get a half each, further workers double up evenly. "all" claims nothing and keeps
// all. The claim becomes the affinity of the whole process, so that every thread made later stays
// inside it.
//
// A core that its owner does not need may be lent: each claim has a byte in a file of the core,
// mapped by all, that its owner sets while it computes. A borrower's thread on that core takes no
// further piece of work once a byte is set. A process that dies while it computes leaves its byte
// set, and nobody borrows the core until its claim is taken again.
#pragma once

#include "compute/backend.h"

// To be called before any thread exists. `folder` "" = $XDG_RUNTIME_DIR/penstock or
// /tmp/penstock-UID. `taken` gets a text such as "0,2" for the log. A folder that cannot be used is
// logged and leaves all cores.
void cores_claim(const char *mode, const char *folder, char taken[256]);
// After the claim: the cores that affinity allowed and others may hold, at most `room`; their
// count. What cannot be mapped is logged and left out.
int cores_borrow(const char *folder, backend_borrowed *borrowed, int room);
// Say whether this process computes. Any thread, one at a time.
void cores_busy(bool busy);
// Before another program is executed: the affinity that the process had before its claim.
void cores_restore(void);
