/* Makes one chosen allocation of the program fail. The program is linked with --wrap for malloc, calloc,
 * realloc, strdup and strndup; allocations inside shared libraries are not seen. One counter for all
 * threads. */
#ifndef TURN_ALLOC_FAULT_H
#define TURN_ALLOC_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* Starts counting; the n-th allocation from now on (the first is 1) fails, and only that one. With 0 none
 * fails and they are only counted. */
void alloc_fault_arm(uint64_t n);

/* Every allocation succeeds again. The count stays readable. */
void alloc_fault_disarm(void);

/* Allocations tried since the last arm, up to the disarm, the failed one included. */
uint64_t alloc_fault_count(void);

/* True when the armed failure has happened: a sweep over n ends when this is false. */
bool alloc_fault_hit(void);

#endif
