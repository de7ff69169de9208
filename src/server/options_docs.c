/* The option parts of the man page, the sample file and docs/configuration.md. They hold every option of
 * every build, so that what is committed does not depend on where it was made. */
#include "options_internal.h"

#include <string.h>

enum { SAMPLE_WIDTH = 78, TEXT_BYTES = 512 };

static bool is_shown(const struct option_spec *spec, size_t group, enum option_status status) {
    return spec->group == group && spec->status == status && (spec->flags & OPTION_HIDDEN) == 0;
}

static bool has_any(size_t group, enum option_status status, unsigned without_flags) {
    for (size_t i = 0; i < options_table.n_specs; i++) {
        const struct option_spec *spec = &options_table.specs[i];
        if (is_shown(spec, group, status) && (spec->flags & without_flags) == 0) {
            return true;
        }
    }
    return false;
}

static const char *alias_of(const struct option_spec *spec) {
    for (size_t i = 0; i < options_table.n_aliases; i++) {
        if (strcmp(options_table.aliases[i].target, spec->name) == 0) {
            return options_table.aliases[i].name;
        }
    }
    return NULL;
}

/* What is said of an option that is not honoured. */
static const char *format_fate(const struct option_spec *spec, char buffer[TEXT_BYTES]) {
    switch (spec->status) {
    case OPTION_HONOURED:
        buffer[0] = '\0';
        break;
    case OPTION_QUIET:
        snprintf(buffer, TEXT_BYTES, "Accepted. %s", spec->help);
        break;
    case OPTION_ACCEPTED:
        snprintf(buffer, TEXT_BYTES, "Accepted with a note: %s.", spec->note);
        break;
    case OPTION_LATER:
        snprintf(buffer, TEXT_BYTES, "Accepted with a warning, without effect: %s.", spec->note);
        break;
    case OPTION_REFUSED:
        snprintf(buffer, TEXT_BYTES, "Stops the start: %s.", spec->note);
        break;
    }
    return buffer;
}

static const char *removed_fate(const struct option_removed *removed) {
    switch (removed->severity) {
    case OPTION_NOTE:
        return "Accepted with a note";
    case OPTION_WARNING:
        return "Accepted with a warning";
    case OPTION_ERROR:
        break;
    }
    return "Stops the start";
}

/* ---------------------------------------------------------------- man page */

static void print_roff(FILE *to, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '-' || *text == '\\') {
            fputc('\\', to);
        }
        fputc(*text, to);
    }
}

static void print_man_option(const struct option_spec *spec, FILE *to) {
    char facts[OPTIONS_FACTS_BYTES];
    const char *placeholder = options_format_placeholder(spec);
    bool optional = (spec->flags & OPTION_VALUE_OPTIONAL) != 0;
    fputs(".TP\n", to);
    if (spec->letter != 0) {
        fprintf(to, "\\fB\\-%c\\fR, ", spec->letter);
    }
    fputs("\\fB\\-\\-", to);
    print_roff(to, spec->name);
    fputs("\\fR", to);
    if (placeholder != NULL) {
        fprintf(to, "%s=\\fI", optional ? "[" : "");
        print_roff(to, placeholder);
        fprintf(to, "\\fR%s", optional ? "]" : "");
    }
    fputc('\n', to);
    print_roff(to, spec->help);
    fputc('\n', to);
    options_format_facts(spec, facts);
    if (facts[0] != '\0' && (spec->flags & OPTION_ARGUMENT) == 0) {
        fputc('(', to);
        print_roff(to, facts);
        fputs(")\n", to);
    }
}

static void print_man_fates(FILE *to) {
    char fate[TEXT_BYTES];
    fputs(".SS Accepted without effect, or refused\n", to);
    for (size_t i = 0; i < options_table.n_specs; i++) {
        const struct option_spec *spec = &options_table.specs[i];
        if (spec->status == OPTION_HONOURED) {
            continue;
        }
        fputs(".TP\n\\fB\\-\\-", to);
        print_roff(to, spec->name);
        fputs("\\fR", to);
        if (alias_of(spec) != NULL) {
            fputs(", \\fB\\-\\-", to);
            print_roff(to, alias_of(spec));
            fputs("\\fR", to);
        }
        fputc('\n', to);
        print_roff(to, format_fate(spec, fate));
        fputc('\n', to);
    }
    fputs(".SS Keys of older programs\n", to);
    for (size_t i = 0; i < options_table.n_removed; i++) {
        const struct option_removed *removed = &options_table.removed[i];
        fputs(".TP\n\\fB", to);
        print_roff(to, removed->name);
        fprintf(to, "\\fR\n%s: ", removed_fate(removed));
        print_roff(to, removed->note);
        fputs(".\n", to);
    }
}

void options_print_man(FILE *to) {
    for (size_t group = 0; group < options_table.n_groups; group++) {
        if (has_any(group, OPTION_HONOURED, OPTION_HIDDEN)) {
            fprintf(to, ".SS %s\n", options_table.groups[group]);
        }
        for (size_t i = 0; i < options_table.n_specs; i++) {
            if (is_shown(&options_table.specs[i], group, OPTION_HONOURED)) {
                print_man_option(&options_table.specs[i], to);
            }
        }
    }
    print_man_fates(to);
}

/* ---------------------------------------------------------------- sample file */

static void print_sample_option(const struct option_spec *spec, FILE *to) {
    char facts[OPTIONS_FACTS_BYTES], line[TEXT_BYTES];
    options_print_wrapped(to, "# ", SAMPLE_WIDTH, spec->help);
    options_format_facts(spec, facts);
    if (facts[0] != '\0') {
        snprintf(line, sizeof line, "(%s)", facts);
        options_print_wrapped(to, "# ", SAMPLE_WIDTH, line);
    }
    if (spec->kind == OPTION_CHOICE) {
        snprintf(line, sizeof line, "one of %s", spec->unit);
        options_print_wrapped(to, "# ", SAMPLE_WIDTH, line);
    }
    if (spec->kind == OPTION_BOOL && strcmp(spec->default_text, "false") == 0) {
        fprintf(to, "#%s\n\n", spec->name);
    } else {
        fprintf(to, "#%s=%s\n\n", spec->name, spec->default_text != NULL ? spec->default_text : spec->unit);
    }
}

void options_print_sample(FILE *to) {
    for (size_t group = 0; group < options_table.n_groups; group++) {
        if (!has_any(group, OPTION_HONOURED, OPTION_ARGUMENT | OPTION_HIDDEN)) {
            continue;
        }
        fprintf(to, "# ---- %s\n\n", options_table.groups[group]);
        for (size_t i = 0; i < options_table.n_specs; i++) {
            const struct option_spec *spec = &options_table.specs[i];
            if (is_shown(spec, group, OPTION_HONOURED) && (spec->flags & OPTION_ARGUMENT) == 0) {
                print_sample_option(spec, to);
            }
        }
    }
}

/* ---------------------------------------------------------------- documentation */

/* A bar would end the cell. */
static void print_cell(FILE *to, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '|') {
            fputc('\\', to);
        }
        fputc(*text, to);
    }
}

static void print_markdown_option(const struct option_spec *spec, FILE *to) {
    const char *placeholder = options_format_placeholder(spec);
    fprintf(to, "| `%s`", spec->name);
    if (spec->letter != 0) {
        fprintf(to, " (`-%c`)", spec->letter);
    }
    fputs(" | ", to);
    if (placeholder == NULL) {
        fputs("flag", to);
    } else if (option_is_number(spec)) {
        fprintf(to, "%s, %u to %u", spec->unit, spec->min, spec->max);
    } else {
        fputc('`', to);
        print_cell(to, placeholder);
        fputc('`', to);
    }
    fputs(" | ", to);
    if (spec->default_text != NULL && (spec->flags & OPTION_ARGUMENT) == 0) {
        fprintf(to, "`%s`", spec->default_text);
    }
    fputs(" | ", to);
    print_cell(to, spec->help);
    fputs((spec->flags & OPTION_LINUX) != 0 ? " Linux only. |\n" : " |\n", to);
}

static void print_markdown_fates(FILE *to) {
    char fate[TEXT_BYTES];
    fputs("### Accepted without effect, or refused\n\n| Option | What happens |\n|---|---|\n", to);
    for (size_t i = 0; i < options_table.n_specs; i++) {
        const struct option_spec *spec = &options_table.specs[i];
        if (spec->status == OPTION_HONOURED) {
            continue;
        }
        fprintf(to, "| `%s`", spec->name);
        if (alias_of(spec) != NULL) {
            fprintf(to, ", `%s`", alias_of(spec));
        }
        fputs(" | ", to);
        print_cell(to, format_fate(spec, fate));
        fputs(" |\n", to);
    }
    fputs("\n### Keys of older programs\n\n| Key | What happens |\n|---|---|\n", to);
    for (size_t i = 0; i < options_table.n_removed; i++) {
        const struct option_removed *removed = &options_table.removed[i];
        fprintf(to, "| `%s` | %s: %s. |\n", removed->name, removed_fate(removed), removed->note);
    }
}

void options_print_markdown(FILE *to) {
    for (size_t group = 0; group < options_table.n_groups; group++) {
        if (!has_any(group, OPTION_HONOURED, OPTION_HIDDEN)) {
            continue;
        }
        fprintf(to, "### %s\n\n| Option | Value | Default | Meaning |\n|---|---|---|---|\n",
                options_table.groups[group]);
        for (size_t i = 0; i < options_table.n_specs; i++) {
            if (is_shown(&options_table.specs[i], group, OPTION_HONOURED)) {
                print_markdown_option(&options_table.specs[i], to);
            }
        }
        fputc('\n', to);
    }
    print_markdown_fates(to);
}
