/* The two spellings of the configuration file. */
#include "options_case.h"

#include <errno.h>

#include "options_internal.h"

/* ---------------------------------------------------------------- flat */

static void lines_flags_comments_and_blank_lines(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c,
              "# a comment\n\n   \n#realm=wrong.org\n\t# another\nlistening-port=3479\n" LOGIN "fingerprint\n"
              "max-port 50000\nmin-port = 49200\nsock-buf-size\t=\t65536");
    assert_int_equal(c.result, 0);
    assert_string_equal(c.err, "");
    assert_string_equal(c.options->realm, "example.org");
    assert_int_equal(c.options->listening_port, 3479);
    assert_int_equal(c.options->max_port, 50000);
    assert_int_equal(c.options->min_port, 49200);
    assert_int_equal(c.options->sock_buf_size, 65536); /* without a newline at its end */
    assert_true(c.options->fingerprint);
    assert_int_equal(c.options->origins[OPTIONS_ID_listening_port].line, 6);
    assert_string_equal(c.options->origins[OPTIONS_ID_listening_port].file, c.path);
    case_end(&c);
}

static void repeated_keys_add_up(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c,
              "listening-ip=192.0.2.1\nlistening-ip=2001:db8::1\n" LOGIN
              "user=bob:builder\nuser=carol:singer\n",
              "--user=dave:x");
    assert_int_equal(c.result, 0);
    assert_int_equal(c.options->listening_ip.n_items, 2);
    assert_int_equal(c.options->user.n_items, 4);
    assert_string_equal(c.options->user.items[0], "dave:x");
    assert_string_equal(c.options->user.items[3], "carol:singer");
    assert_int_equal(c.options->user.origins[3].line, 7);
    case_end(&c);
}

static void quotes_blanks_carriage_returns_and_a_mark(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c, "\xef\xbb\xbflt-cred-mech\r\n  realm=\"example.org\"\r\nuser=alice:wonder  \t\r\n"
                  "user = \"bob:b u i l d\" \r\nuser=carol:\"q\"\r\nuser=\"\r\n");
    assert_int_equal(c.result, -EINVAL); /* the last line is a user named '"' without a password */
    assert_said(&c, "line 6: user: malformed");
    assert_unsaid(&c, "line 5");
    case_end(&c);
    CASE_FILE(&c, "\xef\xbb\xbflt-cred-mech\r\n  realm=\"example.org\"\r\nuser=alice:wonder  \t\r\n"
                  "user = \"bob:b u i l d\" \r\nuser=carol:\"q\"\r\n");
    assert_int_equal(c.result, 0);
    assert_string_equal(c.options->realm, "example.org");
    assert_string_equal(c.options->user.items[0], "alice:wonder");
    assert_string_equal(c.options->user.items[1], "bob:b u i l d");
    assert_string_equal(c.options->user.items[2], "carol:\"q\"");
    case_end(&c);
}

/* A password may hold what looks like a comment, a separator or an end. */
static void users_keep_every_character_of_their_password(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c, "lt-cred-mech\nrealm=r\nuser=a:p#w\nuser=b:p;w;\nuser=c:p:w=x\nuser d:p=w\nuser=e@x:p\"w\n"
                  "user=f: p\nuser=g:#\nuser=anna:p\xc3\xa4ssw\xc3\xb6rd\n"
                  "user=h:0x00112233445566778899aAbBcCdDeEfF\n");
    assert_int_equal(c.result, 0);
    static const char *const expected[] = {"a:p#w",    "b:p;w;", "c:p:w=x", "d:p=w",
                                           "e@x:p\"w", "f: p",   "g:#",     "anna:p\xc3\xa4ssw\xc3\xb6rd"};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_string_equal(c.options->user.items[i], expected[i]);
    }
    case_end(&c);
}

static void malformed_users_are_told_without_being_shown(void **state) {
    (void)state;
    static const char *const bad[] = {"justaname",
                                      ":password",
                                      "name:",
                                      "k:0x",
                                      "k:0x0011",
                                      "k:0x00112233445566778899aabbccddeefg",
                                      "k:0x00112233445566778899aabbccddeeff0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct options_case c;
        char file[128];
        snprintf(file, sizeof file, "realm=r\nuser=%s\n", bad[i]);
        CASE_FILE(&c, file);
        assert_int_equal(c.result, -EINVAL);
        assert_said(&c, "line 2: user: malformed");
        assert_unsaid(&c, "justaname");
        case_end(&c);
    }
}

static void false_is_off_for_every_flag(void **state) {
    (void)state;
    for (size_t i = 0; i < options_table.n_specs; i++) {
        const struct option_spec *spec = &options_table.specs[i];
        if (spec->kind != OPTION_BOOL || (spec->flags & OPTION_ARGUMENT) != 0) {
            continue;
        }
        static const char *const words[] = {"=false", "=0", " no", " = off"};
        struct options_case c;
        char file[128];
        snprintf(file, sizeof file, "%s%s\nlistening-port=1\nno-auth\n", spec->name, words[i % 4]);
        CASE_FILE(&c, file);
        bool in_table_off = i != OPTIONS_ID_no_auth && i != OPTIONS_ID_stateless_nonce;
        if (c.result == 0 && in_table_off) {
            assert_false(*option_bool(spec, c.options));
        }
        assert_int_equal(c.result, 0);
        case_end(&c);
    }
}

static void unknown_keys_stop_the_start_with_their_line(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c, "listening-port=3478\n" LOGIN "relayy-threads=3\nunheard of\n=5\n");
    assert_int_equal(c.result, -EINVAL);
    char place[256];
    snprintf(place, sizeof place,
             "ERROR: file %s line 5: unknown option 'relayy-threads'; did you mean 'relay-threads'?", c.path);
    assert_said(&c, place);
    assert_said(&c, "line 6: unknown option 'unheard'");
    assert_said(&c, "line 7: a value without a key");
    assert_null(c.options);
    case_end(&c);
}

static void bad_values_are_told_with_line_key_value_and_range(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c, LOGIN "listening-port=banana\nlistening-port=70000\nmax-bps=lots\nlistening-ip=300.1.2.3\n"
                        "relay-ip=1.2.3.4:5\nmultiplex-peer-max-peers=0\nmin-port=\nrelay-threads=129\n");
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "line 4: listening-port: 'banana' is not a number from 1 to 65535 (port)");
    assert_said(&c, "line 5: listening-port: '70000'");
    assert_said(&c, "line 6: max-bps: 'lots'");
    assert_said(&c, "line 7: listening-ip: '300.1.2.3' is wrong");
    assert_said(&c,
                "line 8: relay-ip: '1.2.3.4:5' is wrong; expected an IPv4 or IPv6 address without a port");
    assert_said(&c, "line 9: multiplex-peer-max-peers: '0'");
    assert_said(&c, "line 10: min-port needs a value");
    assert_said(&c, "line 11: relay-threads: '129'");
    case_end(&c);
}

static void optional_numbers_may_stand_alone_or_after_a_blank(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c, LOGIN "stale-nonce\nmax-allocate-lifetime=\nchannel-lifetime 700\npermission-lifetime=3\n");
    assert_int_equal(c.result, 0);
    assert_int_equal(c.options->stale_nonce, 600);
    assert_int_equal(c.options->max_allocate_lifetime, 3600);
    assert_int_equal(c.options->channel_lifetime, 700);
    assert_int_equal(c.options->permission_lifetime, 3);
    case_end(&c);
    CASE_FILE(&c, LOGIN "stale-nonce 10\n");
    assert_int_equal(c.options->stale_nonce, 10);
    case_end(&c);
    CASE_FILE(&c, LOGIN "stale-nonce=0\n");
    assert_int_equal(c.options->stale_nonce, 0);
    case_end(&c);
}

static void zero_bytes_and_huge_files_are_refused(void **state) {
    (void)state;
    struct options_case c;
    static const char binary[] = "realm=a\nrealm=b\0c\nno-auth\n";
    case_load_bytes(&c, binary, sizeof binary - 1, (const char *const[]){NULL});
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "line 2: a zero byte; this is not a text file");
    case_end(&c);
    size_t n = OPTIONS_FILE_MAX_BYTES + 1;
    char *huge = malloc(n);
    assert_non_null(huge);
    memset(huge, '\n', n);
    case_load_bytes(&c, huge, n, (const char *const[]){"--no-auth", NULL});
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "File too large");
    case_end(&c);
    case_load_bytes(&c, huge, n - 1, (const char *const[]){"--no-auth", NULL});
    assert_int_equal(c.result, 0);
    case_end(&c);
    free(huge);
    CASE_FILE(&c, "", "--no-auth");
    assert_int_equal(c.result, 0);
    case_end(&c);
}

/* ---------------------------------------------------------------- which spelling */

static void the_first_line_decides_the_spelling(void **state) {
    (void)state;
    static const char *const structured[] = {
        "listening-port = 3478;",
        "# comment\n\n  realm = \"a\" ; // why",
        "realm: \"a;\\\"b\"; # x",
        "no-udp = true;",
        "stale-nonce = 600L;",
        "users: (",
        "users =\n  ( { name = \"a\"; } );",
        "users: ( { name = \"a\"; password = \"b\"; } );",
        "listening-ip = [ \"1.2.3.4\" ];",
        "listening-ip = [];",
        "peers: { denied = [];",
        "// a comment",
        "/* a comment",
        "@include \"x\"",
    };
    static const char *const flat[] = {
        "",
        "\n\n# listening-port = 3478;\n",
        "listening-port=3478",
        "listening-port = 3478",
        "lt-cred-mech",
        "user=alice:pass;",
        "user=\"alice:pass\"",
        "user=\"alice:pa\nss\";",
        "static-auth-secret=(abc",
        "static-auth-secret=[abc]",
        "static-auth-secret={abc}",
        "listening-ip=[2001:db8::1]",
        "user alice:x;",
        "realm=\"a\"; b",
        "realm=\"a\\",
        "realm=\n3478",
        "=5;",
        "9=5;",
        ";",
    };
    for (size_t i = 0; i < sizeof structured / sizeof structured[0]; i++) {
        if (!options_is_libconfig(structured[i])) {
            fail_msg("taken for flat: %s", structured[i]);
        }
    }
    for (size_t i = 0; i < sizeof flat / sizeof flat[0]; i++) {
        if (options_is_libconfig(flat[i])) {
            fail_msg("taken for structured: %s", flat[i]);
        }
    }
}

/* ---------------------------------------------------------------- structured */

static const char whole[] = "// structured\n"
                            "listening-port = 3479;\n"
                            "listening-ip = [ \"192.0.2.1\",\n"
                            "                 \"2001:db8::1\" ];\n"
                            "realm = \"example.org\";\n"
                            "multiplex-peer = false;\n"
                            "fingerprint = true;\n"
                            "stale-nonce = 10;\n"
                            "static-auth-secret = ( \"one\", \"two\" );\n"
                            "users: (\n"
                            "  { name = \"alice\"; password = \"p:w#;\"; },\n"
                            "  { name = \"bob\"; key = \"00112233445566778899aabbccddeeff\"; },\n"
                            "  { name = \"carol\"; key = \"0x00112233445566778899aabbccddeeff\"; }\n"
                            ");\n"
                            "user = \"dave:x\";\n"
                            "peers: { allowed = \"10.1.2.3\";\n"
                            "         denied = [ \"10.0.0.0/8\", \"192.168.0.0-192.168.0.9\" ]; };\n";

static void structured_files_set_the_same_options(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c, whole, "--realm=args.org");
    assert_int_equal(c.result, 0);
    const struct options *o = c.options;
    assert_int_equal(o->listening_port, 3479);
    assert_int_equal(o->origins[OPTIONS_ID_listening_port].line, 2);
    assert_int_equal(o->listening_ip.n_items, 2);
    assert_string_equal(o->listening_ip.items[1], "2001:db8::1");
    assert_string_equal(o->realm, "args.org");
    assert_false(o->multiplex_peer);
    assert_true(o->fingerprint);
    assert_int_equal(o->stale_nonce, 10);
    assert_int_equal(o->static_auth_secret.n_items, 2);
    assert_int_equal(o->user.n_items, 4);
    assert_string_equal(o->user.items[0], "alice:p:w#;");
    assert_string_equal(o->user.items[1], "bob:0x00112233445566778899aabbccddeeff");
    assert_string_equal(o->user.items[2], "carol:0x00112233445566778899aabbccddeeff");
    assert_string_equal(o->user.items[3], "dave:x");
    assert_string_equal(o->allowed_peer_ip.items[0], "10.1.2.3");
    assert_int_equal(o->denied_peer_ip.n_items, 2);
    case_end(&c);
}

static void structured_mistakes_have_their_line(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *said;
    } cases[] = {
        {"realm = \"r\";\nno-auth = true;\nlistening-port = ;\n", "line 3: syntax error"},
        {"realm = \"r\";\nno-auth = true;\nrelayy-threads = 2;\n",
         "line 3: unknown option 'relayy-threads'; did you"},
        {"no-auth = true;\nlistening-port = 70000;\n", "line 2: listening-port: '70000'"},
        {"no-auth = true;\nlistening-port = -1;\n", "line 2: listening-port: '-1'"},
        {"no-auth = true;\nlistening-port = 1.5;\n", "line 2: listening-port: expected a whole number"},
        {"no-auth = true;\nlistening-port = [ 1, 2 ];\n",
         "line 2: listening-port: takes one value, not a list"},
        {"no-auth = true;\nrealm = \"a\\nb\";\n", "line 2: realm: the value given is wrong"},
        {"no-auth = true;\nrealm = { x = 1; };\n", "line 2: realm: there is no such group"},
        {"no-auth = true;\nrealms: ( { name = \"a\"; } );\n",
         "line 2: realms: several realms are not in this version"},
        {"no-auth = true;\nusers = \"a:b\";\n", "line 2: users: expected a list"},
        {"no-auth = true;\nusers: ( \"a:b\" );\n", "line 2: a value: expected { name"},
        {"no-auth = true;\nusers: ( { name = \"a\"; } );\n", "line 2: a value: a user has name"},
        {"no-auth = true;\nusers: ( { name = \"a\"; password = 5; } );\n",
         "line 2: a value: a user has name"},
        {"no-auth = true;\nusers: ( { name = \"a\"; password = \"b\"; key = \"c\"; } );\n",
         "a user has name"},
        {"no-auth = true;\nusers: ( { name = \"a\"; password = \"b\"; quota = 5; } );\n", "a user has name"},
        {"no-auth = true;\nusers: ( { name = \"a:b\"; password = \"b\"; } );\n",
         "a user's name cannot hold ':'"},
        {"no-auth = true;\npeers = [ \"1.2.3.4\" ];\n", "line 2: peers: expected a group"},
        {"no-auth = true;\npeers: { refused = [ \"1.2.3.4\" ]; };\n", "line 2: refused: not known in peers"},
        {"no-auth = true;\npeers: { denied = [ \"1.2.3.4/33\" ]; };\n",
         "line 2: denied-peer-ip: '1.2.3.4/33' is wrong"},
        {"no-auth = true;\n@include \"/etc/passwd\"\n", "line 2: @include is not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct options_case c;
        CASE_FILE(&c, cases[i].text);
        assert_int_equal(c.result, -EINVAL);
        assert_said(&c, cases[i].said);
        case_end(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_flags_comments_and_blank_lines),
        cmocka_unit_test(repeated_keys_add_up),
        cmocka_unit_test(quotes_blanks_carriage_returns_and_a_mark),
        cmocka_unit_test(users_keep_every_character_of_their_password),
        cmocka_unit_test(malformed_users_are_told_without_being_shown),
        cmocka_unit_test(false_is_off_for_every_flag),
        cmocka_unit_test(unknown_keys_stop_the_start_with_their_line),
        cmocka_unit_test(bad_values_are_told_with_line_key_value_and_range),
        cmocka_unit_test(optional_numbers_may_stand_alone_or_after_a_blank),
        cmocka_unit_test(zero_bytes_and_huge_files_are_refused),
        cmocka_unit_test(the_first_line_decides_the_spelling),
        cmocka_unit_test(structured_files_set_the_same_options),
        cmocka_unit_test(structured_mistakes_have_their_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
