#include "places.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *if_there(const char *path)
{
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *places_model(const char *file_name)
{
    static char path[1024];
    const char *given = getenv("PENSTOCK_MODEL"), *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    size_t tail = strlen(file_name);
    if (given != NULL && strlen(given) >= tail &&
        strcmp(given + strlen(given) - tail, file_name) == 0)
        return if_there(given);
    if (cache != NULL && cache[0] != 0)
        snprintf(path, sizeof(path), "%s/penstock/models/%s", cache, file_name);
    else
        snprintf(path, sizeof(path), "%s/.cache/penstock/models/%s", home ? home : "", file_name);
    return if_there(path);
}

const char *places_shared(const char *source_dir, const char *relative)
{
    static char path[1024];
    const char *given = getenv("PENSTOCK_SHARED");
    if (given != NULL && given[0] != 0)
        snprintf(path, sizeof(path), "%s/%s", given, relative);
    else
        snprintf(path, sizeof(path), "%s/../shared/%s", source_dir, relative);
    return if_there(path);
}

bool places_read(const char *path, buffer *bytes)
{
    FILE *file = fopen(path, "rb");
    size_t count = 1;
    if (file == NULL)
        return false;
    while (count > 0 && buffer_reserve(bytes, 1 << 16)) {
        count = fread(bytes->data + bytes->size, 1, 1 << 16, file);
        bytes->size += count;
        bytes->data[bytes->size] = 0;
    }
    bool whole = !ferror(file) && !bytes->overflow;
    fclose(file);
    return whole;
}
