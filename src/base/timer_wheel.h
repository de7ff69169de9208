/* Hierarchical timer wheel: adding and cancelling cost the same for any number of timers, advancing costs
 * in proportion to what expires and to the slots in use that are passed, never to the time passed. A wheel
 * must not move in memory. One wheel a thread. */
#ifndef TURN_TIMER_WHEEL_H
#define TURN_TIMER_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

struct wheel_timer;
typedef void (*wheel_timer_fn)(struct wheel_timer *timer, void *context);

/* Embedded in the object that expires; a zeroed one is valid and idle. */
struct wheel_timer {
    struct wheel_timer *next;
    struct wheel_timer **link; /* the pointer that points here; NULL while idle */
    uint64_t expires_tick;
    wheel_timer_fn expired;
};

enum { TIMER_WHEEL_LEVELS = 5, TIMER_WHEEL_SLOTS = 64, TIMER_WHEEL_TICK_US = 100000 };

struct timer_wheel {
    struct wheel_timer *slots[TIMER_WHEEL_LEVELS][TIMER_WHEEL_SLOTS];
    uint64_t used[TIMER_WHEEL_LEVELS]; /* bit i: slot i may hold timers */
    struct wheel_timer *due;           /* fire at the next advance, oldest first */
    struct wheel_timer **due_end;
    uint64_t now_tick;
    uint64_t n_armed;
    void *context; /* handed to every expired() */
};

/* now_us: monotonic microseconds. context goes to every callback. */
void timer_wheel_init(struct timer_wheel *wheel, uint64_t now_us, void *context);

/* Arms (or moves) the timer to fire at the first advance with now_us >= at_us, at most one tick
 * (TIMER_WHEEL_TICK_US) late. A time in the past fires at the next advance. timer->expired must be set. */
void timer_wheel_set(struct timer_wheel *wheel, struct wheel_timer *timer, uint64_t at_us);

/* Disarms; nothing happens to an idle timer. */
void timer_wheel_cancel(struct timer_wheel *wheel, struct wheel_timer *timer);

static inline bool wheel_timer_is_armed(const struct wheel_timer *timer) {
    return timer->link != 0;
}

/* Fires what is due, in the order of ticks; all of it counts as the present then, so what a callback sets in
 * the past waits for the next advance. A callback may set or cancel any timer of the wheel, its own included,
 * and may free its own object. Returns the number fired. A clock that went backwards fires nothing. */
uint64_t timer_wheel_advance(struct timer_wheel *wheel, uint64_t now_us);

#endif
