// Files that penstock-bench and penstock-eval write: pictures, tables, references.
#pragma once

#include "base/buffer.h"
#include "base/status.h"

// STATUS_IO, with the path and the reason.
status output_write(const char *path, const buffer *bytes, error *failure);
