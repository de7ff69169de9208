/* What the program prints about itself and its configuration. */
#include "options_internal.h"

#include <stddef.h>
#include <string.h>

enum { HELP_WIDTH = 80, VALUE_BYTES = 4096 };

/* Leaves the longest run of words that fits; a word longer than a line stands alone. */
static size_t line_length(const char *text, size_t room) {
    size_t n = strlen(text);
    if (n <= room) {
        return n;
    }
    for (size_t i = room + 1; i > 0; i--) {
        if (text[i - 1] == ' ') {
            return i - 1;
        }
    }
    return strcspn(text, " ");
}

void options_print_wrapped(FILE *to, const char *prefix, size_t width, const char *text) {
    size_t room = width - strlen(prefix);
    while (*text != '\0') {
        size_t n = line_length(text, room);
        fprintf(to, "%s%.*s\n", prefix, (int)n, text);
        text += n;
        text += strspn(text, " ");
    }
}

const char *options_format_facts(const struct option_spec *spec, char buffer[OPTIONS_FACTS_BYTES]) {
    buffer[0] = '\0';
    if (spec->kind == OPTION_BOOL) {
        snprintf(buffer, OPTIONS_FACTS_BYTES, "default %s", spec->default_text);
    } else if (option_is_number(spec) && spec->default_text != NULL) {
        snprintf(buffer, OPTIONS_FACTS_BYTES, "%s, %u to %u; default %s", spec->unit, spec->min, spec->max,
                 spec->default_text);
    } else if (option_is_number(spec)) {
        snprintf(buffer, OPTIONS_FACTS_BYTES, "%s, %u to %u", spec->unit, spec->min, spec->max);
    } else if (spec->default_text != NULL) {
        snprintf(buffer, OPTIONS_FACTS_BYTES, "default %s", spec->default_text);
    }
    if ((spec->flags & OPTION_LINUX) != 0) {
        size_t n = strlen(buffer);
        snprintf(buffer + n, OPTIONS_FACTS_BYTES - n, "; Linux only");
    }
    return buffer;
}

const char *options_format_placeholder(const struct option_spec *spec) {
    switch (spec->kind) {
    case OPTION_BOOL:
        return NULL;
    case OPTION_U32:
        return "NUMBER";
    case OPTION_PORT:
        return "PORT";
    case OPTION_STRING:
    case OPTION_FILE:
    case OPTION_ADDRESS:
    case OPTION_CHOICE:
    case OPTION_LIST:
    case OPTION_ADDRESS_LIST:
        break;
    }
    return spec->unit;
}

static bool is_in_this_build(const struct option_spec *spec) {
#ifdef TURN_UDP_BACKEND_LINUX
    (void)spec;
    return true;
#else
    return (spec->flags & OPTION_LINUX) == 0;
#endif
}

static void print_help_of(const struct option_spec *spec, FILE *to) {
    char facts[OPTIONS_FACTS_BYTES];
    const char *placeholder = options_format_placeholder(spec);
    bool optional = (spec->flags & OPTION_VALUE_OPTIONAL) != 0;
    if (spec->letter != 0) {
        fprintf(to, "  -%c, --%s", spec->letter, spec->name);
    } else {
        fprintf(to, "      --%s", spec->name);
    }
    if (placeholder != NULL) {
        fprintf(to, "%s=%s%s", optional ? "[" : "", placeholder, optional ? "]" : "");
    }
    options_format_facts(spec, facts);
    if (facts[0] != '\0' && (spec->flags & OPTION_ARGUMENT) == 0) {
        fprintf(to, "  (%s)", facts);
    }
    fputc('\n', to);
    options_print_wrapped(to, "          ", HELP_WIDTH, spec->help);
}

static void print_help_group(size_t group, FILE *to) {
    bool has_heading = false;
    for (size_t i = 0; i < options_table.n_specs; i++) {
        const struct option_spec *spec = &options_table.specs[i];
        if (spec->group != group || spec->status != OPTION_HONOURED || (spec->flags & OPTION_HIDDEN) != 0 ||
            !is_in_this_build(spec)) {
            continue;
        }
        if (!has_heading) {
            fprintf(to, "\n%s\n", options_table.groups[group]);
            has_heading = true;
        }
        print_help_of(spec, to);
    }
}

void options_print_help(FILE *to) {
    fputs("Usage: turnserver [OPTION]...\n"
          "\n"
          "TURN and STUN server. Options stand on the command line as --name=value,\n"
          "--name value or --name, and in the configuration file as name=value,\n"
          "name value or name. A flag is switched off with =false.\n",
          to);
    for (size_t group = 0; group < options_table.n_groups; group++) {
        print_help_group(group, to);
    }
    fputs("\nOptions that are known but have no effect in this version, and those that are\n"
          "refused, are listed in turnserver(1).\n",
          to);
}

void options_print_version(FILE *to) {
    fprintf(to, "turnserver (Turntable) %s\n", TURN_VERSION);
}

static void print_value(const struct options *o, const struct option_spec *spec, size_t i,
                        const struct option_origin *where, FILE *to) {
    char value[VALUE_BYTES], place[VALUE_BYTES];
    option_format_value(spec, o, i, value, sizeof value);
    fprintf(to, "%s = %s  [%s]\n", spec->name, value[0] == '\0' ? "(unset)" : value,
            option_origin_format(where, place, sizeof place));
}

void options_print_effective(const struct options *o, FILE *to) {
    static const struct option_origin by_default = {.source = OPTION_FROM_DEFAULT};
    for (size_t i = 0; i < options_table.n_specs; i++) {
        const struct option_spec *spec = &options_table.specs[i];
        bool given = o->origins[i].source != OPTION_FROM_DEFAULT;
        if ((spec->flags & OPTION_ARGUMENT) != 0 || (spec->status != OPTION_HONOURED && !given)) {
            continue;
        }
        if (!option_is_list(spec)) {
            print_value(o, spec, 0, &o->origins[i], to);
            continue;
        }
        const struct option_list *list = (const void *)((const char *)o + spec->offset);
        for (size_t k = 0; k < list->n_items; k++) {
            print_value(o, spec, k, &list->origins[k], to);
        }
        if (list->n_items == 0) {
            print_value(o, spec, 0, &by_default, to);
        }
    }
}
