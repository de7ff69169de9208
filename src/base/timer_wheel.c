#include "timer_wheel.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

enum { SLOT_BITS = 6, SLOT_MASK = TIMER_WHEEL_SLOTS - 1 };
static_assert(1 << SLOT_BITS == TIMER_WHEEL_SLOTS, "slots are bits of one word");

/* The farthest a timer can be placed; one still farther waits here and is placed again. */
static const uint64_t max_ticks_ahead = (UINT64_C(1) << (SLOT_BITS * TIMER_WHEEL_LEVELS)) - 1;

void timer_wheel_init(struct timer_wheel *wheel, uint64_t now_us, void *context) {
    memset(wheel, 0, sizeof *wheel);
    wheel->now_tick = now_us / TIMER_WHEEL_TICK_US;
    wheel->context = context;
    wheel->due_end = &wheel->due;
}

/* Inserts the timer where *link points, before what is there. */
static void link_at(struct wheel_timer **link, struct wheel_timer *timer) {
    timer->next = *link;
    timer->link = link;
    if (timer->next != NULL) {
        timer->next->link = &timer->next;
    }
    *link = timer;
}

static void unlink_timer(struct timer_wheel *wheel, struct wheel_timer *timer) {
    *timer->link = timer->next;
    if (timer->next != NULL) {
        timer->next->link = timer->link;
    } else if (wheel->due_end == &timer->next) {
        wheel->due_end = timer->link;
    }
    timer->next = NULL;
    timer->link = NULL;
}

static void place(struct timer_wheel *wheel, struct wheel_timer *timer) {
    if (timer->expires_tick <= wheel->now_tick) {
        link_at(wheel->due_end, timer);
        wheel->due_end = &timer->next;
        return;
    }
    uint64_t ahead = timer->expires_tick - wheel->now_tick;
    if (ahead > max_ticks_ahead) {
        ahead = max_ticks_ahead;
    }
    unsigned level = (63u - (unsigned)__builtin_clzll(ahead)) / SLOT_BITS;
    unsigned slot = (unsigned)((wheel->now_tick + ahead) >> (SLOT_BITS * level)) & SLOT_MASK;
    link_at(&wheel->slots[level][slot], timer);
    wheel->used[level] |= UINT64_C(1) << slot;
}

void timer_wheel_set(struct timer_wheel *wheel, struct wheel_timer *timer, uint64_t at_us) {
    assert(timer->expired != NULL);
    if (wheel_timer_is_armed(timer)) {
        unlink_timer(wheel, timer);
    } else {
        wheel->n_armed++;
    }
    /* Rounded up: never early. */
    timer->expires_tick = at_us / TIMER_WHEEL_TICK_US + (at_us % TIMER_WHEEL_TICK_US != 0);
    place(wheel, timer);
}

void timer_wheel_cancel(struct timer_wheel *wheel, struct wheel_timer *timer) {
    if (wheel_timer_is_armed(timer)) {
        unlink_timer(wheel, timer);
        wheel->n_armed--;
    }
}

/* The first tick after now at which a slot in use comes up; UINT64_MAX when none is in use. Slots of level
 * n come up every 64^n ticks. */
static uint64_t next_busy_tick(const struct timer_wheel *wheel) {
    uint64_t next = UINT64_MAX;
    for (unsigned level = 0; level < TIMER_WHEEL_LEVELS; level++) {
        uint64_t used = wheel->used[level];
        if (used == 0) {
            continue;
        }
        uint64_t position = wheel->now_tick >> (SLOT_BITS * level);
        unsigned first = (unsigned)(position + 1) & SLOT_MASK;
        uint64_t from_first = first == 0 ? used : used >> first | used << (TIMER_WHEEL_SLOTS - first);
        uint64_t steps = 1 + (uint64_t)__builtin_ctzll(from_first);
        uint64_t tick = (position + steps) << (SLOT_BITS * level);
        next = tick < next ? tick : next;
    }
    return next;
}

/* Places the timers of a slot that has come up anew: nearer, or among the due ones. */
static void empty_slot(struct timer_wheel *wheel, unsigned level, unsigned slot) {
    struct wheel_timer *timer = wheel->slots[level][slot];
    wheel->slots[level][slot] = NULL;
    wheel->used[level] &= ~(UINT64_C(1) << slot);
    while (timer != NULL) {
        struct wheel_timer *next = timer->next;
        place(wheel, timer);
        timer = next;
    }
}

static void enter_tick(struct timer_wheel *wheel, uint64_t tick) {
    wheel->now_tick = tick;
    for (unsigned level = 0; level < TIMER_WHEEL_LEVELS; level++) {
        uint64_t position = tick >> (SLOT_BITS * level);
        if (position << (SLOT_BITS * level) != tick) {
            break; /* between two slots of this level and of all above */
        }
        empty_slot(wheel, level, (unsigned)position & SLOT_MASK);
    }
}

/* Moves all that expires up to the target tick to the due list. Runs no callback, so the wheel is whole
 * again before the first one is called. */
static void pass_time(struct timer_wheel *wheel, uint64_t target_tick) {
    if (wheel->n_armed == 0) {
        memset(wheel->used, 0, sizeof wheel->used);
    }
    for (uint64_t tick = next_busy_tick(wheel); tick <= target_tick; tick = next_busy_tick(wheel)) {
        enter_tick(wheel, tick);
    }
    wheel->now_tick = target_tick;
}

uint64_t timer_wheel_advance(struct timer_wheel *wheel, uint64_t now_us) {
    uint64_t target_tick = now_us / TIMER_WHEEL_TICK_US;
    if (target_tick < wheel->now_tick) {
        return 0;
    }
    pass_time(wheel, target_tick);
    struct wheel_timer *firing = wheel->due;
    if (firing == NULL) {
        return 0;
    }
    firing->link = &firing;
    wheel->due = NULL;
    wheel->due_end = &wheel->due;
    uint64_t n_fired = 0;
    while (firing != NULL) {
        struct wheel_timer *timer = firing;
        unlink_timer(wheel, timer);
        wheel->n_armed--;
        n_fired++;
        timer->expired(timer, wheel->context); /* the timer may be gone after this */
    }
    return n_fired;
}
