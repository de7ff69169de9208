/* Says what of the configuration has no effect, so that nothing is ignored without a word. */
#include "options_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LISTED_BYTES = 512 };

static const struct option_origin *origin_of(const struct options *o, size_t i) {
    return &o->origins[i];
}

/* Whether the value asks for more than what happens without it. */
static bool is_asked(const struct options *o, const struct option_spec *spec) {
    const void *field = (const char *)o + spec->offset;
    switch (spec->kind) {
    case OPTION_BOOL:
        return *(const bool *)field;
    case OPTION_PORT:
        return *(const uint32_t *)field != 0;
    case OPTION_U32:
        return *(const uint32_t *)field != (uint32_t)strtoul(spec->default_text, NULL, 10);
    case OPTION_STRING:
    case OPTION_FILE:
    case OPTION_ADDRESS:
    case OPTION_CHOICE:
    case OPTION_LIST:
    case OPTION_ADDRESS_LIST:
        return true;
    }
    return true;
}

/* no-tls says that the owner knows; leftovers of a TLS configuration are then no news. */
static bool is_excused(const struct options *o, const struct option_spec *spec) {
    bool about_tls = spec->note == options_table.specs[OPTIONS_ID_no_tls].note ||
                     strcmp(spec->note, options_table.specs[OPTIONS_ID_no_tls].note) == 0;
    return about_tls && o->no_tls && !o->dtls;
}

/* True for what was given, is known, and has no effect. */
static bool is_without_effect(const struct options *o, size_t i) {
    const struct option_spec *spec = &options_table.specs[i];
    if (origin_of(o, i)->source == OPTION_FROM_DEFAULT || spec->note == NULL) {
        return false;
    }
    if (spec->status == OPTION_QUIET) { /* "no-tcp=false" asks for TCP */
        return !is_asked(o, spec);
    }
    if (i == OPTIONS_ID_userdb && access(o->userdb, F_OK) != 0) {
        return false;
    }
    return spec->status == OPTION_LATER && is_asked(o, spec) && !is_excused(o, spec);
}

static bool has_note(size_t i, const char *note) {
    const char *own = options_table.specs[i].note;
    return own != NULL && strcmp(own, note) == 0;
}

static bool is_first_of_note(const struct options *o, size_t i) {
    for (size_t before = 0; before < i; before++) {
        if (has_note(before, options_table.specs[i].note) && is_without_effect(o, before)) {
            return false;
        }
    }
    return true;
}

struct effectless {
    char names[LISTED_BYTES];
    char lines[LISTED_BYTES];
    size_t n_in_file, n_on_command_line;
    const struct option_origin *first;
};

/* Both texts have room for every name of the table; what would not fit is cut. */
static void append(char *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(char *buffer, const char *format, ...) {
    size_t n = strlen(buffer);
    va_list args;
    va_start(args, format);
    vsnprintf(buffer + n, LISTED_BYTES - n, format, args);
    va_end(args);
}

static void collect(struct effectless *e, const struct options *o, size_t i) {
    const struct option_origin *where = origin_of(o, i);
    append(e->names, "%s%s", e->names[0] == '\0' ? "" : ", ", options_table.specs[i].name);
    if (where->source == OPTION_FROM_FILE) {
        append(e->lines, "%s%u", e->n_in_file == 0 ? "" : ", ", where->line);
        e->n_in_file++;
        e->first = where;
    } else {
        e->n_on_command_line++;
    }
}

/* One warning for all options that share a reason. */
static void warn_of(const struct options *o, const char *note, struct option_report *report) {
    struct effectless e = {0};
    for (size_t i = 0; i < options_table.n_specs; i++) {
        if (has_note(i, note) && is_without_effect(o, i)) {
            collect(&e, o, i);
        }
    }
    if (e.n_in_file == 0) {
        static const struct option_origin command_line = {.source = OPTION_FROM_COMMAND_LINE};
        option_report_add(report, OPTION_WARNING, &command_line, "%s; without effect: %s", note, e.names);
    } else {
        option_report_add(report, OPTION_WARNING, NULL, "file %s line%s %s%s: %s; without effect: %s",
                          e.first->file, e.n_in_file > 1 ? "s" : "", e.lines,
                          e.n_on_command_line > 0 ? " and command line" : "", note, e.names);
    }
}

int options_check_served(const struct options *o, struct option_report *report) {
    for (size_t i = 0; i < options_table.n_specs; i++) {
        const struct option_spec *spec = &options_table.specs[i];
        if (origin_of(o, i)->source == OPTION_FROM_DEFAULT) {
            continue;
        }
        if (spec->status == OPTION_REFUSED && is_asked(o, spec)) {
            option_report_add(report, OPTION_ERROR, origin_of(o, i), "%s: %s", spec->name, spec->note);
        } else if (spec->status == OPTION_ACCEPTED && is_asked(o, spec)) {
            option_report_add(report, OPTION_NOTE, origin_of(o, i), "%s has no effect: %s", spec->name,
                              spec->note);
        } else if (is_without_effect(o, i) && is_first_of_note(o, i)) {
            warn_of(o, spec->note, report);
        }
    }
    if (options_is_set(o, OPTIONS_ID_userdb) && access(o->userdb, F_OK) != 0) {
        option_report_add(report, OPTION_NOTE, NULL, "userdb: %s does not exist, so nothing is missed; %s",
                          o->userdb, options_table.specs[OPTIONS_ID_userdb].note);
    }
    return report->n_errors > 0 ? -EINVAL : 0;
}
