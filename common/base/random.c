#include "base/random.h"

#include "base/status.h"

#include <errno.h>
#include <sys/random.h>

uint64_t random_system(void)
{
    uint64_t bits;
    ssize_t count;
    do
        count = getrandom(&bits, sizeof(bits), 0);
    while (count < 0 && errno == EINTR);
    CHECK(count == (ssize_t)sizeof(bits));
    return bits;
}
