/* The two clocks. Lifetimes use the monotonic one; only REST expiry and nonce age use wall time. */
#ifndef TURN_CLOCK_H
#define TURN_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static inline int64_t clock_wall_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec;
}

#endif
