/* The option engine: fills a struct from a table of option descriptions, out of the command line and whatever
 * file reader the program has, and remembers where every value came from. It knows no option by name. For one
 * thread, at start or in a reload; the filled struct is plain data afterwards. */
#ifndef TURN_OPTION_TABLE_H
#define TURN_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_kind {
    OPTION_BOOL,
    OPTION_U32,
    OPTION_PORT,
    OPTION_STRING,
    OPTION_FILE,
    OPTION_ADDRESS,     /* an IP address without a port, kept as canonical text */
    OPTION_CHOICE,      /* one of the words in `unit`, which are separated by '|' */
    OPTION_LIST,        /* strings; every occurrence adds one */
    OPTION_ADDRESS_LIST /* IP addresses without a port; one given twice counts once */
};

enum option_source { OPTION_FROM_DEFAULT, OPTION_FROM_FILE, OPTION_FROM_COMMAND_LINE };

/* Where a value came from. */
struct option_origin {
    enum option_source source;
    uint32_t line;    /* OPTION_FROM_FILE only, from 1 */
    const char *file; /* OPTION_FROM_FILE only; must outlive the values */
};

struct option_list {
    char **items;
    struct option_origin *origins; /* one for each item */
    size_t n_items;
};

/* The C type of a field of each kind. */
#define OPTION_BOOL_T bool
#define OPTION_U32_T uint32_t
#define OPTION_PORT_T uint32_t
#define OPTION_STRING_T char *
#define OPTION_FILE_T char *
#define OPTION_ADDRESS_T char *
#define OPTION_CHOICE_T char *
#define OPTION_LIST_T struct option_list
#define OPTION_ADDRESS_LIST_T struct option_list

enum option_flag {
    OPTION_SECRET = 1,         /* the value is never shown */
    OPTION_VALUE_OPTIONAL = 2, /* the bare key means the default */
    OPTION_LINUX = 4,          /* only the Linux build has a use for it */
    OPTION_HIDDEN = 8,         /* left out of help and documentation */
    OPTION_ARGUMENT = 16,      /* has no meaning in a file */
    OPTION_NAMED_SECRET = 32   /* NAME:SECRET, of which the name may be shown */
};

enum option_reload { OPTION_START, OPTION_RELOAD };

enum option_status {
    OPTION_HONOURED,
    OPTION_QUIET,    /* asks for what is done anyway; nothing is said */
    OPTION_ACCEPTED, /* has nothing to act on; one line says so */
    OPTION_LATER,    /* known, without effect in this version; one warning says so */
    OPTION_REFUSED   /* stops the start */
};

struct option_spec {
    const char *name; /* without dashes in front */
    char letter;      /* 0: none */
    enum option_kind kind;
    size_t offset;            /* of the field in the struct of values */
    const char *default_text; /* as a file would spell it; NULL: unset */
    uint32_t min, max;        /* inclusive; numbers only */
    const char *unit;
    enum option_reload reload;
    unsigned flags;
    enum option_status status;
    unsigned group;   /* index into option_table.groups */
    const char *note; /* the reason, for every status but HONOURED */
    const char *help;
};

struct option_alias {
    const char *name;
    const char *target;
};

enum option_severity { OPTION_NOTE, OPTION_WARNING, OPTION_ERROR };

/* A key that earlier programs knew. */
struct option_removed {
    const char *name;
    bool takes_value;
    enum option_severity severity; /* of the message; OPTION_ERROR refuses the key */
    const char *note;              /* what happens instead */
};

struct option_table {
    const struct option_spec *specs;
    size_t n_specs;
    const struct option_alias *aliases;
    size_t n_aliases;
    const struct option_removed *removed;
    size_t n_removed;
    const char *const *groups; /* headings */
    size_t n_groups;
};

struct option_message {
    enum option_severity severity;
    char *text;
};

/* What is to be said about the options, collected. A zeroed struct is ready. */
struct option_report {
    struct option_message *messages;
    size_t n_messages;
    size_t n_errors;
    bool out_of_memory; /* a message got lost */
    FILE *out;          /* for help and dumps; NULL: stdout */
    FILE *err;          /* for errors that end the program; NULL: stderr */
};

void option_report_deinit(struct option_report *report);
/* Adds "file F line N: text", "command line: text" or, with where NULL or a default, the text alone. */
void option_report_add(struct option_report *report, enum option_severity severity,
                       const struct option_origin *where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Prints "ERROR: text" and so on, a line each. */
void option_report_print(const struct option_report *report, FILE *to);
/* "file F line N", "command line" or "default". Returns buffer. */
const char *option_origin_format(const struct option_origin *where, char *buffer, size_t n_buffer);

/* A struct of values while it is being filled. */
struct option_state {
    const struct option_table *table;
    void *values;
    struct option_origin *origins; /* one for each spec */
    struct option_report *report;
};

/* Sets every default. `values` must be zeroed; on failure too it may be given to option_values_deinit.
 * 0 or -ENOMEM. */
int option_state_init(struct option_state *state);
/* Frees what the fields own and clears it. */
void option_values_deinit(const struct option_table *table, void *values);

/* NULL when unknown. Aliases give their target. */
const struct option_spec *option_find(const struct option_table *table, const char *name);
const struct option_spec *option_find_letter(const struct option_table *table, char letter);
const struct option_removed *option_find_removed(const struct option_table *table, const char *name);
/* The known name nearest to a mistyped one, or NULL when none is near. */
const char *option_suggest(const struct option_table *table, const char *name);

/* Sets one option from text; text NULL is the bare key. Scalars: a later one of the same source wins with a
 * warning, and the command line wins over a file. Lists add up. 0, -EINVAL (reported) or -ENOMEM. */
int option_set(struct option_state *state, const struct option_spec *spec, const char *text,
               const struct option_origin *where);
/* The same by name; unknown and removed names are reported here. */
int option_set_named(struct option_state *state, const char *name, const char *text,
                     const struct option_origin *where);
/* Reads a command line; every mistake is reported before -EINVAL is returned. */
int option_parse_arguments(struct option_state *state, int argc, char *const *argv);

const struct option_origin *option_origin_of(const struct option_state *state,
                                             const struct option_spec *spec);

/* Field access, by the kind of the spec. */
bool *option_bool(const struct option_spec *spec, void *values);
uint32_t *option_u32(const struct option_spec *spec, void *values);
char **option_string(const struct option_spec *spec, void *values);
struct option_list *option_list(const struct option_spec *spec, void *values);

bool option_is_list(const struct option_spec *spec);
bool option_is_number(const struct option_spec *spec);
/* The value as a file would spell it (item i of a list); secrets are masked. "" when unset. Returns buffer.
 */
const char *option_format_value(const struct option_spec *spec, const void *values, size_t i, char *buffer,
                                size_t n_buffer);

/* true/yes/on/1 and false/no/off/0 in any case. False when it is neither. */
bool option_parse_bool(bool *out, const char *text);
/* Decimal digits only, within min..max. */
bool option_parse_u32(uint32_t *out, const char *text, uint32_t min, uint32_t max);

#endif
