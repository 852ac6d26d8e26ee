// The prompt is longer than this model's window.
// tags: golden models plain
// limit: 900
#include "real_bits.h"

int main(void)
{
    return real_bits_main("gemma-3-270m.Q4_K_M.gguf", 550);
}
