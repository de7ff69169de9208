#include "timer_wheel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t tick = TIMER_WHEEL_TICK_US;

/* A timer that notes when it fired. */
struct probe {
    struct wheel_timer timer;
    unsigned n_fired;
    uint64_t order; /* of all firings of its bench, from 1 */
};

struct bench {
    struct timer_wheel wheel;
    uint64_t n_fired;
};

static void probe_fired(struct wheel_timer *timer, void *context) {
    struct probe *probe = (struct probe *)timer;
    struct bench *bench = context;
    probe->n_fired++;
    probe->order = ++bench->n_fired;
}

static void bench_init(struct bench *bench, uint64_t now_us) {
    bench->n_fired = 0;
    timer_wheel_init(&bench->wheel, now_us, bench);
}

static void set(struct bench *bench, struct probe *probe, uint64_t at_us) {
    probe->timer.expired = probe_fired;
    timer_wheel_set(&bench->wheel, &probe->timer, at_us);
}

static uint64_t next_random(uint64_t *seed) {
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *seed;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void fires_once_never_early_at_most_a_tick_late(void **state) {
    (void)state;
    static const uint64_t starts[] = {0, 1, 99999, 100000, 12345678901};
    static const uint64_t delays[] = {1, 99999, 100000, 100001, 6399999, 6400000, 6400001, 600000000};
    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++) {
        for (size_t d = 0; d < sizeof delays / sizeof delays[0]; d++) {
            struct bench bench;
            struct probe probe = {0};
            uint64_t at_us = starts[s] + delays[d];
            bench_init(&bench, starts[s]);
            set(&bench, &probe, at_us);
            assert_int_equal(timer_wheel_advance(&bench.wheel, at_us - 1), 0);
            assert_true(wheel_timer_is_armed(&probe.timer));
            assert_int_equal(timer_wheel_advance(&bench.wheel, at_us + tick - 1), 1);
            assert_false(wheel_timer_is_armed(&probe.timer));
            assert_int_equal(timer_wheel_advance(&bench.wheel, at_us + 1000 * tick), 0);
            assert_int_equal(probe.n_fired, 1);
            assert_int_equal(bench.wheel.n_armed, 0);
        }
    }
}

static void on_a_tick_it_fires_at_that_very_time(void **state) {
    (void)state;
    struct bench bench;
    struct probe probe = {0};
    bench_init(&bench, 0);
    set(&bench, &probe, 5 * tick);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 5 * tick - 1), 0);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 5 * tick), 1);
}

/* Each level's first and last distance, one by one, from starts that sit differently in the slots. */
static void every_distance_around_the_levels_bounds(void **state) {
    (void)state;
    static const uint64_t start_ticks[] = {0, 1, 63, 64, 4095, 262143, 262144, 16777215, (1u << 30) - 1};
    for (size_t s = 0; s < sizeof start_ticks / sizeof start_ticks[0]; s++) {
        for (unsigned bits = 0; bits <= 36; bits += 6) {
            for (int off = -2; off <= 2; off++) {
                uint64_t ticks = (UINT64_C(1) << bits) + (uint64_t)(int64_t)off;
                if ((int64_t)ticks < 1) {
                    continue;
                }
                struct bench bench;
                struct probe probe = {0};
                uint64_t at_us = (start_ticks[s] + ticks) * tick;
                bench_init(&bench, start_ticks[s] * tick);
                set(&bench, &probe, at_us);
                assert_int_equal(timer_wheel_advance(&bench.wheel, at_us - 1), 0);
                assert_int_equal(timer_wheel_advance(&bench.wheel, at_us), 1);
            }
        }
    }
}

static void a_time_in_the_past_fires_at_the_next_advance(void **state) {
    (void)state;
    struct bench bench;
    struct probe past = {0}, present = {0};
    bench_init(&bench, 50 * tick);
    set(&bench, &past, 3 * tick);
    set(&bench, &present, 50 * tick);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 50 * tick), 2); /* the clock has not moved */
    set(&bench, &past, 0);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 50 * tick + 1), 1);
    assert_int_equal(past.n_fired, 2);
    assert_int_equal(present.n_fired, 1);
}

static void moving_and_cancelling(void **state) {
    (void)state;
    struct bench bench;
    struct probe a = {0}, b = {0};
    bench_init(&bench, 0);
    timer_wheel_cancel(&bench.wheel, &a.timer); /* idle */
    set(&bench, &a, 10 * tick);
    set(&bench, &b, 10 * tick);
    set(&bench, &a, 5 * tick);
    assert_int_equal(bench.wheel.n_armed, 2);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 7 * tick), 1);
    assert_int_equal(a.n_fired, 1);
    set(&bench, &a, 9 * tick);
    set(&bench, &a, 100 * tick);
    timer_wheel_cancel(&bench.wheel, &b.timer);
    timer_wheel_cancel(&bench.wheel, &b.timer);
    assert_false(wheel_timer_is_armed(&b.timer));
    assert_int_equal(bench.wheel.n_armed, 1);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 99 * tick), 0);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 100 * tick), 1);
    assert_int_equal(b.n_fired, 0);
}

static void cancelling_among_the_due(void **state) {
    (void)state;
    struct bench bench;
    struct probe p[4];
    for (unsigned cancelled = 0; cancelled < 4; cancelled++) {
        memset(p, 0, sizeof p);
        bench_init(&bench, 10 * tick);
        for (unsigned i = 0; i < 3; i++) {
            set(&bench, &p[i], 0);
        }
        timer_wheel_cancel(&bench.wheel, &p[cancelled].timer); /* first, middle, last, none */
        set(&bench, &p[3], 0);
        assert_int_equal(timer_wheel_advance(&bench.wheel, 10 * tick), cancelled < 3 ? 3 : 4);
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(p[i].n_fired, i == cancelled && i < 3 ? 0 : 1);
        }
        assert_int_equal(p[3].order, bench.n_fired);
    }
}

static void a_clock_that_went_backwards_fires_nothing(void **state) {
    (void)state;
    struct bench bench;
    struct probe probe = {0}, past = {0};
    bench_init(&bench, 1000 * tick);
    set(&bench, &probe, 1001 * tick);
    set(&bench, &past, 1);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 500 * tick), 0);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 0), 0);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 1000 * tick), 1);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 1001 * tick), 1);
}

static void one_advance_fires_in_the_order_of_ticks(void **state) {
    (void)state;
    enum { PROBES = 300 };
    static struct probe probes[PROBES];
    struct bench bench;
    uint64_t seed = 11;
    memset(probes, 0, sizeof probes);
    bench_init(&bench, 7 * tick);
    for (unsigned i = 0; i < PROBES; i++) {
        set(&bench, &probes[i], next_random(&seed) % (1u << (6 + i % 24)) * tick);
    }
    assert_int_equal(timer_wheel_advance(&bench.wheel, (UINT64_C(1) << 31) * tick), PROBES);
    for (unsigned i = 0; i < PROBES; i++) {
        for (unsigned k = 0; k < PROBES; k++) {
            uint64_t tick_i = probes[i].timer.expires_tick, tick_k = probes[k].timer.expires_tick;
            if (tick_i < tick_k && tick_k > 7) { /* what was set in the past is due at once, unordered */
                assert_true(probes[i].order < probes[k].order);
            }
        }
    }
}

/* A gap of 30,000 years would take days at one step per tick. */
static void long_gaps_cost_nothing(void **state) {
    (void)state;
    const uint64_t years = UINT64_C(31536000000000);
    struct bench bench;
    struct probe far = {0}, farthest = {0};
    bench_init(&bench, 1);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 30000 * years), 0);
    set(&bench, &far, 30100 * years);
    set(&bench, &farthest, UINT64_MAX);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 30100 * years - tick), 0);
    assert_int_equal(timer_wheel_advance(&bench.wheel, 30100 * years + tick), 1);
    assert_int_equal(far.n_fired, 1);
    assert_int_equal(timer_wheel_advance(&bench.wheel, UINT64_MAX), 0); /* rounded up, past the last tick */
    assert_true(wheel_timer_is_armed(&farthest.timer));
    timer_wheel_cancel(&bench.wheel, &farthest.timer);
    assert_int_equal(bench.wheel.n_armed, 0);
}

/* ---- callbacks that change the wheel ---- */

struct actor {
    struct wheel_timer timer;
    struct actor *victim; /* what it acts on */
    uint64_t at_us;       /* for setting */
    enum { DO_NOTHING, DO_CANCEL, DO_SET, DO_FREE_SELF, DO_CANCEL_AND_FREE } action;
    unsigned n_fired;
};

static void actor_fired(struct wheel_timer *timer, void *context) {
    struct actor *actor = (struct actor *)timer;
    struct timer_wheel *wheel = context;
    actor->n_fired++;
    switch (actor->action) {
    case DO_NOTHING:
        break;
    case DO_CANCEL:
        timer_wheel_cancel(wheel, &actor->victim->timer);
        break;
    case DO_SET:
        timer_wheel_set(wheel, &actor->victim->timer, actor->at_us);
        break;
    case DO_FREE_SELF:
        free(actor);
        break;
    case DO_CANCEL_AND_FREE:
        timer_wheel_cancel(wheel, &actor->victim->timer);
        free(actor->victim);
        actor->victim = NULL;
        break;
    }
}

static void arm(struct timer_wheel *wheel, struct actor *actor, uint64_t at_us) {
    actor->timer.expired = actor_fired;
    timer_wheel_set(wheel, &actor->timer, at_us);
}

/* The two fire in the same advance and each wants to stop the other: whoever comes first wins. */
static void a_callback_cancels_one_due_in_the_same_slot(void **state) {
    (void)state;
    struct timer_wheel wheel;
    struct actor a = {.action = DO_CANCEL}, b = {.action = DO_CANCEL};
    a.victim = &b;
    b.victim = &a;
    timer_wheel_init(&wheel, 0, &wheel);
    arm(&wheel, &a, 3 * tick);
    arm(&wheel, &b, 3 * tick);
    assert_int_equal(timer_wheel_advance(&wheel, 3 * tick), 1);
    assert_int_equal(a.n_fired + b.n_fired, 1);
    assert_int_equal(wheel.n_armed, 0);
    assert_int_equal(timer_wheel_advance(&wheel, 100 * tick), 0);
}

static void a_callback_moves_one_due_in_the_same_advance(void **state) {
    (void)state;
    struct timer_wheel wheel;
    struct actor first = {.action = DO_SET, .at_us = 50 * tick}, second = {0};
    first.victim = &second;
    timer_wheel_init(&wheel, 0, &wheel);
    arm(&wheel, &first, 3 * tick);
    arm(&wheel, &second, 4 * tick);
    assert_int_equal(timer_wheel_advance(&wheel, 10 * tick), 1);
    assert_int_equal(second.n_fired, 0);
    assert_int_equal(timer_wheel_advance(&wheel, 49 * tick), 0);
    assert_int_equal(timer_wheel_advance(&wheel, 50 * tick), 1);
    assert_int_equal(second.n_fired, 1);
}

static void a_callback_sets_its_own_timer(void **state) {
    (void)state;
    struct timer_wheel wheel;
    struct actor again = {.action = DO_SET, .at_us = 1};
    again.victim = &again;
    timer_wheel_init(&wheel, 0, &wheel);
    arm(&wheel, &again, tick);
    for (unsigned i = 1; i <= 5; i++) {
        /* Set in the past, it waits for the next advance: no endless loop. */
        assert_int_equal(timer_wheel_advance(&wheel, 10 * tick), 1);
        assert_int_equal(again.n_fired, i);
        assert_true(wheel_timer_is_armed(&again.timer));
        assert_int_equal(wheel.n_armed, 1);
    }
    again.at_us = 20 * tick;
    assert_int_equal(timer_wheel_advance(&wheel, 15 * tick), 1);
    assert_int_equal(timer_wheel_advance(&wheel, 20 * tick - 1), 0);
    again.action = DO_NOTHING;
    assert_int_equal(timer_wheel_advance(&wheel, 20 * tick), 1);
    assert_int_equal(wheel.n_armed, 0);
}

static void a_callback_frees_its_own_object_and_others(void **state) {
    (void)state;
    struct timer_wheel wheel;
    timer_wheel_init(&wheel, 0, &wheel);
    struct actor *self = calloc(1, sizeof *self);
    struct actor *victim = calloc(1, sizeof *victim);
    struct actor killer = {.action = DO_CANCEL_AND_FREE, .victim = victim};
    struct actor last = {0};
    self->action = DO_FREE_SELF;
    arm(&wheel, self, tick);
    arm(&wheel, &killer, 2 * tick);
    arm(&wheel, victim, 3 * tick);
    arm(&wheel, &last, 4 * tick);
    assert_int_equal(timer_wheel_advance(&wheel, 5 * tick), 3);
    assert_int_equal(last.n_fired, 1);
    assert_int_equal(wheel.n_armed, 0);
}

/* ---- against a model ---- */

enum { MODEL_TIMERS = 200 };

struct model {
    struct timer_wheel wheel;
    uint64_t seed;
    uint64_t now_us;
    bool advancing;
    struct modelled {
        struct wheel_timer timer;
        bool armed;
        uint64_t due_tick;
        uint64_t not_before_advance; /* set during this advance: fires in a later one */
    } timers[MODEL_TIMERS];
    uint64_t n_advances;
    uint64_t n_fired;
};

static uint64_t random_delay_us(struct model *m) {
    unsigned bits = (unsigned)(next_random(&m->seed) % 40); /* up to 34 years */
    return next_random(&m->seed) % ((UINT64_C(1) << bits) + 1) * 1000;
}

static void model_set(struct model *m, struct modelled *t) {
    uint64_t delay_us = random_delay_us(m);
    bool in_past = next_random(&m->seed) % 8 == 0;
    uint64_t at_us = in_past ? (delay_us < m->now_us ? m->now_us - delay_us : 0) : m->now_us + delay_us;
    timer_wheel_set(&m->wheel, &t->timer, at_us);
    t->armed = true;
    t->due_tick = (at_us + tick - 1) / tick;
    t->not_before_advance = m->n_advances + 1;
}

static void model_cancel(struct model *m, struct modelled *t) {
    timer_wheel_cancel(&m->wheel, &t->timer);
    t->armed = false;
}

static void model_fired(struct wheel_timer *timer, void *context) {
    struct model *m = context;
    struct modelled *t = (struct modelled *)timer;
    assert_true(m->advancing);
    assert_true(t->armed);
    assert_true(t->due_tick <= m->now_us / tick);
    assert_true(t->not_before_advance <= m->n_advances);
    assert_false(wheel_timer_is_armed(timer));
    t->armed = false;
    m->n_fired++;
    struct modelled *other = &m->timers[next_random(&m->seed) % MODEL_TIMERS];
    switch (next_random(&m->seed) % 6) {
    case 0:
        model_set(m, t);
        break;
    case 1:
        model_set(m, other);
        break;
    case 2:
        model_cancel(m, other);
        break;
    default:
        break;
    }
}

static void model_advance(struct model *m) {
    uint64_t n_before = m->n_fired;
    m->now_us += random_delay_us(m) / (1u << next_random(&m->seed) % 16);
    m->n_advances++;
    m->advancing = true;
    uint64_t n_reported = timer_wheel_advance(&m->wheel, m->now_us);
    assert_int_equal(n_reported, m->n_fired - n_before);
    assert_true(m->n_fired - n_before <= 10 * MODEL_TIMERS);
    m->advancing = false;
}

static void model_check(const struct model *m) {
    uint64_t n_armed = 0;
    for (unsigned i = 0; i < MODEL_TIMERS; i++) {
        const struct modelled *t = &m->timers[i];
        assert_int_equal(wheel_timer_is_armed(&t->timer), t->armed);
        n_armed += t->armed;
        if (t->armed && t->not_before_advance <= m->n_advances) {
            assert_true(t->due_tick > m->now_us / tick); /* nothing due was left */
        }
    }
    assert_int_equal(m->wheel.n_armed, n_armed);
}

static void random_operations_agree_with_a_model(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        static struct model m;
        memset(&m, 0, sizeof m);
        m.seed = seed;
        m.now_us = next_random(&m.seed) >> (seed % 48 + 8);
        timer_wheel_init(&m.wheel, m.now_us, &m);
        for (unsigned i = 0; i < MODEL_TIMERS; i++) {
            m.timers[i].timer.expired = model_fired;
        }
        for (unsigned step = 0; step < 4000; step++) {
            struct modelled *t = &m.timers[next_random(&m.seed) % MODEL_TIMERS];
            uint64_t choice = next_random(&m.seed) % 10;
            if (choice < 5) {
                model_set(&m, t);
            } else if (choice < 6) {
                model_cancel(&m, t);
            } else {
                model_advance(&m);
            }
            model_check(&m);
        }
        assert_true(m.n_fired > 100);
    }
}

/* Ten minutes of lifetimes in ticks of a tenth of a second, refreshed now and then: the ordinary use. */
static void many_timers_in_small_steps(void **state) {
    (void)state;
    enum { PROBES = 20000 };
    struct probe *probes = calloc(PROBES, sizeof *probes);
    struct bench bench;
    uint64_t seed = 21;
    bench_init(&bench, 0);
    for (unsigned i = 0; i < PROBES; i++) {
        set(&bench, &probes[i], next_random(&seed) % 600000000);
    }
    uint64_t n_fired = 0;
    for (uint64_t now_us = 0; now_us <= 600000000 + tick; now_us += tick / 4) {
        n_fired += timer_wheel_advance(&bench.wheel, now_us);
        uint64_t now_tick = now_us / tick;
        for (unsigned i = (unsigned)(now_us % 977); i < PROBES; i += 977) {
            assert_int_equal(probes[i].n_fired, probes[i].timer.expires_tick <= now_tick ? 1 : 0);
        }
    }
    assert_int_equal(n_fired, PROBES);
    free(probes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fires_once_never_early_at_most_a_tick_late),
        cmocka_unit_test(on_a_tick_it_fires_at_that_very_time),
        cmocka_unit_test(every_distance_around_the_levels_bounds),
        cmocka_unit_test(a_time_in_the_past_fires_at_the_next_advance),
        cmocka_unit_test(moving_and_cancelling),
        cmocka_unit_test(cancelling_among_the_due),
        cmocka_unit_test(a_clock_that_went_backwards_fires_nothing),
        cmocka_unit_test(one_advance_fires_in_the_order_of_ticks),
        cmocka_unit_test(long_gaps_cost_nothing),
        cmocka_unit_test(a_callback_cancels_one_due_in_the_same_slot),
        cmocka_unit_test(a_callback_moves_one_due_in_the_same_advance),
        cmocka_unit_test(a_callback_sets_its_own_timer),
        cmocka_unit_test(a_callback_frees_its_own_object_and_others),
        cmocka_unit_test(random_operations_agree_with_a_model),
        cmocka_unit_test(many_timers_in_small_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
