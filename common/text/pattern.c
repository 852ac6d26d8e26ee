#include "text/pattern.h"

void pattern_prepare(pattern *p)
{
    uint32_t length = 0;
    p->fallback[0] = 0;
    for (size_t i = 1; i < p->text.size; i++) {
        while (length > 0 && p->text.data[i] != p->text.data[length])
            length = p->fallback[length - 1];
        if (p->text.data[i] == p->text.data[length])
            length++;
        p->fallback[i] = length;
    }
    p->matched = 0;
}
