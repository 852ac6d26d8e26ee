// penstock-prefill: computes prompts in chunks and ships their KV pages. Everything is in prefill.c
// and in common/worker.
#include "prefill_worker/prefill.h"

int main(int argc, char **argv)
{
    prefill_config settings = { 0 };
    return station_main(&prefill_program, &settings, &prefill_role, argc, argv);
}
