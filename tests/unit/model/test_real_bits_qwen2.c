// tags: golden models plain
// limit: 900
#include "real_bits.h"

int main(void)
{
    return real_bits_main("Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf", 90);
}
