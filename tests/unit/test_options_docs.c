/* What is committed of the man page, the sample file and the documentation is what the table yields; when
 * this fails, scripts/update-option-docs writes them anew. */
#include "options_case.h"

#include "options_internal.h"

/* A file of the project, from where this source is. The caller frees it. */
static char *read_project_file(const char *name) {
    char path[1024];
    const char *own = strstr(__FILE__, "tests/unit/");
    assert_non_null(own);
    snprintf(path, sizeof path, "%.*s%s", (int)(own - __FILE__), __FILE__, name);
    char *text;
    size_t n;
    assert_int_equal(options_read_whole(&text, &n, path), 0);
    return text;
}

static void assert_part_is(const char *file, void (*print)(FILE *)) {
    char *text = read_project_file(file);
    char *begin = strstr(text, "BEGIN OPTIONS");
    assert_non_null(begin);
    begin = strchr(begin, '\n') + 1;
    char *end = strstr(begin, "END OPTIONS");
    assert_non_null(end);
    while (end[-1] != '\n') {
        end--;
    }
    *end = '\0';
    char *yields = NULL;
    size_t n;
    FILE *to = open_memstream(&yields, &n);
    assert_non_null(to);
    print(to);
    fclose(to);
    assert_string_equal(begin, yields);
    free(yields);
    free(text);
}

static void the_man_page_is_what_the_table_yields(void **state) {
    (void)state;
    assert_part_is("man/turnserver.1", options_print_man);
}

static void the_sample_file_is_what_the_table_yields(void **state) {
    (void)state;
    assert_part_is("examples/etc/turnserver.conf", options_print_sample);
}

static void the_documentation_is_what_the_table_yields(void **state) {
    (void)state;
    assert_part_is("docs/configuration.md", options_print_markdown);
}

static void the_dumps_print_these_parts(void **state) {
    (void)state;
    static const char *const dumps[] = {"--dump=man", "--dump=sample", "--dump=markdown"};
    static const char *const holds[] = {".SS Listeners\n", "\n#listening-port=3478\n",
                                        "| `listening-port` (`-p`) |"};
    for (size_t i = 0; i < 3; i++) {
        struct options_case c;
        CASE_ARGUMENTS(&c, dumps[i]);
        assert_int_equal(c.result, OPTIONS_EXIT_OK);
        assert_non_null(strstr(c.out, holds[i]));
        case_end(&c);
    }
}

/* Every key that the sample shows is taken once the '#' before it is gone. */
static void the_keys_of_the_sample_are_known(void **state) {
    (void)state;
    char *text = read_project_file("examples/etc/turnserver.conf");
    size_t n_keys = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (line[0] != '#' || line[1] == ' ' || line[1] == '\0') {
            continue;
        }
        line[1 + strcspn(line + 1, "=")] = '\0';
        assert_non_null(option_find(&options_table, line + 1));
        n_keys++;
    }
    size_t n_honoured = 0;
    for (size_t i = 0; i < options_table.n_specs; i++) {
        n_honoured += options_table.specs[i].status == OPTION_HONOURED &&
                      (options_table.specs[i].flags & (OPTION_ARGUMENT | OPTION_HIDDEN)) == 0;
    }
    assert_int_equal(n_keys, n_honoured);
    free(text);
}

static void example_files_start_once_a_secret_is_given(void **state) {
    (void)state;
    static const char *const files[] = {"examples/etc/turnserver.conf",
                                        "examples/etc/turnserver-hardened.conf"};
    for (size_t i = 0; i < 2; i++) {
        char *text = read_project_file(files[i]);
        struct options_case c;
        CASE_FILE(&c, text);
        assert_said(&c, "nobody could log in: add static-auth-secret=SECRET");
        case_end(&c);
        CASE_FILE(&c, text, "--realm=example.org", "--static-auth-secret=x");
        assert_int_equal(c.result, 0);
        assert_string_equal(c.err, "");
        case_end(&c);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_man_page_is_what_the_table_yields),
        cmocka_unit_test(the_sample_file_is_what_the_table_yields),
        cmocka_unit_test(the_documentation_is_what_the_table_yields),
        cmocka_unit_test(the_dumps_print_these_parts),
        cmocka_unit_test(the_keys_of_the_sample_are_known),
        cmocka_unit_test(example_files_start_once_a_secret_is_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
