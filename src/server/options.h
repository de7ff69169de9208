/* The options of turnserver as one struct of plain values, read at start from the command line and a
 * configuration file in either of two spellings. Read-only afterwards, so any thread may look. */
#ifndef TURN_OPTIONS_H
#define TURN_OPTIONS_H

#include "option_table.h"

enum options_id {
#define OPT(field, ...) OPTIONS_ID_##field,
#include "options.def"
    OPTIONS_COUNT
};

struct options {
#define OPT(field, name, letter, kind, ...) OPTION_##kind##_T field;
#include "options.def"
    struct option_origin origins[OPTIONS_COUNT]; /* by OPTIONS_ID_<field> */
    char *file;                                  /* the configuration file that was read, or NULL */
};

enum { OPTIONS_EXIT_OK = 1 };

/* Reads everything. 0: *out is the caller's, and `report` may hold notes and warnings for the log
 * (options_report_log). OPTIONS_EXIT_OK: what was asked for (help, version, check) is printed, and the
 * program ends with success. -EINVAL or -ENOMEM: all that is wrong has been printed. `report` is the caller's
 * in every case. */
int options_load(struct options **out, int argc, char *const *argv, struct option_report *report);
void options_destroy(struct options *options);

/* Writes notes and warnings to the log, and forgets them. */
void options_report_log(struct option_report *report);

/* True when the value was given, in whatever place. */
static inline bool options_is_set(const struct options *options, enum options_id id) {
    return options->origins[id].source != OPTION_FROM_DEFAULT;
}

/* Whether the shared ports of n_threads relay threads fit below 65536; to be asked again once the number of
 * threads is known. Reports and returns -EINVAL when not. */
int options_check_shared_ports(const struct options *options, uint32_t n_threads,
                               struct option_report *report);

/* "IP", "IP-IP" or "IP/BITS", both ends of one family and in order. */
bool options_is_peer_range(const char *text);

#endif
