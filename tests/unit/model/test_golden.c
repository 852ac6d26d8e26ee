// tags: golden model plain
// limit: 300
#include "golden.h"

int main(void)
{
    return golden_main("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m", "deploy/local/up.sh");
}
