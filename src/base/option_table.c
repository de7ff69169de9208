#include "option_table.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "endpoint.h"

enum { MESSAGE_MAX_BYTES = 1024, NAME_MAX_BYTES = 64, SHOWN_VALUE_BYTES = 80 };

/* ---------------------------------------------------------------- report */

void option_report_deinit(struct option_report *report) {
    for (size_t i = 0; i < report->n_messages; i++) {
        free(report->messages[i].text);
    }
    free(report->messages);
    report->messages = NULL;
    report->n_messages = report->n_errors = 0;
    report->out_of_memory = false;
}

const char *option_origin_format(const struct option_origin *where, char *buffer, size_t n_buffer) {
    switch (where->source) {
    case OPTION_FROM_DEFAULT:
        snprintf(buffer, n_buffer, "default");
        break;
    case OPTION_FROM_FILE:
        snprintf(buffer, n_buffer, "file %s line %u", where->file, where->line);
        break;
    case OPTION_FROM_COMMAND_LINE:
        snprintf(buffer, n_buffer, "command line");
        break;
    }
    return buffer;
}

static int report_append(struct option_report *report, enum option_severity severity, const char *text) {
    char *copy = strdup(text);
    if (copy == NULL) {
        return -ENOMEM;
    }
    struct option_message *grown =
        realloc(report->messages, (report->n_messages + 1) * sizeof *report->messages);
    if (grown == NULL) {
        free(copy);
        return -ENOMEM;
    }
    report->messages = grown;
    grown[report->n_messages++] = (struct option_message){.severity = severity, .text = copy};
    return 0;
}

void option_report_add(struct option_report *report, enum option_severity severity,
                       const struct option_origin *where, const char *format, ...) {
    char line[MESSAGE_MAX_BYTES] = "";
    size_t n = 0;
    if (where != NULL && where->source != OPTION_FROM_DEFAULT) {
        option_origin_format(where, line, sizeof line - 2);
        n = strlen(line);
        memcpy(line + n, ": ", 3);
        n += 2;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(line + n, sizeof line - n, format, args);
    va_end(args);
    if (severity == OPTION_ERROR) {
        report->n_errors++;
    }
    if (report_append(report, severity, line) < 0) {
        report->out_of_memory = true;
    }
}

void option_report_print(const struct option_report *report, FILE *to) {
    static const char *const words[] = {
        [OPTION_NOTE] = "INFO", [OPTION_WARNING] = "WARNING", [OPTION_ERROR] = "ERROR"};
    for (size_t i = 0; i < report->n_messages; i++) {
        fprintf(to, "%s: %s\n", words[report->messages[i].severity], report->messages[i].text);
    }
    if (report->out_of_memory) {
        fprintf(to, "ERROR: out of memory while reading the options\n");
    }
}

/* ---------------------------------------------------------------- fields */

static void *field_of(const struct option_spec *spec, void *values) {
    return (char *)values + spec->offset;
}

bool *option_bool(const struct option_spec *spec, void *values) {
    assert(spec->kind == OPTION_BOOL);
    return field_of(spec, values);
}

uint32_t *option_u32(const struct option_spec *spec, void *values) {
    assert(option_is_number(spec));
    return field_of(spec, values);
}

char **option_string(const struct option_spec *spec, void *values) {
    assert(spec->kind != OPTION_BOOL && !option_is_number(spec) && !option_is_list(spec));
    return field_of(spec, values);
}

struct option_list *option_list(const struct option_spec *spec, void *values) {
    assert(option_is_list(spec));
    return field_of(spec, values);
}

bool option_is_list(const struct option_spec *spec) {
    return spec->kind == OPTION_LIST || spec->kind == OPTION_ADDRESS_LIST;
}

bool option_is_number(const struct option_spec *spec) {
    return spec->kind == OPTION_U32 || spec->kind == OPTION_PORT;
}

const struct option_origin *option_origin_of(const struct option_state *state,
                                             const struct option_spec *spec) {
    return &state->origins[spec - state->table->specs];
}

static bool is_secret(const struct option_spec *spec) {
    return (spec->flags & (OPTION_SECRET | OPTION_NAMED_SECRET)) != 0;
}

static void format_text(const struct option_spec *spec, const char *text, char *buffer, size_t n_buffer) {
    if (text == NULL) {
        snprintf(buffer, n_buffer, "%s", "");
    } else if (is_secret(spec)) {
        const char *colon = (spec->flags & OPTION_NAMED_SECRET) != 0 ? strchr(text, ':') : NULL;
        snprintf(buffer, n_buffer, "%.*s(hidden)", colon == NULL ? 0 : (int)(colon - text + 1), text);
    } else {
        snprintf(buffer, n_buffer, "%s", text);
    }
}

const char *option_format_value(const struct option_spec *spec, const void *values, size_t i, char *buffer,
                                size_t n_buffer) {
    const void *field = (const char *)values + spec->offset;
    switch (spec->kind) {
    case OPTION_BOOL:
        snprintf(buffer, n_buffer, "%s", *(const bool *)field ? "true" : "false");
        break;
    case OPTION_U32:
    case OPTION_PORT:
        snprintf(buffer, n_buffer, "%u", *(const uint32_t *)field);
        break;
    case OPTION_STRING:
    case OPTION_FILE:
    case OPTION_ADDRESS:
    case OPTION_CHOICE:
        format_text(spec, *(char *const *)field, buffer, n_buffer);
        break;
    case OPTION_LIST:
    case OPTION_ADDRESS_LIST: {
        const struct option_list *list = field;
        format_text(spec, i < list->n_items ? list->items[i] : NULL, buffer, n_buffer);
        break;
    }
    }
    return buffer;
}

void option_values_deinit(const struct option_table *table, void *values) {
    for (size_t i = 0; i < table->n_specs; i++) {
        const struct option_spec *spec = &table->specs[i];
        if (option_is_list(spec)) {
            struct option_list *list = option_list(spec, values);
            for (size_t k = 0; k < list->n_items; k++) {
                free(list->items[k]);
            }
            free(list->items);
            free(list->origins);
            *list = (struct option_list){0};
        } else if (spec->kind != OPTION_BOOL && !option_is_number(spec)) {
            free(*option_string(spec, values));
            *option_string(spec, values) = NULL;
        }
    }
}

/* ---------------------------------------------------------------- names */

const struct option_spec *option_find(const struct option_table *table, const char *name) {
    for (size_t i = 0; i < table->n_aliases; i++) {
        if (strcmp(table->aliases[i].name, name) == 0) {
            name = table->aliases[i].target;
            break;
        }
    }
    for (size_t i = 0; i < table->n_specs; i++) {
        if (strcmp(table->specs[i].name, name) == 0) {
            return &table->specs[i];
        }
    }
    return NULL;
}

const struct option_spec *option_find_letter(const struct option_table *table, char letter) {
    for (size_t i = 0; i < table->n_specs; i++) {
        if (letter != 0 && table->specs[i].letter == letter) {
            return &table->specs[i];
        }
    }
    return NULL;
}

const struct option_removed *option_find_removed(const struct option_table *table, const char *name) {
    for (size_t i = 0; i < table->n_removed; i++) {
        if (strcmp(table->removed[i].name, name) == 0) {
            return &table->removed[i];
        }
    }
    return NULL;
}

/* Levenshtein distance with a row; both names are shorter than NAME_MAX_BYTES. */
static size_t name_distance(const char *a, const char *b) {
    size_t row[NAME_MAX_BYTES + 1];
    size_t n_b = strlen(b);
    for (size_t j = 0; j <= n_b; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n_b];
}

const char *option_suggest(const struct option_table *table, const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n >= NAME_MAX_BYTES) {
        return NULL;
    }
    const char *nearest = NULL;
    size_t limit = n / 3 > 1 ? n / 3 : 1;
    limit = limit > 4 ? 4 : limit;
    for (size_t i = 0; i < table->n_specs; i++) {
        const struct option_spec *spec = &table->specs[i];
        if ((spec->flags & OPTION_HIDDEN) != 0 || strlen(spec->name) >= NAME_MAX_BYTES) {
            continue;
        }
        size_t distance = name_distance(name, spec->name);
        if (distance <= limit) {
            nearest = spec->name;
            limit = distance - (distance > 0);
        }
    }
    return nearest;
}

/* ---------------------------------------------------------------- values */

bool option_parse_bool(bool *out, const char *text) {
    static const char *const words[2][4] = {{"false", "no", "off", "0"}, {"true", "yes", "on", "1"}};
    for (int value = 0; value < 2; value++) {
        for (int i = 0; i < 4; i++) {
            if (strcasecmp(text, words[value][i]) == 0) {
                *out = value != 0;
                return true;
            }
        }
    }
    return false;
}

bool option_parse_u32(uint32_t *out, const char *text, uint32_t min, uint32_t max) {
    uint64_t value = 0;
    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || value > max) {
            return false;
        }
        value = value * 10 + (uint64_t)(*text - '0');
    }
    if (value < min || value > max) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static bool is_one_of(const char *words, const char *text) {
    size_t n = strlen(text);
    for (const char *at = words; *at != '\0';) {
        size_t n_word = strcspn(at, "|");
        if (n_word == n && strncasecmp(at, text, n) == 0) {
            return true;
        }
        at += n_word + (at[n_word] == '|');
    }
    return false;
}

static bool is_printable(const char *text) {
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            return false;
        }
    }
    return true;
}

/* What was given, shortened, or nothing when it is a secret. */
static const char *shown(const struct option_spec *spec, const char *text, char buffer[SHOWN_VALUE_BYTES]) {
    if (is_secret(spec) || !is_printable(text)) {
        snprintf(buffer, SHOWN_VALUE_BYTES, "the value given");
    } else {
        snprintf(buffer, SHOWN_VALUE_BYTES, "'%.*s'", SHOWN_VALUE_BYTES - 3, text);
    }
    return buffer;
}

static int refuse_number(struct option_state *state, const struct option_spec *spec, const char *text,
                         const struct option_origin *where) {
    char value[SHOWN_VALUE_BYTES];
    const char *hint = strstr(text, " #") != NULL ? "; a comment needs a line of its own" : "";
    option_report_add(state->report, OPTION_ERROR, where, "%s: %s is not a number from %u to %u (%s)%s",
                      spec->name, shown(spec, text, value), spec->min, spec->max, spec->unit, hint);
    return -EINVAL;
}

static int refuse_text(struct option_state *state, const struct option_spec *spec, const char *text,
                       const struct option_origin *where, const char *expected) {
    char value[SHOWN_VALUE_BYTES];
    option_report_add(state->report, OPTION_ERROR, where, "%s: %s is wrong; expected %s", spec->name,
                      shown(spec, text, value), expected);
    return -EINVAL;
}

/* True when the value of a scalar is to be replaced: the command line wins, and the last of equals does. */
static bool may_replace(struct option_state *state, const struct option_spec *spec,
                        const struct option_origin *where) {
    const struct option_origin *before = option_origin_of(state, spec);
    if (before->source > where->source) {
        return false;
    }
    if (before->source == where->source && where->source != OPTION_FROM_DEFAULT) {
        char earlier[MESSAGE_MAX_BYTES / 2];
        option_report_add(state->report, OPTION_WARNING, where,
                          "%s is given again; this one replaces the one of %s", spec->name,
                          option_origin_format(before, earlier, sizeof earlier));
    }
    return true;
}

static void set_origin(struct option_state *state, const struct option_spec *spec,
                       const struct option_origin *where) {
    state->origins[spec - state->table->specs] = *where;
}

static int set_bool(struct option_state *state, const struct option_spec *spec, const char *text,
                    const struct option_origin *where) {
    bool value = true;
    if (text != NULL && *text != '\0' && !option_parse_bool(&value, text)) {
        return refuse_text(state, spec, text, where, "true or false");
    }
    if (may_replace(state, spec, where)) {
        *option_bool(spec, state->values) = value;
        set_origin(state, spec, where);
    }
    return 0;
}

static int set_number(struct option_state *state, const struct option_spec *spec, const char *text,
                      const struct option_origin *where) {
    uint32_t value;
    if (!option_parse_u32(&value, text, spec->min, spec->max)) {
        return refuse_number(state, spec, text, where);
    }
    if (may_replace(state, spec, where)) {
        *option_u32(spec, state->values) = value;
        set_origin(state, spec, where);
    }
    return 0;
}

static int set_string(struct option_state *state, const struct option_spec *spec, const char *text,
                      const struct option_origin *where) {
    if (!may_replace(state, spec, where)) {
        return 0;
    }
    char *copy = strdup(text);
    if (copy == NULL) {
        return -ENOMEM;
    }
    if (spec->kind == OPTION_CHOICE) { /* the words are found in any case and kept in theirs */
        for (char *c = copy; *c != '\0'; c++) {
            *c = (char)tolower((unsigned char)*c);
        }
    }
    free(*option_string(spec, state->values));
    *option_string(spec, state->values) = copy;
    set_origin(state, spec, where);
    return 0;
}

static int list_append(struct option_list *list, const char *text, const struct option_origin *where) {
    char **items = realloc(list->items, (list->n_items + 1) * sizeof *items);
    if (items == NULL) {
        return -ENOMEM;
    }
    list->items = items;
    struct option_origin *origins = realloc(list->origins, (list->n_items + 1) * sizeof *origins);
    if (origins == NULL) {
        return -ENOMEM;
    }
    list->origins = origins;
    items[list->n_items] = strdup(text);
    if (items[list->n_items] == NULL) {
        return -ENOMEM;
    }
    origins[list->n_items++] = *where;
    return 0;
}

static int add_to_list(struct option_state *state, const struct option_spec *spec, const char *text,
                       const struct option_origin *where) {
    struct option_list *list = option_list(spec, state->values);
    for (size_t i = 0; spec->kind == OPTION_ADDRESS_LIST && i < list->n_items; i++) {
        if (strcmp(list->items[i], text) == 0) {
            option_report_add(state->report, OPTION_WARNING, where, "%s: %s is given twice", spec->name,
                              text);
            return 0;
        }
    }
    int err = list_append(list, text, where);
    if (err == 0 && where->source >= option_origin_of(state, spec)->source) {
        set_origin(state, spec, where);
    }
    return err;
}

/* Canonical text of an address, so that two spellings of one address are seen to be one. */
static int canonical_address(struct option_state *state, const struct option_spec *spec, const char *text,
                             const struct option_origin *where, char out[ENDPOINT_TEXT_BYTES]) {
    struct endpoint address;
    if (endpoint_parse(&address, text, 0) < 0 || address.port != 0) {
        return refuse_text(state, spec, text, where, "an IPv4 or IPv6 address without a port");
    }
    endpoint_format_ip(&address, out);
    return 0;
}

static int set_text_of_kind(struct option_state *state, const struct option_spec *spec, const char *text,
                            const struct option_origin *where) {
    char address[ENDPOINT_TEXT_BYTES];
    switch (spec->kind) {
    case OPTION_BOOL:
        return set_bool(state, spec, text, where);
    case OPTION_U32:
    case OPTION_PORT:
        return set_number(state, spec, text, where);
    case OPTION_CHOICE:
        if (!is_one_of(spec->unit, text)) {
            return refuse_text(state, spec, text, where, spec->unit);
        }
        return set_string(state, spec, text, where);
    case OPTION_STRING:
    case OPTION_FILE:
        return set_string(state, spec, text, where);
    case OPTION_LIST:
        return add_to_list(state, spec, text, where);
    case OPTION_ADDRESS:
    case OPTION_ADDRESS_LIST: {
        int err = canonical_address(state, spec, text, where, address);
        if (err < 0) {
            return err;
        }
        return spec->kind == OPTION_ADDRESS ? set_string(state, spec, address, where)
                                            : add_to_list(state, spec, address, where);
    }
    }
    return -EINVAL;
}

int option_set(struct option_state *state, const struct option_spec *spec, const char *text,
               const struct option_origin *where) {
    if (where->source == OPTION_FROM_FILE && (spec->flags & OPTION_ARGUMENT) != 0) {
        option_report_add(state->report, OPTION_ERROR, where, "%s is for the command line only", spec->name);
        return -EINVAL;
    }
    if ((text == NULL || *text == '\0') && (spec->flags & OPTION_VALUE_OPTIONAL) != 0) {
        text = spec->default_text;
    }
    if (spec->kind != OPTION_BOOL && (text == NULL || *text == '\0')) {
        option_report_add(state->report, OPTION_ERROR, where, "%s needs a value (%s)", spec->name,
                          spec->unit);
        return -EINVAL;
    }
    if (text != NULL && !is_printable(text)) {
        return refuse_text(state, spec, text, where, "text without control characters");
    }
    return set_text_of_kind(state, spec, text, where);
}

static int set_removed(struct option_state *state, const struct option_removed *removed,
                       const struct option_origin *where) {
    option_report_add(state->report, removed->severity, where, "%s: %s", removed->name, removed->note);
    return removed->severity == OPTION_ERROR ? -EINVAL : 0;
}

static void report_unknown(struct option_state *state, const char *name, const struct option_origin *where) {
    const char *nearest = option_suggest(state->table, name);
    const char *printable = is_printable(name) ? name : "(unprintable)";
    if (nearest != NULL) {
        option_report_add(state->report, OPTION_ERROR, where, "unknown option '%.80s'; did you mean '%s'?",
                          printable, nearest);
    } else {
        option_report_add(state->report, OPTION_ERROR, where, "unknown option '%.80s'", printable);
    }
}

int option_set_named(struct option_state *state, const char *name, const char *text,
                     const struct option_origin *where) {
    const struct option_spec *spec = option_find(state->table, name);
    if (spec != NULL) {
        return option_set(state, spec, text, where);
    }
    const struct option_removed *removed = option_find_removed(state->table, name);
    if (removed != NULL) {
        return set_removed(state, removed, where);
    }
    report_unknown(state, name, where);
    return -EINVAL;
}

int option_state_init(struct option_state *state) {
    const struct option_origin where = {.source = OPTION_FROM_DEFAULT};
    for (size_t i = 0; i < state->table->n_specs; i++) {
        const struct option_spec *spec = &state->table->specs[i];
        state->origins[i] = where;
        if (spec->default_text == NULL) {
            continue;
        }
        int err = option_set(state, spec, spec->default_text, &where);
        assert(err != -EINVAL); /* a default that its own row refuses */
        if (err < 0) {
            return err;
        }
    }
    return 0;
}

/* ---------------------------------------------------------------- command line */

struct argument_reader {
    struct option_state *state;
    int argc;
    char *const *argv;
    int at; /* the argument being read */
};

static const struct option_origin command_line = {.source = OPTION_FROM_COMMAND_LINE};

static bool has_next(const struct argument_reader *r) {
    return r->at + 1 < r->argc;
}

/* The value in the next argument. An optional value is taken only when it is plainly a number, so that
 * "--stale-nonce 10" means 10 and "--stale-nonce --verbose" the default. */
static const char *take_next(struct argument_reader *r, const struct option_spec *spec) {
    if (!has_next(r) || spec->kind == OPTION_BOOL) {
        return NULL;
    }
    const char *next = r->argv[r->at + 1];
    if ((spec->flags & OPTION_VALUE_OPTIONAL) != 0 && !isdigit((unsigned char)next[0])) {
        return NULL;
    }
    r->at++;
    return next;
}

static int read_long(struct argument_reader *r, const char *argument) {
    char name[NAME_MAX_BYTES];
    const char *equals = strchr(argument, '=');
    size_t n = equals == NULL ? strlen(argument) : (size_t)(equals - argument);
    if (n >= sizeof name) {
        option_report_add(r->state->report, OPTION_ERROR, &command_line, "unknown option '--%.80s'",
                          argument);
        return -EINVAL;
    }
    memcpy(name, argument, n);
    name[n] = '\0';
    const char *text = equals == NULL ? NULL : equals + 1;
    const struct option_spec *spec = option_find(r->state->table, name);
    if (spec != NULL && text == NULL) {
        text = take_next(r, spec);
    } else if (spec == NULL && text == NULL) {
        const struct option_removed *removed = option_find_removed(r->state->table, name);
        r->at += removed != NULL && removed->takes_value && has_next(r);
    }
    return option_set_named(r->state, name, text, &command_line);
}

/* "-av", "-p3478" or "-p 3478". */
static int read_letters(struct argument_reader *r, const char *letters) {
    int result = 0;
    for (; *letters != '\0'; letters++) {
        const struct option_spec *spec = option_find_letter(r->state->table, *letters);
        if (spec == NULL) {
            option_report_add(r->state->report, OPTION_ERROR, &command_line, "unknown option '-%c'",
                              isprint((unsigned char)*letters) ? *letters : '?');
            return -EINVAL;
        }
        if (spec->kind != OPTION_BOOL) {
            const char *text = letters[1] != '\0' ? letters + 1 : take_next(r, spec);
            int err = option_set(r->state, spec, text, &command_line);
            return err < 0 ? err : result;
        }
        int err = option_set(r->state, spec, NULL, &command_line);
        if (err == -ENOMEM) {
            return err;
        }
        result = err < 0 ? err : result;
    }
    return result;
}

static int read_argument(struct argument_reader *r) {
    const char *argument = r->argv[r->at];
    if (argument[0] == '-' && argument[1] == '-' && argument[2] != '\0') {
        return read_long(r, argument + 2);
    }
    if (argument[0] == '-' && argument[1] != '-' && argument[1] != '\0') {
        return read_letters(r, argument + 1);
    }
    option_report_add(r->state->report, OPTION_ERROR, &command_line, "unexpected argument '%.80s'", argument);
    return -EINVAL;
}

int option_parse_arguments(struct option_state *state, int argc, char *const *argv) {
    struct argument_reader reader = {.state = state, .argc = argc, .argv = argv, .at = 1};
    int result = 0;
    for (; reader.at < argc; reader.at++) {
        int err = read_argument(&reader);
        if (err == -ENOMEM) {
            return err;
        }
        result = err < 0 ? err : result;
    }
    return result;
}
