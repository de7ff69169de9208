#include "memory.h"

#include <stdlib.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

void memory_return_eagerly(void) {
#ifdef __GLIBC__
    enum { TRIM_FROM_BYTES = 128 * 1024 };
    (void)mallopt(M_TRIM_THRESHOLD, TRIM_FROM_BYTES);
#endif
}

void memory_give_back(void) {
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}
