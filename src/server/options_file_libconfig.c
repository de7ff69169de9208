/* libconfig's spelling: `key = value;` with typed values, lists and arrays for options that may be repeated,
 * and the groups `users` and `peers`. */
#include "options_internal.h"

#include <ctype.h>
#include <errno.h>
#include <libconfig.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- which spelling */

static const char *skip_blanks(const char *at) {
    while (*at == ' ' || *at == '\t' || *at == '\r') {
        at++;
    }
    return at;
}

static const char *skip_name(const char *at) {
    if (!isalpha((unsigned char)*at) && *at != '*') {
        return at;
    }
    while (isalnum((unsigned char)*at) || *at == '-' || *at == '_' || *at == '*') {
        at++;
    }
    return at;
}

static bool is_line_end(const char *at) {
    at = skip_blanks(at);
    return *at == '\0' || *at == '\n' || *at == '#' || strncmp(at, "//", 2) == 0 || strncmp(at, "/*", 2) == 0;
}

/* `"text";`, `12;` or `true;` and nothing behind. */
static bool is_scalar_with_semicolon(const char *at) {
    if (*at == '"') {
        for (at++; *at != '"'; at++) {
            if (*at == '\0' || *at == '\n' || (*at == '\\' && *++at == '\0')) {
                return false;
            }
        }
        at++;
    } else {
        while (isalnum((unsigned char)*at) || *at == '+' || *at == '-' || *at == '.') {
            at++;
        }
    }
    at = skip_blanks(at);
    return *at == ';' && is_line_end(at + 1);
}

/* A bracket, and behind it what may stand in one: "[2001:db8::1]" does not look like that. */
static bool is_aggregate(const char *at) {
    if (*at != '(' && *at != '[' && *at != '{') {
        return false;
    }
    bool group = *at == '{';
    at = skip_blanks(at + 1);
    const char *name_end = skip_blanks(skip_name(at));
    return is_line_end(at) || strchr("\"({[])}", *at) != NULL ||
           (group && name_end != at && (*name_end == '=' || *name_end == ':'));
}

static bool is_libconfig_line(const char *line) {
    if (strncmp(line, "//", 2) == 0 || strncmp(line, "/*", 2) == 0 || strncmp(line, "@include", 8) == 0) {
        return true;
    }
    const char *at = skip_name(line);
    if (at == line) {
        return false;
    }
    at = skip_blanks(at);
    if (*at != '=' && *at != ':') {
        return false;
    }
    at = skip_blanks(at + 1);
    if (*at == '\n') { /* the bracket may be on the next line */
        at = skip_blanks(at + 1);
        return *at == '(' || *at == '[' || *at == '{';
    }
    return is_aggregate(at) || is_scalar_with_semicolon(at);
}

bool options_is_libconfig(const char *text) {
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line = skip_blanks(*line == '\n' ? line + 1 : line);
        if (*line != '\0' && *line != '\n' && *line != '#') {
            return is_libconfig_line(line);
        }
    }
    return false;
}

/* ---------------------------------------------------------------- reading */

struct libconfig_reader {
    struct option_state *state;
    const char *path;
};

static struct option_origin origin_of(const struct libconfig_reader *r, const config_setting_t *setting) {
    return (struct option_origin){
        .source = OPTION_FROM_FILE, .file = r->path, .line = (uint32_t)config_setting_source_line(setting)};
}

static int refuse(const struct libconfig_reader *r, const config_setting_t *setting, const char *why) {
    struct option_origin where = origin_of(r, setting);
    const char *name = config_setting_name(setting);
    option_report_add(r->state->report, OPTION_ERROR, &where, "%s: %s", name == NULL ? "a value" : name, why);
    return -EINVAL;
}

/* The error that counts most: no memory, then a mistake. */
static int worse(int a, int b) {
    return a == -ENOMEM || b == -ENOMEM ? -ENOMEM : a < 0 ? a : b;
}

static int set_scalar(const struct libconfig_reader *r, const char *name, const config_setting_t *setting) {
    struct option_origin where = origin_of(r, setting);
    char number[32];
    switch (config_setting_type(setting)) {
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64:
        snprintf(number, sizeof number, "%lld", config_setting_get_int64(setting));
        return option_set_named(r->state, name, number, &where);
    case CONFIG_TYPE_BOOL:
        return option_set_named(r->state, name, config_setting_get_bool(setting) ? "true" : "false", &where);
    case CONFIG_TYPE_STRING:
        return option_set_named(r->state, name, config_setting_get_string(setting), &where);
    default:
        return refuse(r, setting, "expected a whole number, true, false or text in quotes");
    }
}

static int set_each(const struct libconfig_reader *r, const char *name, const config_setting_t *list) {
    const struct option_spec *spec = option_find(r->state->table, name);
    if (spec != NULL && !option_is_list(spec)) {
        return refuse(r, list, "takes one value, not a list");
    }
    int result = 0;
    for (int i = 0; i < config_setting_length(list); i++) {
        result = worse(set_scalar(r, name, config_setting_get_elem(list, (unsigned)i)), result);
    }
    return result;
}

static int set_any(const struct libconfig_reader *r, const char *name, const config_setting_t *setting) {
    if (config_setting_is_array(setting) || config_setting_is_list(setting)) {
        return set_each(r, name, setting);
    }
    if (config_setting_is_group(setting)) {
        return refuse(r, setting, "there is no such group; the groups are users and peers");
    }
    return set_scalar(r, name, setting);
}

static int set_user(const struct libconfig_reader *r, const config_setting_t *user) {
    if (!config_setting_is_group(user)) {
        return refuse(r, user, "expected { name = \"...\"; password = \"...\"; }");
    }
    const char *name = NULL, *password = NULL, *key = NULL;
    config_setting_lookup_string(user, "name", &name);
    config_setting_lookup_string(user, "password", &password);
    config_setting_lookup_string(user, "key", &key);
    int n_known = (name != NULL) + (password != NULL) + (key != NULL);
    if (name == NULL || (password == NULL) == (key == NULL) || config_setting_length(user) != n_known) {
        return refuse(r, user,
                      "a user has name, and either password or key, as text in quotes; nothing else");
    }
    if (strchr(name, ':') != NULL) {
        return refuse(r, user, "a user's name cannot hold ':'");
    }
    const char *secret = key != NULL ? key : password;
    size_t n = strlen(name) + strlen(secret) + sizeof ":0x";
    char *line = malloc(n);
    if (line == NULL) {
        return -ENOMEM;
    }
    snprintf(line, n, "%s:%s%s", name, key != NULL && strncmp(key, "0x", 2) != 0 ? "0x" : "", secret);
    struct option_origin where = origin_of(r, user);
    int err = option_set_named(r->state, "user", line, &where);
    free(line);
    return err;
}

static int set_users(const struct libconfig_reader *r, const config_setting_t *users) {
    if (!config_setting_is_list(users)) {
        return refuse(r, users, "expected a list: ( { name = \"...\"; password = \"...\"; }, ... )");
    }
    int result = 0;
    for (int i = 0; i < config_setting_length(users); i++) {
        result = worse(set_user(r, config_setting_get_elem(users, (unsigned)i)), result);
    }
    return result;
}

static int set_peers(const struct libconfig_reader *r, const config_setting_t *peers) {
    if (!config_setting_is_group(peers)) {
        return refuse(r, peers, "expected a group: { allowed = [ ... ]; denied = [ ... ]; }");
    }
    int result = 0;
    for (int i = 0; i < config_setting_length(peers); i++) {
        const config_setting_t *ranges = config_setting_get_elem(peers, (unsigned)i);
        const char *name = config_setting_name(ranges);
        if (strcmp(name, "allowed") == 0) {
            result = worse(set_any(r, "allowed-peer-ip", ranges), result);
        } else if (strcmp(name, "denied") == 0) {
            result = worse(set_any(r, "denied-peer-ip", ranges), result);
        } else {
            result = worse(refuse(r, ranges, "not known in peers, which has allowed and denied"), result);
        }
    }
    return result;
}

static int set_top(const struct libconfig_reader *r, const config_setting_t *setting) {
    const char *name = config_setting_name(setting);
    if (strcmp(name, "users") == 0) {
        return set_users(r, setting);
    }
    if (strcmp(name, "peers") == 0) {
        return set_peers(r, setting);
    }
    if (strcmp(name, "realms") == 0) {
        return refuse(r, setting, "several realms are not in this version; set realm");
    }
    return set_any(r, name, setting);
}

/* Other files are not pulled in: origins name one file, and a configuration is one text. */
static int refuse_includes(const struct libconfig_reader *r, const char *text) {
    struct option_origin where = {.source = OPTION_FROM_FILE, .file = r->path, .line = 1};
    int result = 0;
    for (const char *line = text; *line != '\0'; where.line++) {
        if (strncmp(skip_blanks(line), "@include", 8) == 0) {
            option_report_add(r->state->report, OPTION_ERROR, &where, "@include is not supported");
            result = -EINVAL;
        }
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return result;
}

int options_read_libconfig(struct option_state *state, const char *path, const char *text) {
    const struct libconfig_reader reader = {.state = state, .path = path};
    int result = refuse_includes(&reader, text);
    if (result < 0) {
        return result;
    }
    config_t config;
    config_init(&config);
    if (config_read_string(&config, text) != CONFIG_TRUE) {
        struct option_origin where = {
            .source = OPTION_FROM_FILE, .file = path, .line = (uint32_t)config_error_line(&config)};
        option_report_add(state->report, OPTION_ERROR, &where, "%s", config_error_text(&config));
        config_destroy(&config);
        return -EINVAL;
    }
    const config_setting_t *root = config_root_setting(&config);
    for (int i = 0; i < config_setting_length(root); i++) {
        result = worse(set_top(&reader, config_setting_get_elem(root, (unsigned)i)), result);
    }
    config_destroy(&config);
    return result;
}
