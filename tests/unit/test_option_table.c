/* The engine, on a small table of its own. */
#include "option_table.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fault.h"

struct values {
    bool flag, on;
    uint32_t count, port, seconds, pin;
    char *name, *address, *color, *password;
    struct option_list words, addresses, users;
};

enum {
    FLAG,
    ON,
    COUNT,
    PORT,
    SECONDS,
    NAME,
    ADDRESS,
    COLOR,
    PASSWORD,
    WORDS,
    ADDRESSES,
    USERS,
    PIN,
    ONLY_ARGUMENT,
    N
};

#define ROW(name, letter, kind, field, def, min, max, unit, flags)                                           \
    {                                                                                                        \
        name, letter, kind, offsetof(struct values, field), def, min, max, unit, OPTION_START, flags,        \
            OPTION_HONOURED, 0, NULL, "help"                                                                 \
    }

static const struct option_spec specs[N] = {
    [FLAG] = ROW("flag", 'f', OPTION_BOOL, flag, "false", 0, 0, "", 0),
    [ON] = ROW("on", 'o', OPTION_BOOL, on, "true", 0, 0, "", 0),
    [COUNT] = ROW("count", 'c', OPTION_U32, count, "7", 5, 4294967295, "things", 0),
    [PORT] = ROW("port", 'p', OPTION_PORT, port, "3478", 1, 65535, "port", 0),
    [SECONDS] = ROW("seconds", 's', OPTION_U32, seconds, "600", 0, 1000, "seconds", OPTION_VALUE_OPTIONAL),
    [NAME] = ROW("name", 'n', OPTION_STRING, name, NULL, 0, 0, "TEXT", 0),
    [ADDRESS] = ROW("address", 'a', OPTION_ADDRESS, address, "127.0.0.1", 0, 0, "ADDRESS", 0),
    [COLOR] = ROW("color", 0, OPTION_CHOICE, color, "red", 0, 0, "red|green|blue", 0),
    [PASSWORD] = ROW("password", 0, OPTION_STRING, password, NULL, 0, 0, "PASSWORD", OPTION_SECRET),
    [WORDS] = ROW("words", 'w', OPTION_LIST, words, NULL, 0, 0, "WORD", 0),
    [ADDRESSES] = ROW("addresses", 'L', OPTION_ADDRESS_LIST, addresses, NULL, 0, 0, "ADDRESS", 0),
    [USERS] = ROW("users", 'u', OPTION_LIST, users, NULL, 0, 0, "NAME:PASSWORD", OPTION_NAMED_SECRET),
    [PIN] = ROW("pin", 0, OPTION_U32, pin, NULL, 0, 9999, "digits", OPTION_SECRET),
    [ONLY_ARGUMENT] =
        ROW("only-argument", 0, OPTION_BOOL, flag, NULL, 0, 0, "", OPTION_ARGUMENT | OPTION_HIDDEN),
};
static const struct option_alias aliases[] = {{"title", "name"}};
static const struct option_removed removed[] = {{"old", false, OPTION_NOTE, "is gone"},
                                                {"older", true, OPTION_WARNING, "is gone too"},
                                                {"unsafe", false, OPTION_ERROR, "would be unsafe"}};
static const char *const groups[] = {"All"};
static const struct option_table table = {.specs = specs,
                                          .n_specs = N,
                                          .aliases = aliases,
                                          .n_aliases = 1,
                                          .removed = removed,
                                          .n_removed = 3,
                                          .groups = groups,
                                          .n_groups = 1};

struct fixture {
    struct values values;
    struct option_origin origins[N];
    struct option_report report;
    struct option_state state;
};

static const struct option_origin command_line = {.source = OPTION_FROM_COMMAND_LINE};

static struct option_origin line(uint32_t number) {
    return (struct option_origin){.source = OPTION_FROM_FILE, .file = "/etc/x.conf", .line = number};
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->state = (struct option_state){
        .table = &table, .values = &f->values, .origins = f->origins, .report = &f->report};
    assert_int_equal(option_state_init(&f->state), 0);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    option_values_deinit(&table, &f->values);
    option_report_deinit(&f->report);
    free(f);
    return 0;
}

static int set_line(struct fixture *f, const char *name, const char *text, uint32_t number) {
    struct option_origin where = line(number);
    return option_set_named(&f->state, name, text, &where);
}

static bool said(const struct fixture *f, enum option_severity severity, const char *text) {
    for (size_t i = 0; i < f->report.n_messages; i++) {
        if (f->report.messages[i].severity == severity && strstr(f->report.messages[i].text, text) != NULL) {
            return true;
        }
    }
    return false;
}

static int parse(struct fixture *f, const char *const *argv) {
    int argc = 0;
    while (argv[argc] != NULL) {
        argc++;
    }
    return option_parse_arguments(&f->state, argc, (char *const *)argv);
}

#define PARSE(f, ...) parse(f, (const char *const[]){"program", __VA_ARGS__, NULL})

static void defaults_are_set_and_marked_as_such(void **state) {
    struct fixture *f = *state;
    assert_false(f->values.flag);
    assert_true(f->values.on);
    assert_int_equal(f->values.count, 7);
    assert_string_equal(f->values.address, "127.0.0.1");
    assert_null(f->values.name);
    assert_int_equal(f->values.words.n_items, 0);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(option_origin_of(&f->state, &specs[i])->source, OPTION_FROM_DEFAULT);
    }
}

static void flags_know_every_word_for_true_and_false(void **state) {
    struct fixture *f = *state;
    static const char *const no[] = {"false", "no", "off", "0", "False", "OFF"};
    static const char *const yes[] = {"true", "yes", "on", "1", "TRUE", "", NULL};
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) {
        assert_int_equal(set_line(f, "flag", yes[i], 1), 0);
        assert_true(f->values.flag);
        assert_int_equal(set_line(f, "flag", no[i], 2), 0);
        assert_false(f->values.flag);
    }
    assert_int_equal(set_line(f, "flag", NULL, 3), 0);
    assert_true(f->values.flag);
    assert_int_equal(set_line(f, "flag", "maybe", 4), -EINVAL);
    assert_true(
        said(f, OPTION_ERROR, "file /etc/x.conf line 4: flag: 'maybe' is wrong; expected true or false"));
    assert_true(f->values.flag);
}

static void numbers_are_bounded_on_both_sides(void **state) {
    struct fixture *f = *state;
    assert_int_equal(set_line(f, "count", "5", 1), 0);
    assert_int_equal(f->values.count, 5);
    assert_int_equal(set_line(f, "count", "4294967295", 2), 0);
    assert_true(f->values.count == 4294967295u);
    static const char *const bad[] = {"4",
                                      "4294967296",
                                      "99999999999999999999",
                                      "18446744073709551621",
                                      "-5",
                                      "+5",
                                      "5x",
                                      "5 ",
                                      " 5",
                                      "0x10",
                                      "",
                                      "5.0",
                                      "banana"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(set_line(f, "count", bad[i], 3), -EINVAL);
    }
    assert_true(f->values.count == 4294967295u);
    assert_true(said(f, OPTION_ERROR, "count: 'banana' is not a number from 5 to 4294967295 (things)"));
    assert_int_equal(set_line(f, "port", "0", 3), -EINVAL);
    assert_int_equal(set_line(f, "port", "1", 3), 0);
    assert_int_equal(set_line(f, "port", "65535", 3), 0);
    assert_int_equal(set_line(f, "port", "65536", 3), -EINVAL);
    assert_int_equal(set_line(f, "port", "3478 # main", 3), -EINVAL);
    assert_true(said(f, OPTION_ERROR, "a comment needs a line of its own"));
}

static void the_bare_key_of_an_optional_value_is_its_default(void **state) {
    struct fixture *f = *state;
    assert_int_equal(set_line(f, "seconds", "10", 1), 0);
    assert_int_equal(set_line(f, "seconds", NULL, 2), 0);
    assert_int_equal(f->values.seconds, 600);
    assert_int_equal(set_line(f, "seconds", "", 3), 0);
    assert_int_equal(f->values.seconds, 600);
    assert_int_equal(set_line(f, "count", NULL, 4), -EINVAL);
    assert_true(said(f, OPTION_ERROR, "line 4: count needs a value (things)"));
    assert_int_equal(set_line(f, "name", "", 5), -EINVAL);
}

static void choices_are_whole_words(void **state) {
    struct fixture *f = *state;
    assert_int_equal(set_line(f, "color", "blue", 1), 0);
    assert_string_equal(f->values.color, "blue");
    assert_int_equal(set_line(f, "color", "GREEN", 2), 0);
    assert_string_equal(f->values.color, "green");
    static const char *const bad[] = {"gree", "greens", "red|green", "|", "yellow"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(set_line(f, "color", bad[i], 3), -EINVAL);
    }
}

static void addresses_are_canonical_and_have_no_port(void **state) {
    struct fixture *f = *state;
    assert_int_equal(set_line(f, "address", "2001:DB8:0::1", 1), 0);
    assert_string_equal(f->values.address, "2001:db8::1");
    static const char *const bad[] = {"300.1.2.3", "1.2.3", "1.2.3.4:5", "[::1]:5", "localhost", "1.2.3.4 "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(set_line(f, "address", bad[i], 2), -EINVAL);
    }
    assert_true(said(f, OPTION_ERROR, "'300.1.2.3' is wrong"));
    assert_int_equal(set_line(f, "addresses", "2001:db8::1", 3), 0);
    assert_int_equal(set_line(f, "addresses", "2001:DB8::0:1", 4), 0);
    assert_int_equal(set_line(f, "addresses", "192.0.2.1", 5), 0);
    assert_int_equal(f->values.addresses.n_items, 2);
    assert_true(said(f, OPTION_WARNING, "line 4: addresses: 2001:db8::1 is given twice"));
}

static void control_characters_are_refused(void **state) {
    struct fixture *f = *state;
    assert_int_equal(set_line(f, "name", "a\nb", 1), -EINVAL);
    assert_int_equal(set_line(f, "words", "a\x7f", 2), -EINVAL);
    assert_int_equal(set_line(f, "words", "\xc3\xa4 ~", 3), 0);
    assert_int_equal(f->values.words.n_items, 1);
    assert_int_equal(set_line(f, "na\x01me", "x", 4), -EINVAL);
    assert_true(said(f, OPTION_ERROR, "(unprintable)"));
}

static void the_command_line_wins_over_the_file_in_any_order(void **state) {
    struct fixture *f = *state;
    assert_int_equal(set_line(f, "name", "file", 1), 0);
    assert_int_equal(option_set_named(&f->state, "name", "args", &command_line), 0);
    assert_string_equal(f->values.name, "args");
    assert_int_equal(set_line(f, "name", "file again", 2), 0);
    assert_string_equal(f->values.name, "args");
    assert_int_equal(option_origin_of(&f->state, &specs[NAME])->source, OPTION_FROM_COMMAND_LINE);
    assert_int_equal(f->report.n_messages, 0);
    assert_int_equal(set_line(f, "count", "1", 3), -EINVAL); /* the loser is still looked at */
}

static void a_repeated_scalar_counts_as_given_last_with_a_warning(void **state) {
    struct fixture *f = *state;
    assert_int_equal(set_line(f, "count", "10", 3), 0);
    assert_int_equal(f->report.n_messages, 0);
    assert_int_equal(set_line(f, "count", "11", 9), 0);
    assert_int_equal(f->values.count, 11);
    assert_int_equal(option_origin_of(&f->state, &specs[COUNT])->line, 9);
    assert_true(said(f, OPTION_WARNING,
                     "file /etc/x.conf line 9: count is given again; this one replaces the one of file "
                     "/etc/x.conf line 3"));
}

static void lists_add_up_and_keep_each_origin(void **state) {
    struct fixture *f = *state;
    assert_int_equal(option_set_named(&f->state, "words", "a", &command_line), 0);
    assert_int_equal(set_line(f, "words", "b", 4), 0);
    assert_int_equal(set_line(f, "words", "b", 5), 0);
    assert_int_equal(f->values.words.n_items, 3);
    assert_string_equal(f->values.words.items[1], "b");
    assert_int_equal(f->values.words.origins[0].source, OPTION_FROM_COMMAND_LINE);
    assert_int_equal(f->values.words.origins[2].line, 5);
    assert_int_equal(f->report.n_messages, 0);
}

static void unknown_names_are_named_with_the_nearest_known_one(void **state) {
    struct fixture *f = *state;
    assert_int_equal(set_line(f, "adress", "x", 8), -EINVAL);
    assert_true(
        said(f, OPTION_ERROR, "file /etc/x.conf line 8: unknown option 'adress'; did you mean 'address'?"));
    assert_int_equal(set_line(f, "completely-else", "x", 9), -EINVAL);
    assert_true(said(f, OPTION_ERROR, "unknown option 'completely-else'"));
    assert_null(option_suggest(&table, "completely-else"));
    assert_null(option_suggest(&table, ""));
    assert_null(option_suggest(&table, "only-argumen")); /* hidden */
    assert_string_equal(option_suggest(&table, "Flag"), "flag");
    assert_string_equal(option_suggest(&table, "fla"), "flag");
    assert_null(option_suggest(&table, "fl"));
    char longest[100];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(option_suggest(&table, longest));
}

static void removed_keys_and_aliases_are_known(void **state) {
    struct fixture *f = *state;
    assert_int_equal(set_line(f, "old", NULL, 1), 0);
    assert_true(said(f, OPTION_NOTE, "line 1: old: is gone"));
    assert_int_equal(set_line(f, "older", "x", 2), 0);
    assert_true(said(f, OPTION_WARNING, "line 2: older: is gone too"));
    assert_int_equal(set_line(f, "unsafe", NULL, 3), -EINVAL);
    assert_int_equal(set_line(f, "title", "x", 4), 0);
    assert_string_equal(f->values.name, "x");
    assert_int_equal(set_line(f, "only-argument", NULL, 5), -EINVAL);
    assert_true(said(f, OPTION_ERROR, "only-argument is for the command line only"));
}

static void secrets_are_in_no_message_and_no_dump(void **state) {
    struct fixture *f = *state;
    char buffer[64];
    assert_int_equal(set_line(f, "password", "S3CRET", 1), 0);
    assert_int_equal(set_line(f, "password", "S3C\x01RET", 2), -EINVAL);
    assert_int_equal(set_line(f, "users", "alice:S3CRET", 3), 0);
    assert_int_equal(set_line(f, "users", "S3CRET", 4), 0);
    assert_string_equal(option_format_value(&specs[PASSWORD], &f->values, 0, buffer, sizeof buffer),
                        "(hidden)");
    assert_string_equal(option_format_value(&specs[USERS], &f->values, 0, buffer, sizeof buffer),
                        "alice:(hidden)");
    assert_string_equal(option_format_value(&specs[USERS], &f->values, 1, buffer, sizeof buffer), "(hidden)");
    assert_string_equal(option_format_value(&specs[USERS], &f->values, 2, buffer, sizeof buffer), "");
    assert_string_equal(option_format_value(&specs[COUNT], &f->values, 0, buffer, sizeof buffer), "7");
    assert_string_equal(option_format_value(&specs[ON], &f->values, 0, buffer, sizeof buffer), "true");
    assert_int_equal(set_line(f, "pin", "S3CRET", 5), -EINVAL);
    assert_true(said(f, OPTION_ERROR, "pin: the value given is not a number from 0 to 9999"));
    assert_false(said(f, OPTION_ERROR, "S3C"));
}

static void long_options_take_values_after_equals_or_blank(void **state) {
    struct fixture *f = *state;
    assert_int_equal(
        PARSE(f, "--count=8", "--name", "--x=y", "--words", "a", "--words=b=c", "--flag", "--on=false"), 0);
    assert_int_equal(f->values.count, 8);
    assert_string_equal(f->values.name, "--x=y");
    assert_int_equal(f->values.words.n_items, 2);
    assert_string_equal(f->values.words.items[1], "b=c");
    assert_true(f->values.flag);
    assert_false(f->values.on);
}

static void an_optional_value_after_a_blank_counts_when_it_is_a_number(void **state) {
    struct fixture *f = *state;
    assert_int_equal(PARSE(f, "--seconds", "10", "--flag"), 0);
    assert_int_equal(f->values.seconds, 10);
    assert_true(f->values.flag);
    assert_int_equal(PARSE(f, "--seconds", "--flag"), 0);
    assert_int_equal(f->values.seconds, 600);
    assert_int_equal(PARSE(f, "--seconds=1000"), 0);
    assert_int_equal(f->values.seconds, 1000);
    assert_int_equal(PARSE(f, "--seconds"), 0);
    assert_int_equal(f->values.seconds, 600);
}

static void letters_may_stand_together_and_hold_their_value(void **state) {
    struct fixture *f = *state;
    assert_int_equal(PARSE(f, "-fop3479", "-c", "9", "-w", "x", "-wy", "-nNAME"), 0);
    assert_true(f->values.flag);
    assert_int_equal(f->values.port, 3479);
    assert_int_equal(f->values.count, 9);
    assert_int_equal(f->values.words.n_items, 2);
    assert_string_equal(f->values.name, "NAME");
}

static void every_mistake_on_the_command_line_is_told(void **state) {
    struct fixture *f = *state;
    char longest[120] = "--";
    memset(longest + 2, 'a', sizeof longest - 3);
    assert_int_equal(PARSE(f, "--nothing", "-y", "stray", "--count=x", "-", "--", longest, "--old", "--older",
                           "5", "--flag", "--name"),
                     -EINVAL);
    assert_true(said(f, OPTION_ERROR, "command line: unknown option 'nothing'"));
    assert_true(said(f, OPTION_ERROR, "command line: unknown option '-y'"));
    assert_true(said(f, OPTION_ERROR, "command line: unexpected argument 'stray'"));
    assert_true(said(f, OPTION_ERROR, "command line: count: 'x'"));
    assert_true(said(f, OPTION_ERROR, "unexpected argument '-'"));
    assert_true(said(f, OPTION_ERROR, "unexpected argument '--'"));
    assert_true(said(f, OPTION_ERROR, "unknown option '--aaaa"));
    assert_false(said(f, OPTION_ERROR, "'5'"));
    assert_true(said(f, OPTION_ERROR, "name needs a value"));
    assert_true(f->values.flag);
    assert_int_equal(PARSE(f, "-c"), -EINVAL);
}

static void messages_print_with_their_severity(void **state) {
    struct fixture *f = *state;
    char *text = NULL;
    size_t n;
    option_report_add(&f->report, OPTION_NOTE, NULL, "one");
    option_report_add(&f->report, OPTION_WARNING, &command_line, "two");
    struct option_origin where = line(3);
    option_report_add(&f->report, OPTION_ERROR, &where, "three");
    FILE *to = open_memstream(&text, &n);
    assert_non_null(to);
    option_report_print(&f->report, to);
    fclose(to);
    assert_string_equal(text,
                        "INFO: one\nWARNING: command line: two\nERROR: file /etc/x.conf line 3: three\n");
    assert_int_equal(f->report.n_errors, 1);
    free(text);
}

/* Sets something of each kind; 0, or what failed. */
static int fill(struct fixture *f) {
    static const char *const argv[] = {"program", "--name=a",  "--name=b", "--address=::1", "--color=blue",
                                       "-wx",     "-wy",       "-L::1",    "-L::1",         "--users=a:b",
                                       "--old",   "--count=9", NULL};
    f->state = (struct option_state){
        .table = &table, .values = &f->values, .origins = f->origins, .report = &f->report};
    int err = option_state_init(&f->state);
    err = err < 0 ? err : parse(f, argv);
    return err == 0 && f->report.out_of_memory ? -ENOMEM : err;
}

static void no_memory_at_any_point_is_an_error_and_leaks_nothing(void **state) {
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct fixture f = {0};
        alloc_fault_arm(n);
        int err = fill(&f);
        alloc_fault_disarm();
        bool hit = alloc_fault_hit();
        assert_int_equal(err, hit ? -ENOMEM : 0);
        option_values_deinit(&table, &f.values);
        option_report_deinit(&f.report);
        if (!hit) {
            assert_true(n > 10);
            return;
        }
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_set_and_marked_as_such),
        TEST(flags_know_every_word_for_true_and_false),
        TEST(numbers_are_bounded_on_both_sides),
        TEST(the_bare_key_of_an_optional_value_is_its_default),
        TEST(choices_are_whole_words),
        TEST(addresses_are_canonical_and_have_no_port),
        TEST(control_characters_are_refused),
        TEST(the_command_line_wins_over_the_file_in_any_order),
        TEST(a_repeated_scalar_counts_as_given_last_with_a_warning),
        TEST(lists_add_up_and_keep_each_origin),
        TEST(unknown_names_are_named_with_the_nearest_known_one),
        TEST(removed_keys_and_aliases_are_known),
        TEST(secrets_are_in_no_message_and_no_dump),
        TEST(long_options_take_values_after_equals_or_blank),
        TEST(an_optional_value_after_a_blank_counts_when_it_is_a_number),
        TEST(letters_may_stand_together_and_hold_their_value),
        TEST(every_mistake_on_the_command_line_is_told),
        TEST(messages_print_with_their_severity),
        cmocka_unit_test(no_memory_at_any_point_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
