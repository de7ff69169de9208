/* Loading the options of turnserver: command line, cross checks, what is said of options without effect. */
#include "options_case.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "alloc_fault.h"
#include "options_internal.h"

/* ---------------------------------------------------------------- command line */

static void help_lists_honoured_options_and_succeeds(void **state) {
    (void)state;
    static const char *const spellings[] = {"-h", "--help"};
    for (size_t i = 0; i < 2; i++) {
        struct options_case c;
        CASE_ARGUMENTS(&c, spellings[i]);
        assert_int_equal(c.result, OPTIONS_EXIT_OK);
        assert_non_null(strstr(c.out, "-p, --listening-port=PORT  (port, 1 to 65535; default 3478)"));
        assert_non_null(strstr(c.out, "--stale-nonce[=NUMBER]  (seconds, 0 to 31536000; default 600)"));
        assert_null(strstr(c.out, "--redis-userdb"));
        assert_null(strstr(c.out, "--dump"));
#ifdef TURN_UDP_BACKEND_LINUX
        assert_non_null(strstr(c.out, "--udp-recvmmsg-log"));
        assert_non_null(strstr(c.out, "--udp-gso"));
#else
        assert_null(strstr(c.out, "--udp-"));
#endif
        for (const char *line = c.out; *line != '\0'; line += *line == '\n') {
            size_t n = strcspn(line, "\n");
            assert_true(n <= 132);
            line += n;
        }
        case_end(&c);
    }
}

static void version_is_printed_and_succeeds(void **state) {
    (void)state;
    struct options_case c;
    CASE_ARGUMENTS(&c, "--version");
    assert_int_equal(c.result, OPTIONS_EXIT_OK);
    assert_string_equal(c.out, "turnserver (Turntable) " TURN_VERSION "\n");
    case_end(&c);
}

static void unknown_options_fail_and_are_named(void **state) {
    (void)state;
    struct options_case c;
    case_load_bytes(&c, NULL, 0, (const char *const[]){"--no-such-option", NULL});
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "ERROR: command line: unknown option 'no-such-option'");
    case_end(&c);
}

static void a_missing_file_is_named(void **state) {
    (void)state;
    struct options_case c;
    case_load_bytes(&c, NULL, 0, (const char *const[]){"-c", "/nowhere/nowhere.conf", "--no-auth", NULL});
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "cannot find the configuration file /nowhere/nowhere.conf");
    case_end(&c);
    case_load_bytes(&c, NULL, 0, (const char *const[]){"-c", "/tmp", "--no-auth", NULL});
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "cannot read the configuration file /tmp: Is a directory");
    case_end(&c);
}

static void letters_are_those_that_unit_files_use(void **state) {
    (void)state;
    struct options_case c;
    CASE_ARGUMENTS(&c, "-av", "-p", "3479", "-L", "192.0.2.1", "-E192.0.2.2", "-X", "198.51.100.1/192.0.2.2",
                   "-m", "3", "-u", "alice:wonder", "-r", "example.org", "-q", "5", "-Q6", "-f", "-o", "-l",
                   "stdout", "-C", "_", "-K");
    assert_int_equal(c.result, 0);
    const struct options *o = c.options;
    assert_true(o->lt_cred_mech && o->verbose && o->fingerprint && o->daemon && o->keep_address_family);
    assert_int_equal(o->listening_port, 3479);
    assert_string_equal(o->listening_ip.items[0], "192.0.2.1");
    assert_string_equal(o->relay_ip.items[0], "192.0.2.2");
    assert_string_equal(o->external_ip.items[0], "198.51.100.1/192.0.2.2");
    assert_int_equal(o->relay_threads, 3);
    assert_int_equal(o->user_quota, 5);
    assert_int_equal(o->total_quota, 6);
    assert_string_equal(o->rest_api_separator, "_");
    assert_string_equal(o->log_file, "stdout");
    assert_string_equal(o->allocation_default_address_family, "keep");
    case_end(&c);
    CASE_ARGUMENTS(&c, "-zV", "-S");
    assert_int_equal(c.result, 0);
    assert_true(c.options->no_auth && c.options->very_verbose && c.options->verbose && c.options->stun_only);
    case_end(&c);
}

static void defaults_are_the_documented_ones(void **state) {
    (void)state;
    struct options_case c;
    CASE_ARGUMENTS(&c, "--no-auth");
    assert_int_equal(c.result, 0);
    const struct options *o = c.options;
    assert_int_equal(o->listening_port, 3478);
    assert_int_equal(o->min_port, 49152);
    assert_int_equal(o->max_port, 65535);
    assert_int_equal(o->sock_buf_size, 2097152);
    assert_int_equal(o->stale_nonce, 600);
    assert_int_equal(o->max_allocate_lifetime, 3600);
    assert_int_equal(o->channel_lifetime, 600);
    assert_int_equal(o->permission_lifetime, 300);
    assert_int_equal(o->multiplex_peer_port, 3480);
    assert_int_equal(o->multiplex_peer_ports, 1);
    assert_int_equal(o->multiplex_peer_max_peers, 256);
    assert_true(o->udp_recvmmsg && o->udp_sendmmsg && o->udp_gso && o->allow_private_peers &&
                o->stateless_nonce);
    assert_false(o->multiplex_peer || o->software_attribute || o->udp_recvmmsg_log || o->verbose);
    assert_string_equal(o->multiplex_peer_even_port, "refuse");
    assert_string_equal(o->relay_addressing, "auto");
    assert_string_equal(o->allocation_default_address_family, "ipv4");
    case_end(&c);
}

static void the_check_prints_values_with_their_origin(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c, "listening-port=3479\nmax-bps=5\n" LOGIN "static-auth-secret=NORTHERN\n", "-t",
              "--user=bob:builder");
    assert_int_equal(c.result, OPTIONS_EXIT_OK);
    char line[128];
    snprintf(line, sizeof line, "listening-port = 3479  [file %s line 1]\n", c.path);
    assert_non_null(strstr(c.out, line));
    assert_non_null(strstr(c.out, "min-port = 49152  [default]\n"));
    assert_non_null(strstr(c.out, "user = bob:(hidden)  [command line]\n"));
    assert_non_null(strstr(c.out, "user = alice:(hidden)  [file "));
    assert_non_null(strstr(c.out, "static-auth-secret = (hidden)  [file "));
    assert_non_null(strstr(c.out, "relay-ip = (unset)  [default]\n"));
    assert_non_null(strstr(c.out, "use-auth-secret = true"));
    assert_null(strstr(c.out, "wonder"));
    assert_null(strstr(c.out, "NORTHERN"));
    assert_said(&c, "max-bps");
    case_end(&c);
    CASE_FILE(&c, LOGIN "nonsense\n", "--check-config");
    assert_int_equal(c.result, -EINVAL);
    assert_string_equal(c.out, "");
    case_end(&c);
}

/* ---------------------------------------------------------------- every name of coturn's */

static FILE *open_names(void) {
    char path[1024];
    snprintf(path, sizeof path, "%s", __FILE__);
    char *slash = strrchr(path, '/');
    assert_non_null(slash);
    snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "coturn_option_names.txt");
    FILE *names = fopen(path, "r");
    assert_non_null(names);
    return names;
}

static void every_option_name_of_coturn_is_known(void **state) {
    (void)state;
    FILE *names = open_names();
    char name[80];
    size_t n_live = 0, n_removed = 0;
    while (fscanf(names, "%79s", name) == 1) {
        bool live = option_find(&options_table, name) != NULL;
        bool removed = option_find_removed(&options_table, name) != NULL;
        if (live == removed) {
            fail_msg("%s is %s", name, live ? "both live and removed" : "not known");
        }
        n_live += live;
        n_removed += removed;
    }
    fclose(names);
    assert_int_equal(n_live, 144); /* udp-sendmmsg lives on here */
    assert_int_equal(n_removed, OPTIONS_REMOVED_COUNT);
}

/* No option is ignored without a word: a row that is not honoured has a reason or is a flag for what is done
 * anyway. */
static void rows_without_effect_have_a_reason(void **state) {
    (void)state;
    for (size_t i = 0; i < options_table.n_specs; i++) {
        const struct option_spec *spec = &options_table.specs[i];
        bool needs_note = spec->status != OPTION_HONOURED && spec->status != OPTION_QUIET;
        if (needs_note != (spec->note != NULL) && spec->status != OPTION_QUIET) {
            fail_msg("%s", spec->name);
        }
        assert_true(spec->status != OPTION_QUIET || spec->kind == OPTION_BOOL);
        assert_true(spec->kind != OPTION_BOOL || spec->default_text != NULL);
        assert_true(spec->help[strlen(spec->help) - 1] == '.');
        if (spec->letter != 0) {
            assert_ptr_equal(option_find_letter(&options_table, spec->letter), spec);
        }
        assert_ptr_equal(option_find(&options_table, spec->name), spec);
    }
}

static const char *value_for(const struct option_spec *spec) {
    switch (spec->kind) {
    case OPTION_BOOL:
        return "true";
    case OPTION_U32:
    case OPTION_PORT:
        return "77";
    case OPTION_ADDRESS:
    case OPTION_ADDRESS_LIST:
        return "192.0.2.1";
    case OPTION_STRING:
    case OPTION_FILE:
    case OPTION_CHOICE:
    case OPTION_LIST:
        break;
    }
    return "/nowhere/x";
}

static void options_without_effect_are_told_and_refused_ones_stop(void **state) {
    (void)state;
    for (size_t i = 0; i < options_table.n_specs; i++) {
        const struct option_spec *spec = &options_table.specs[i];
        if (spec->status == OPTION_HONOURED || i == OPTIONS_ID_cert || i == OPTIONS_ID_pkey) {
            continue;
        }
        struct options_case c;
        char file[160];
        snprintf(file, sizeof file, LOGIN "%s=%s\n", spec->name, value_for(spec));
        CASE_FILE(&c, file);
        assert_int_equal(c.result, spec->status == OPTION_REFUSED ? -EINVAL : 0);
        if (spec->status == OPTION_QUIET) {
            assert_string_equal(c.err, "");
        } else {
            assert_said(&c, spec->name);
            assert_said(&c, spec->note);
        }
        case_end(&c);
    }
}

static void removed_keys_let_old_files_start(void **state) {
    (void)state;
    for (size_t i = 0; i < OPTIONS_REMOVED_COUNT; i++) {
        struct options_case c;
        char file[160];
        snprintf(file, sizeof file, LOGIN "%s\n", options_removed[i].name);
        CASE_FILE(&c, file);
        assert_int_equal(c.result, 0);
        assert_said(&c, options_removed[i].name);
        case_end(&c);
    }
}

static void warnings_with_one_reason_are_one_line(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c, LOGIN "max-bps=5\nmobility\nbps-capacity=6\nmax-bps=5\n", "--cipher-list=x");
    assert_int_equal(c.result, 0);
    char line[256];
    snprintf(
        line, sizeof line,
        "WARNING: file %s lines 7, 6: bandwidth limits are not in this version; without effect: max-bps, "
        "bps-capacity\n",
        c.path);
    assert_said(&c, line);
    assert_null(strstr(strstr(c.err, "bandwidth") + 1, "bandwidth")); /* said once */
    assert_said(&c, " line 5: mobility (RFC 8016) is not in this version; without effect: mobility\n");
    assert_said(&c,
                "WARNING: command line: this version serves plain UDP, without TLS and DTLS; without effect: "
                "cipher-list\n");
    case_end(&c);
    CASE_FILE(&c, LOGIN
              "max-bps=0\nmobility=false\nunauthorized-ratelimit-rps\nalt-listening-port=0\noauth=false\n");
    assert_int_equal(c.result, 0);
    assert_string_equal(c.err, "");
    case_end(&c);
    CASE_FILE(&c, LOGIN "no-tcp=false\nno-tls=no\nno-cli=false\n");
    assert_int_equal(c.result, 0);
    assert_said(&c, "not TCP clients; without effect: no-tcp");
    assert_said(&c, "without effect: no-tls");
    assert_unsaid(&c, "no-cli");
    case_end(&c);
}

static void a_user_database_is_missed_only_when_it_exists(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c, LOGIN "userdb=/nowhere/db\n");
    assert_int_equal(c.result, 0);
    assert_said(&c, "INFO: userdb: /nowhere/db does not exist");
    assert_unsaid(&c, "WARNING");
    case_end(&c);
    CASE_FILE(&c, LOGIN "db=/dev/null\n");
    assert_said(&c, "WARNING: file ");
    assert_said(&c, "user databases are not read by this version; without effect: userdb");
    case_end(&c);
}

/* ---------------------------------------------------------------- cross checks */

static void contradictions_and_gaps_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *file;
        const char *said; /* NULL: starts */
    } cases[] = {
        {"realm=r\n", "nobody could log in"},
        {"realm=r\nlt-cred-mech\n", "nobody could log in"},
        {"realm=r\nuse-auth-secret\n", "nobody could log in"},
        {"realm=r\nuser=a:b\n", NULL},
        {"realm=r\nstatic-auth-secret=s\n", NULL},
        {"no-auth\n", NULL},
        {"stun-only\n", NULL},
        {"stun-only\nsecure-stun\nrealm=r\n", "nobody could log in"},
        {"no-auth\nlt-cred-mech\n", "line 1: no-auth contradicts lt-cred-mech"},
        {"no-auth\nuse-auth-secret\n", "no-auth contradicts use-auth-secret"},
        {"no-auth\nstatic-auth-secret=s\n", "no-auth contradicts static-auth-secret"},
        {"no-auth\nlt-cred-mech=false\n", NULL},
        {"realm=r\nuse-auth-secret=false\nstatic-auth-secret=s\n",
         "line 2: use-auth-secret=false contradicts"},
        {"realm=r\nlt-cred-mech=false\nuser=a:b\n", "line 2: lt-cred-mech=false contradicts user"},
        {"no-auth\nmin-port=50000\nmax-port=49999\n", "line 2: min-port 50000 is above max-port 49999"},
        {"no-auth\nmax-port=49151\n", "line 2: min-port 49152 is above max-port 49151"},
        {"no-auth\nmin-port=50000\nmax-port=50000\n", NULL},
        {"no-auth\nno-udp\n", "line 2: no-udp"},
        {"no-auth\nno-udp-relay\nno-tcp-relay\n", "line 2: no-udp-relay together with no-tcp-relay"},
        {"no-auth\nno-udp-relay\n", NULL},
        {"stun-only\nno-stun\n", "no-stun together with stun-only"},
        {"no-auth\nrest-api-separator=::\n", "rest-api-separator: expected one character"},
        {"no-auth\nrelay-addressing=steered\n", "line 2: relay-addressing: steered is not in this version"},
        {"no-auth\nrelay-addressing=dedicated\nmultiplex-peer\n", "contradicts multiplex-peer"},
        {"no-auth\nrelay-addressing=shared\nmultiplex-peer=false\n", "contradicts relay-addressing=shared"},
        {"no-auth\nkeep-address-family\nallocation-default-address-family=ipv6\n",
         "keep-address-family contradicts"},
        {"no-auth\nsoftware-attribute\nno-software-attribute\n", "no-software-attribute contradicts"},
        {"no-auth\nsyslog-facility=LOG_LOCAL7\n", NULL},
        {"no-auth\nsyslog-facility=Daemon\n", NULL},
        {"no-auth\nsyslog-facility=local8\n", "line 2: syslog-facility: 'local8' is not known"},
        {"no-auth\nproc-user=nobody-of-that-name\n", "line 2: proc-user: there is no user"},
        {"no-auth\nproc-group=nobody-of-that-name\n", "line 2: proc-group: there is no group"},
        {"no-auth\nproc-user=root\nproc-group=root\n", NULL},
        {"no-auth\nrelay-ip=0.0.0.0\n", "line 2: relay-ip: 0.0.0.0 is told to clients"},
        {"no-auth\nlistening-ip=0.0.0.0\n", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct options_case c;
        CASE_FILE(&c, cases[i].file);
        if ((c.result == 0) != (cases[i].said == NULL)) {
            fail_msg("result %d of:\n%s\n%s", c.result, cases[i].file, c.err);
        }
        if (cases[i].said != NULL) {
            assert_said(&c, cases[i].said);
        }
        case_end(&c);
    }
}

static void shared_ports_end_below_65536(void **state) {
    (void)state;
    struct options_case c;
    CASE_ARGUMENTS(&c, "-z", "--multiplex-peer", "--relay-threads=128", "--multiplex-peer-ports=250",
                   "--multiplex-peer-port=1536");
    assert_int_equal(c.result, 0); /* 1536 + 64000 - 1 = 65535 */
    assert_string_equal(c.options->relay_addressing, "shared");
    assert_int_equal(options_check_shared_ports(c.options, 129, &c.report), -EINVAL);
    assert_int_equal(options_check_shared_ports(c.options, 128, &c.report), 0);
    case_end(&c);
    CASE_ARGUMENTS(&c, "-z", "--multiplex-peer", "--relay-threads=128", "--multiplex-peer-ports=250",
                   "--multiplex-peer-port=1537");
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "would end at port 65536, above 65535");
    case_end(&c);
    CASE_ARGUMENTS(&c, "-z", "--relay-threads=128", "--multiplex-peer-ports=256",
                   "--multiplex-peer-port=65000");
    assert_int_equal(c.result, 0); /* not used */
    case_end(&c);
    CASE_ARGUMENTS(&c, "-z", "--multiplex-peer-port=65001");
    assert_int_equal(c.result, -EINVAL);
    case_end(&c);
}

static void implied_options_are_set(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(
        &c, "realm=r\nstatic-auth-secret=s\nuser=a:b\nno-software-attribute=false\nrelay-addressing=shared\n"
            "stateless-nonce=false\nkeep-address-family\n");
    assert_int_equal(c.result, 0);
    assert_true(c.options->use_auth_secret && c.options->lt_cred_mech && c.options->software_attribute);
    assert_true(c.options->multiplex_peer && c.options->stateless_nonce);
    assert_said(&c, "stateless-nonce=false has no effect");
    assert_string_equal(c.options->allocation_default_address_family, "keep");
    case_end(&c);
    CASE_FILE(&c, "no-auth\nuser=a:b\nno-software-attribute\nallow-loopback-peers\n");
    assert_int_equal(c.result, 0);
    assert_false(c.options->lt_cred_mech || c.options->software_attribute);
    assert_said(&c, "WARNING: file");
    assert_said(&c, "the user lines have no effect");
    assert_said(&c, "line 4: allow-loopback-peers");
    case_end(&c);
}

static void a_realm_is_found_or_asked_for(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c, "static-auth-secret=s\n");
    if (c.result == 0) {
        assert_said(&c, "WARNING: no realm is given; the domain of this machine is taken: ");
        assert_true(c.options->realm[0] != '\0');
    } else {
        assert_int_equal(c.result, -EINVAL);
        assert_said(&c, "add realm=example.org");
    }
    case_end(&c);
}

static void peer_ranges_are_an_address_two_or_a_prefix(void **state) {
    (void)state;
    static const char *const good[] = {"192.0.2.1",
                                       "192.0.2.1-192.0.2.1",
                                       "192.0.2.1-192.0.3.0",
                                       "0.0.0.0/0",
                                       "192.0.2.0/32",
                                       "2001:db8::/128",
                                       "::/0",
                                       "fc00::/7",
                                       "2001:db8::1-2001:db8::ffff"};
    static const char *const bad[] = {"",
                                      "192.0.2",
                                      "192.0.2.1:5",
                                      "192.0.2.2-192.0.2.1",
                                      "192.0.2.1-",
                                      "-192.0.2.1",
                                      "192.0.2.1-2001:db8::1",
                                      "192.0.2.0/33",
                                      "192.0.2.0/",
                                      "192.0.2.0/-1",
                                      "192.0.2.0/24/24",
                                      "2001:db8::/129",
                                      "/8",
                                      "host",
                                      "192.0.2.1-192.0.2.2-192.0.2.3",
                                      "192.0.2.1 - 192.0.2.2"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(options_is_peer_range(good[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(options_is_peer_range(bad[i]));
    }
    char longest[300];
    memset(longest, '1', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    longest[5] = '-';
    assert_false(options_is_peer_range(longest));
    struct options_case c;
    CASE_FILE(&c, LOGIN "allowed-peer-ip=10.0.0.1\ndenied-peer-ip=10.0.0.0/8\nallowed-peer-ip=10.0.0.0/33\n"
                        "denied-peer-ip=x\n");
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "line 6: allowed-peer-ip: '10.0.0.0/33' is wrong");
    assert_said(&c, "line 7: denied-peer-ip: 'x' is wrong");
    assert_unsaid(&c, "line 4");
    case_end(&c);
}

static void external_addresses_are_bare_once_or_pairs(void **state) {
    (void)state;
    struct options_case c;
    CASE_FILE(&c, LOGIN
              "external-ip=198.51.100.1\nexternal-ip=2001:db8::1\nexternal-ip=198.51.100.2/192.168.0.1\n");
    assert_int_equal(c.result, 0);
    case_end(&c);
    static const char *const bad[] = {"198.51.100.1/",  "/10.0.0.1", "198.51.100.1/2001:db8::1", "host",
                                      "198.51.100.1:5", "0.0.0.0",   "1.2.3.4/0.0.0.0.0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char file[128];
        snprintf(file, sizeof file, LOGIN "external-ip=%s\n", bad[i]);
        CASE_FILE(&c, file);
        assert_int_equal(c.result, -EINVAL);
        assert_said(&c, "line 4: external-ip: '");
        case_end(&c);
    }
    CASE_FILE(&c, LOGIN "external-ip=198.51.100.1\nexternal-ip=198.51.100.2\n");
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "line 5: external-ip: a second bare address of one family");
    case_end(&c);
}

/* ---------------------------------------------------------------- certificates */

static void write_pem(const char *path, X509 *certificate, EVP_PKEY *key, const char *password) {
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    if (certificate != NULL) {
        assert_int_equal(PEM_write_X509(to, certificate), 1);
    } else {
        assert_int_equal(PEM_write_PrivateKey(to, key, password == NULL ? NULL : EVP_aes_128_cbc(),
                                              (const unsigned char *)password,
                                              password == NULL ? 0 : (int)strlen(password), NULL, NULL),
                         1);
    }
    fclose(to);
}

struct pems {
    char directory[32];
    char cert[64], key[64], other_key[64], locked_key[64];
};

static void make_pems(struct pems *p) {
    strcpy(p->directory, "/tmp/options-pem-XXXXXX");
    assert_non_null(mkdtemp(p->directory));
    snprintf(p->cert, sizeof p->cert, "%s/cert", p->directory);
    snprintf(p->key, sizeof p->key, "%s/key", p->directory);
    snprintf(p->other_key, sizeof p->other_key, "%s/other", p->directory);
    snprintf(p->locked_key, sizeof p->locked_key, "%s/locked", p->directory);
    EVP_PKEY *key = EVP_EC_gen("P-256"), *other = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    assert_true(key != NULL && other != NULL && certificate != NULL);
    X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    write_pem(p->cert, certificate, NULL, NULL);
    write_pem(p->key, NULL, key, NULL);
    write_pem(p->other_key, NULL, other, NULL);
    write_pem(p->locked_key, NULL, key, "sesame");
    X509_free(certificate);
    EVP_PKEY_free(key);
    EVP_PKEY_free(other);
}

static void remove_pems(const struct pems *p) {
    unlink(p->cert);
    unlink(p->key);
    unlink(p->other_key);
    unlink(p->locked_key);
    rmdir(p->directory);
}

static void load_pair(struct options_case *c, const char *cert, const char *key, const char *more) {
    char file[512];
    snprintf(file, sizeof file, LOGIN "cert=%s\npkey=%s\ntls-listening-port=5349\n%s", cert, key, more);
    CASE_FILE(c, file);
}

static void certificates_exist_and_fit_their_key(void **state) {
    (void)state;
    struct pems p;
    struct options_case c;
    make_pems(&p);
    load_pair(&c, p.cert, p.key, "");
    assert_int_equal(c.result, 0);
    assert_said(&c, "without effect: tls-listening-port, cert, pkey\n");
    case_end(&c);
    load_pair(&c, p.cert, p.other_key, "");
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "line 5: pkey: the key in ");
    assert_said(&c, "does not match the certificate");
    case_end(&c);
    load_pair(&c, "/nowhere/none.pem", p.key, "");
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "line 4: cert: cannot read /nowhere/none.pem: No such file or directory");
    case_end(&c);
    load_pair(&c, p.key, p.cert, "");
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "holds no certificate in PEM form");
    assert_said(&c, "holds no private key in PEM form");
    case_end(&c);
    load_pair(&c, p.cert, p.locked_key, "");
    assert_int_equal(c.result, -EINVAL);
    assert_said(&c, "or one that needs pkey-pwd");
    case_end(&c);
    load_pair(&c, p.cert, p.locked_key, "pkey-pwd=sesame\n");
    assert_int_equal(c.result, 0);
    case_end(&c);
    load_pair(&c, p.cert, p.locked_key, "pkey-pwd=wrong\n");
    assert_int_equal(c.result, -EINVAL);
    assert_unsaid(&c, "wrong");
    case_end(&c);
    load_pair(&c, "/nowhere/none.pem", "/nowhere/key", "no-tls\n");
    assert_int_equal(c.result, 0);
    assert_string_equal(c.err, "");
    case_end(&c);
    load_pair(&c, "/nowhere/none.pem", "/nowhere/key", "no-tls\ndtls\n");
    assert_int_equal(c.result, -EINVAL);
    case_end(&c);
    remove_pems(&p);
}

/* ---------------------------------------------------------------- no memory */

static void no_memory_at_any_point_is_an_error_and_leaks_nothing(void **state) {
    (void)state;
    static const char flat[] =
        "listening-ip=192.0.2.1\nmax-bps=5\n" LOGIN "user=bob:builder\nkeep-address-family\n"
        "relay-addressing=shared\nprod\n";
    static const char structured[] = "realm = \"r\";\nusers: ( { name = \"a\"; password = \"b\"; } );\n"
                                     "listening-ip = [ \"192.0.2.1\" ];\nmax-bps = 5;\n";
    static const char *const files[] = {flat, structured};
    for (size_t i = 0; i < 2; i++) {
        bool hit = true;
        for (uint64_t n = 1; hit; n++) {
            struct options_case c;
            alloc_fault_arm(n);
            CASE_FILE(&c, files[i], "--pidfile=/x", "-v");
            alloc_fault_disarm();
            hit = alloc_fault_hit();
            assert_int_equal(c.result, hit ? -ENOMEM : 0);
            if (hit) {
                assert_null(c.options);
                assert_said(&c, "out of memory");
            }
            case_end(&c);
            assert_true(n < 1000);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_lists_honoured_options_and_succeeds),
        cmocka_unit_test(version_is_printed_and_succeeds),
        cmocka_unit_test(unknown_options_fail_and_are_named),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(letters_are_those_that_unit_files_use),
        cmocka_unit_test(defaults_are_the_documented_ones),
        cmocka_unit_test(the_check_prints_values_with_their_origin),
        cmocka_unit_test(every_option_name_of_coturn_is_known),
        cmocka_unit_test(rows_without_effect_have_a_reason),
        cmocka_unit_test(options_without_effect_are_told_and_refused_ones_stop),
        cmocka_unit_test(removed_keys_let_old_files_start),
        cmocka_unit_test(warnings_with_one_reason_are_one_line),
        cmocka_unit_test(a_user_database_is_missed_only_when_it_exists),
        cmocka_unit_test(contradictions_and_gaps_are_refused),
        cmocka_unit_test(shared_ports_end_below_65536),
        cmocka_unit_test(implied_options_are_set),
        cmocka_unit_test(a_realm_is_found_or_asked_for),
        cmocka_unit_test(peer_ranges_are_an_address_two_or_a_prefix),
        cmocka_unit_test(external_addresses_are_bare_once_or_pairs),
        cmocka_unit_test(certificates_exist_and_fit_their_key),
        cmocka_unit_test(no_memory_at_any_point_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
