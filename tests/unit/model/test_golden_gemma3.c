// tags: golden models plain
// limit: 900
#include "golden.h"

int main(void)
{
    return golden_main("gemma-3-270m.Q4_K_M.gguf", "gemma3-270m",
                       "deploy/model/fetch.sh gemma3-270m");
}
