/* Memory that goes back to the system when it is no longer used. Does something where the C library can (glibc). */
#ifndef TURN_MEMORY_H
#define TURN_MEMORY_H

/* At start, before threads: the free top of a heap is given back from 128 KiB on, whatever was freed before (by
 * default the limit grows with use, and a thread's heap then keeps what a rush of allocations had taken). */
void memory_return_eagerly(void);

/* Gives back what is free now. May take some milliseconds: after much was freed, not often. */
void memory_give_back(void);

#endif
