// What messages say, for the event log. Does nothing where no log is wanted.
#pragma once

#include "world.h"

// A message of a control pair, as it arrives at the current process.
void trace_pair(const process *from, bool to_worker, slice data);
// A message or the header of data between workers, likewise.
void trace_fabric(const process *from, slice data, size_t size);
