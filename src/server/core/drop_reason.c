#include "drop_reason.h"

#include <assert.h>

const char *drop_reason_name(enum drop_reason reason) {
    static const char *const names[] = {
#define X(name, text) text,
        DROP_REASONS(X)
#undef X
    };
    assert((unsigned)reason < DROP_REASON_COUNT);
    return names[reason];
}
