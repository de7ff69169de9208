/* The flat spelling: a line is "key", "key=value" or "key value"; a line that begins with '#' is a comment,
 * and '#' anywhere else is part of the value. */
#include "options_internal.h"

#include <errno.h>
#include <string.h>

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static char *skip_blanks(char *at) {
    while (is_blank(*at)) {
        at++;
    }
    return at;
}

static void trim_end(char *text) {
    size_t n = strlen(text);
    while (n > 0 && is_blank(text[n - 1])) {
        text[--n] = '\0';
    }
}

/* Takes double quotes off when they are around the whole value. */
static char *unquote(char *value) {
    size_t n = strlen(value);
    if (n >= 2 && value[0] == '"' && value[n - 1] == '"') {
        value[n - 1] = '\0';
        return value + 1;
    }
    return value;
}

/* Cuts the line in two; returns the value, or NULL for a bare key. */
static char *split(char *line) {
    char *end_of_key = line + strcspn(line, "= \t");
    if (*end_of_key == '\0') {
        return NULL;
    }
    char *value = skip_blanks(end_of_key);
    if (*value == '=') {
        value = skip_blanks(value + 1);
    }
    *end_of_key = '\0';
    return unquote(value);
}

static int read_line(struct option_state *state, char *line, const struct option_origin *where) {
    line = skip_blanks(line);
    trim_end(line);
    if (*line == '\0' || *line == '#') {
        return 0;
    }
    char *value = split(line);
    if (*line == '\0') {
        option_report_add(state->report, OPTION_ERROR, where, "a value without a key");
        return -EINVAL;
    }
    return option_set_named(state, line, value, where);
}

int options_read_flat(struct option_state *state, const char *path, char *text) {
    struct option_origin where = {.source = OPTION_FROM_FILE, .file = path};
    int result = 0;
    while (text != NULL) {
        char *line = text;
        text = strchr(line, '\n');
        if (text != NULL) {
            *text++ = '\0';
        }
        where.line++;
        int err = read_line(state, line, &where);
        if (err == -ENOMEM) {
            return err;
        }
        result = err < 0 ? err : result;
    }
    return result;
}
