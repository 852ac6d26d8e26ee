// Where tests find what is not in the tree: model files and the shared reference data. One thread.
#pragma once

#include "base/buffer.h"

// The path of a model file: PENSTOCK_MODEL where it names this file, else the cache folder that
// deploy/local/up.sh fills. NULL where it is not there. The string is static until the next call.
const char *places_model(const char *file_name);
// A file of the shared folder (PENSTOCK_SHARED, else
// ../shared beside `source_dir`), or NULL. As above.
const char *places_shared(const char *source_dir, const char *relative);
// The whole file; false where it cannot be read. The caller closes `bytes`.
bool places_read(const char *path, buffer *bytes);
