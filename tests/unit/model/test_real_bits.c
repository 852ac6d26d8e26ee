// tags: golden model plain
// limit: 300
#include "real_bits.h"

int main(void)
{
    return real_bits_main("SmolLM2-135M-Instruct.Q4_1.gguf", 90);
}
