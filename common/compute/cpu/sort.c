// Shell's sort with Ciura's gaps, which needs no memory: lists here are short (what a filter might
// keep), and a whole vocabulary takes a few milliseconds.
#include "compute/cpu/cpu.h"

static bool before(cpu_sort_entry a, cpu_sort_entry b)
{
    return a.key < b.key || (a.key == b.key && a.id < b.id);
}

void cpu_sort(cpu_sort_entry *entries, int count)
{
    static const int gaps[] = { 90927, 40412, 17961, 7983, 3548, 1577, 701,
                                301,   132,   57,    23,   10,   4,    1 };
    for (size_t g = 0; g < sizeof gaps / sizeof gaps[0]; g++)
        for (int i = gaps[g]; i < count; i++) {
            cpu_sort_entry entry = entries[i];
            int at = i;
            for (; at >= gaps[g] && before(entry, entries[at - gaps[g]]); at -= gaps[g])
                entries[at] = entries[at - gaps[g]];
            entries[at] = entry;
        }
}
