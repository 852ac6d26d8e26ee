// tiny-model FILE [SEED]: write the default tiny model, for tests that are not written in C.
#include "harness/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: tiny-model FILE [SEED]\n");
        return 2;
    }
    tiny_model options = tiny_model_default(argc > 2 ? strtoull(argv[2], NULL, 0) : 1);
    if (tiny_model_write(&options, argv[1]) != STATUS_OK) {
        fprintf(stderr, "tiny-model: %s cannot be written\n", argv[1]);
        return 1;
    }
    return 0;
}
