// penstock-decode: takes seats, receives KV pages, generates with continuous batching. Everything
// is in decode.c and in common/worker.
#include "decode_worker/decode.h"

int main(int argc, char **argv)
{
    decode_config settings = { 0 };
    return station_main(&decode_program, &settings, &decode_role, argc, argv);
}
