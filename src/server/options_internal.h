/* What the files of the options module share; nobody else includes this. */
#ifndef TURN_OPTIONS_INTERNAL_H
#define TURN_OPTIONS_INTERNAL_H

#include "options.h"

enum { OPTIONS_FILE_MAX_BYTES = 4 * 1024 * 1024, OPTIONS_PATH_BYTES = 4096, OPTIONS_FACTS_BYTES = 160 };

extern const struct option_table options_table;
enum { OPTIONS_REMOVED_COUNT = 25 };
extern const struct option_removed options_removed[OPTIONS_REMOVED_COUNT];

int options_create(struct options **out);
void options_state_of(struct option_state *state, struct options *options, struct option_report *report);

/* The first of the usual places where the file is, or -ENOENT. An absolute name is only looked for there. */
int options_find_file(char out[OPTIONS_PATH_BYTES], const char *name);
/* Reads a whole file, NUL-terminated; the caller frees it. 0 or -errno (-EFBIG beyond
 * OPTIONS_FILE_MAX_BYTES). */
int options_read_whole(char **out_text, size_t *out_bytes, const char *path);

/* Applies a file's text (which is changed by it). `path` must outlive the values. 0, -EINVAL or -ENOMEM. */
int options_read_text(struct option_state *state, const char *path, char *text, size_t n_bytes);
/* Whether the text is in libconfig's spelling; docs/configuration.md states the rule. */
bool options_is_libconfig(const char *text);
int options_read_flat(struct option_state *state, const char *path, char *text);
int options_read_libconfig(struct option_state *state, const char *path, const char *text);

/* What one option implies for another, and what does not go together. 0, -EINVAL or -ENOMEM. */
int options_check(struct options *options, struct option_report *report);
int options_check_certificates(const struct options *options, struct option_report *report);
/* Speaks of options that are set and without effect. -EINVAL when one is refused. */
int options_check_served(const struct options *options, struct option_report *report);

void options_print_help(FILE *to);
void options_print_version(FILE *to);
void options_print_effective(const struct options *options, FILE *to);
void options_print_man(FILE *to);
void options_print_sample(FILE *to);
void options_print_markdown(FILE *to);
/* Unit, range and default of an option in words; "" when there is nothing to say. Returns buffer. */
const char *options_format_facts(const struct option_spec *spec, char buffer[OPTIONS_FACTS_BYTES]);
/* The word for the value in "--name=WORD", or NULL for a flag. */
const char *options_format_placeholder(const struct option_spec *spec);
/* Lines of at most `width` columns, each beginning with `prefix`. */
void options_print_wrapped(FILE *to, const char *prefix, size_t width, const char *text);

#endif
