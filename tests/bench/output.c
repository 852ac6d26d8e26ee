#include "output.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

status output_write(const char *path, const buffer *bytes, error *failure)
{
    FILE *file = fopen(path, "wb");
    bool written = file && fwrite(bytes->data, 1, bytes->size, file) == bytes->size;
    if (file && fclose(file) != 0)
        written = false;
    if (written)
        return STATUS_OK;
    return error_set(failure, STATUS_IO, "file", "%s cannot be written: %s", path, strerror(errno));
}
