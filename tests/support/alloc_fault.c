#include "alloc_fault.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Weak, so that a program linked without --wrap links too: it then runs on the plain functions. */
void *__real_malloc(size_t n_bytes) __attribute__((weak));
void *__real_calloc(size_t n, size_t n_bytes) __attribute__((weak));
void *__real_realloc(void *old, size_t n_bytes) __attribute__((weak));
char *__real_strdup(const char *text) __attribute__((weak));
char *__real_strndup(const char *text, size_t n_bytes) __attribute__((weak));

void *__wrap_malloc(size_t n_bytes);
void *__wrap_calloc(size_t n, size_t n_bytes);
void *__wrap_realloc(void *old, size_t n_bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n_bytes);

static struct {
    atomic_bool armed;
    _Atomic uint64_t failing;
    _Atomic uint64_t n_allocations;
} fault;

void alloc_fault_arm(uint64_t n) {
    atomic_store(&fault.armed, false);
    atomic_store(&fault.failing, n);
    atomic_store(&fault.n_allocations, 0);
    atomic_store(&fault.armed, true);
}

void alloc_fault_disarm(void) {
    atomic_store(&fault.armed, false);
}

uint64_t alloc_fault_count(void) {
    return atomic_load(&fault.n_allocations);
}

bool alloc_fault_hit(void) {
    uint64_t failing = atomic_load(&fault.failing);
    return failing != 0 && atomic_load(&fault.n_allocations) >= failing;
}

static bool fails_now(void) {
    if (!atomic_load(&fault.armed)) {
        return false;
    }
    return atomic_fetch_add(&fault.n_allocations, 1) + 1 == atomic_load(&fault.failing);
}

void *__wrap_malloc(size_t n_bytes) {
    if (fails_now()) {
        return NULL;
    }
    return __real_malloc != NULL ? __real_malloc(n_bytes) : malloc(n_bytes);
}

void *__wrap_calloc(size_t n, size_t n_bytes) {
    if (fails_now()) {
        return NULL;
    }
    return __real_calloc != NULL ? __real_calloc(n, n_bytes) : calloc(n, n_bytes);
}

void *__wrap_realloc(void *old, size_t n_bytes) {
    if (fails_now()) {
        return NULL;
    }
    return __real_realloc != NULL ? __real_realloc(old, n_bytes) : realloc(old, n_bytes);
}

char *__wrap_strdup(const char *text) {
    if (fails_now()) {
        return NULL;
    }
    return __real_strdup != NULL ? __real_strdup(text) : strdup(text);
}

char *__wrap_strndup(const char *text, size_t n_bytes) {
    if (fails_now()) {
        return NULL;
    }
    return __real_strndup != NULL ? __real_strndup(text, n_bytes) : strndup(text, n_bytes);
}
