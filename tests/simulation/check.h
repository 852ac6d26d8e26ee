// The invariants, looked at after every event of the world.
#pragma once

#include "net/fabric.h"
#include "world.h"

// Is this address inside the page pool of the process?
bool check_is_pool(const process *p, const void *address);
// The fabric reads or writes memory of a process: a page of its pool must be held.
void check_read(const process *p, const void *from, size_t size);
void check_write(const process *p, const void *to, size_t size);

// world_checker: pages and credits of the process that did something.
void check_process(process *p);
// The end: nothing is left anywhere.
void check_end(void);

// fabric.c: the memory of every receive that is open in the process; requests open in all.
void fabric_each_receive(const process *p, void (*see)(const fabric_piece *piece));
size_t fabric_open_requests(void);
