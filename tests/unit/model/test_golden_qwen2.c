// tags: golden models plain
// limit: 900
#include "golden.h"

int main(void)
{
    return golden_main("Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf", "qwen2.5-coder-0.5b",
                       "deploy/model/fetch.sh qwen2.5-coder-0.5b");
}
