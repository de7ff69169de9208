/* The configuration file in both spellings, from bytes to the checked options. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "options_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);
const char *__lsan_default_suppressions(void);

/* libconfig does not free the string it is reading when a syntax error ends it. */
const char *__lsan_default_suppressions(void) {
    return "leak:libconfig\n";
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    struct option_report report = {0};
    struct option_state state;
    struct options *options;
    char *text = malloc(n_bytes + 1);
    if (text == NULL || options_create(&options) < 0) {
        free(text);
        return 0;
    }
    memcpy(text, bytes, n_bytes);
    text[n_bytes] = '\0';
    options_state_of(&state, options, &report);
    int err = option_state_init(&state);
    err = err < 0 ? err : options_read_text(&state, "input", text, n_bytes);
    assert(err == 0 || report.n_errors > 0 || report.out_of_memory);
    if (err == 0 && options->cert == NULL && options->pkey == NULL) { /* no file of this machine is opened */
        (void)options_check(options, &report);
    }
    option_report_deinit(&report);
    options_destroy(options);
    free(text);
    return 0;
}
