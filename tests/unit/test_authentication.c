/* The long-term credential mechanism as a client meets it (RFC 8489, 9.2.4; RFC 8656, 5). */
#include "core_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "nonce.h"

static struct core_fixture *fixture_with(struct core_fixture_params params) {
    struct core_fixture *f;
    assert_int_equal(core_fixture_create(&f, &params), 0);
    return f;
}

static int set_up(void **state) {
    *state = fixture_with((struct core_fixture_params){0});
    return 0;
}

static int tear_down(void **state) {
    core_fixture_destroy(*state);
    return 0;
}

static void begin_allocate(struct core_fixture *f, struct fixture_message *m) {
    fixture_begin(f, m, STUN_REQUEST, STUN_METHOD_ALLOCATE);
    stun_write_u8_reserved(&m->w, STUN_ATTR_REQUESTED_TRANSPORT, STUN_TRANSPORT_UDP);
}

static void assert_text(const struct core_fixture *f, uint16_t type, const char *wanted) {
    struct stun_attribute a;
    assert_true(stun_message_find(&f->reply, type, &a));
    assert_int_equal(a.n_bytes, strlen(wanted));
    assert_memory_equal(a.value, wanted, a.n_bytes);
}

static void assert_challenge(const struct core_fixture *f) {
    assert_text(f, STUN_ATTR_REALM, "example.org");
    assert_true(fixture_has(f, STUN_ATTR_NONCE));
    assert_false(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY) ||
                 fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY_SHA256));
    assert_false(fixture_has(f, STUN_ATTR_USERNAME) || fixture_has(f, STUN_ATTR_USERHASH));
}

static void assert_no_challenge(const struct core_fixture *f) {
    assert_false(fixture_has(f, STUN_ATTR_REALM) || fixture_has(f, STUN_ATTR_NONCE));
    assert_false(fixture_has(f, STUN_ATTR_USERNAME) || fixture_has(f, STUN_ATTR_USERHASH));
    assert_false(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
}

/* ---- the challenge ---- */

static void unsigned_request_is_challenged(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client_of(f, NULL, NULL);
    struct fixture_message m;
    begin_allocate(f, &m);
    assert_int_equal(fixture_send(&c, &m), STUN_UNAUTHENTICATED);
    assert_challenge(f);
    assert_true(fixture_has(f, STUN_ATTR_PASSWORD_ALGORITHMS));
    const struct core_event_info *e = core_fixture_last_event(f);
    assert_int_equal(e->status, STUN_UNAUTHENTICATED);
    assert_null(e->username);
    assert_false(e->authenticated);
}

/* What a spoofed sender can make us send: bytes of the reply per byte of the bare Allocate, both with IPv4
 * and UDP headers. */
static void challenge_is_small(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client_of(f, NULL, NULL);
    struct fixture_message m;
    begin_allocate(f, &m);
    assert_int_equal(fixture_send(&c, &m), STUN_UNAUTHENTICATED);
    print_message("bare Allocate of %zu bytes, challenge of %zu\n", (size_t)wire_written(&m.w),
                  f->n_reply_bytes);
    assert_in_range(f->n_reply_bytes, 1, 112);
}

static void unknown_attribute_waits_for_authentication(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client_of(f, NULL, NULL);
    struct fixture_message m;
    begin_allocate(f, &m);
    stun_write_bytes(&m.w, 0x7f11, "12", 2);
    assert_int_equal(fixture_send(&c, &m), STUN_UNAUTHENTICATED);
}

static void nonces_differ_and_serve_from_anywhere(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client a = fixture_client(f), b = fixture_client(f);
    fixture_log_in(&a);
    fixture_log_in(&b);
    assert_string_not_equal(a.nonce, b.nonce);
    /* the client's next port, perhaps another thread */
    memcpy(b.nonce, a.nonce, sizeof b.nonce);
    assert_int_equal(fixture_allocate(&b), STUN_OK);
}

static void features_tell_what_the_users_allow(void **state) {
    (void)state;
    static const char *const hashed[] = {"h:0x00112233445566778899aabbccddeeff", NULL};
    static const char *const mixed[] = {"h:0x00112233445566778899aabbccddeeff", "p:password", NULL};
    static const char *const nobody[] = {NULL};
    static const char *const secrets[] = {"north", NULL};
    static const struct {
        const char *const *users, *const *secrets;
        const char *cookie;
        bool offers;
    } rows[] = {{hashed, NULL, "obMatJos2QAAA", false},
                {mixed, NULL, "obMatJos2wAAA", true},
                {nobody, secrets, "obMatJos2gAAA", true},
                {hashed, secrets, "obMatJos2wAAA", true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct core_fixture *f =
            fixture_with((struct core_fixture_params){.users = rows[i].users, .secrets = rows[i].secrets});
        struct fixture_client c = fixture_client(f);
        fixture_log_in(&c);
        assert_memory_equal(c.nonce, rows[i].cookie, 13);
        assert_int_equal(fixture_has(f, STUN_ATTR_PASSWORD_ALGORITHMS), rows[i].offers);
        core_fixture_destroy(f);
    }
}

/* ---- refusals ---- */

static void refused_login_is_reported_with_its_name(void **state) {
    struct core_fixture *f = *state;
    static const struct {
        const char *user, *password, *detail;
    } rows[] = {{"alice", "wrong", "wrong password"}, {"mallory", "wonder", "unknown user"}};
    uint8_t first[CORE_REPLY_MAX_BYTES];
    f->config.reason_strings = true; /* which does not reach strangers */
    for (size_t i = 0; i < 2; i++) {
        struct fixture_client c = fixture_client_of(f, rows[i].user, rows[i].password);
        struct fixture_message m;
        fixture_log_in(&c);
        begin_allocate(f, &m);
        fixture_sign(&c, &m);
        assert_int_equal(fixture_send(&c, &m), STUN_UNAUTHENTICATED);
        assert_challenge(f);
        const struct core_event_info *e = core_fixture_last_event(f);
        assert_string_equal(e->detail, rows[i].detail);
        assert_int_equal(e->n_username, strlen(rows[i].user));
        assert_false(e->authenticated);
        assert_null(fixture_allocation(&c));
        if (i == 0) {
            memcpy(first, f->reply_bytes, f->n_reply_bytes);
        } else { /* ERROR-CODE says the same, to the byte */
            assert_memory_equal(first + STUN_HEADER_BYTES, f->reply_bytes + STUN_HEADER_BYTES, 24);
        }
        c.username = "alice", c.password = "wonder";
        assert_int_equal(fixture_allocate(&c), STUN_OK); /* at once, on the same 5-tuple */
    }
}

static void attributes_beside_integrity_are_needed(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    fixture_log_in(&c);
    for (int missing = 0; missing < 3; missing++) {
        struct fixture_message m;
        const struct stun_key key = {"k", 16};
        begin_allocate(f, &m);
        if (missing != 0) {
            stun_write_bytes(&m.w, STUN_ATTR_USERNAME, "alice", 5);
        }
        if (missing != 1) {
            stun_write_bytes(&m.w, STUN_ATTR_REALM, c.realm, strlen(c.realm));
        }
        if (missing != 2) {
            stun_write_bytes(&m.w, STUN_ATTR_NONCE, c.nonce, strlen(c.nonce));
        }
        stun_integrity_append(f->crypto, &m.w, STUN_INTEGRITY_SHA1, &key);
        assert_int_equal(fixture_send(&c, &m), STUN_BAD_REQUEST);
        assert_no_challenge(f);
    }
}

/* USERNAME behind the signature is as good as none. */
static void attributes_after_integrity_do_not_count(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    const struct stun_key key = {"k", 16};
    fixture_log_in(&c);
    begin_allocate(f, &m);
    stun_write_bytes(&m.w, STUN_ATTR_REALM, c.realm, strlen(c.realm));
    stun_write_bytes(&m.w, STUN_ATTR_NONCE, c.nonce, strlen(c.nonce));
    stun_integrity_append(f->crypto, &m.w, STUN_INTEGRITY_SHA1, &key);
    stun_write_bytes(&m.w, STUN_ATTR_USERNAME, "alice", 5);
    assert_int_equal(fixture_send(&c, &m), STUN_BAD_REQUEST);
}

static void tampered_request_is_not_carried_out(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_REFRESH);
    stun_write_u32(&m.w, STUN_ATTR_LIFETIME, 600);
    fixture_sign(&c, &m);
    memset(m.bytes + 24, 0, 4); /* LIFETIME 0 */
    assert_int_equal(fixture_send(&c, &m), STUN_UNAUTHENTICATED);
    assert_non_null(fixture_allocation(&c));
}

static void lifetime_smuggled_behind_integrity_is_ignored(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    fixture_begin(f, &m, STUN_REQUEST, STUN_METHOD_REFRESH);
    fixture_sign(&c, &m);
    stun_write_u32(&m.w, STUN_ATTR_LIFETIME, 0);
    stun_fingerprint_append(&m.w);
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    assert_int_equal(fixture_u32(f, STUN_ATTR_LIFETIME), 600);
    assert_non_null(fixture_allocation(&c));
}

static void other_realm_is_sent_back_with_ours(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    fixture_log_in(&c);
    strcpy(c.realm, "elsewhere.org");
    assert_int_equal(fixture_allocate(&c), STUN_UNAUTHENTICATED);
    assert_challenge(f);
    fixture_learn(&c);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
}

/* The realm that is named has to be ours, whatever the key was made of. */
static void other_realm_under_a_key_of_ours_is_refused(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    static const char *const realms[] = {"example.or", "example.orga", "example.orG", ""};
    fixture_log_in(&c);
    for (size_t i = 0; i < sizeof realms / sizeof realms[0]; i++) {
        struct fixture_message m;
        struct stun_key key;
        stun_key_derive(f->crypto, &key, STUN_PASSWORD_ALGORITHM_MD5, "alice", 5, "example.org", "wonder");
        begin_allocate(f, &m);
        stun_write_bytes(&m.w, STUN_ATTR_USERNAME, "alice", 5);
        stun_write_bytes(&m.w, STUN_ATTR_REALM, realms[i], strlen(realms[i]));
        stun_write_bytes(&m.w, STUN_ATTR_NONCE, c.nonce, strlen(c.nonce));
        stun_integrity_append(f->crypto, &m.w, STUN_INTEGRITY_SHA1, &key);
        assert_int_equal(fixture_send(&c, &m), STUN_UNAUTHENTICATED);
    }
}

static void long_username_is_refused(void **state) {
    struct core_fixture *f = *state;
    char name[601];
    static const size_t lengths[] = {508, 509, 600};
    for (size_t i = 0; i < 3; i++) {
        memset(name, 'u', sizeof name);
        name[lengths[i]] = '\0';
        struct fixture_client c = fixture_client_of(f, name, "x");
        struct fixture_message m;
        fixture_log_in(&c);
        begin_allocate(f, &m);
        fixture_sign(&c, &m);
        assert_int_equal(fixture_send(&c, &m), lengths[i] == 508 ? STUN_UNAUTHENTICATED : STUN_BAD_REQUEST);
    }
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
}

/* ---- nonces ---- */

static void made_up_nonce_gets_438_and_a_good_one(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    static const char *const made_up[] = {"", "x", "0123456789abcdef01234567", "obMatJos2wAAA",
                                          "obMatJos2wAAAAAAAAAAAAAAAAAAAAAAAAAA"};
    fixture_log_in(&c);
    for (size_t i = 0; i < sizeof made_up / sizeof made_up[0]; i++) {
        struct fixture_message m;
        struct stun_key key;
        stun_key_derive(f->crypto, &key, STUN_PASSWORD_ALGORITHM_MD5, "alice", 5, c.realm, "wonder");
        begin_allocate(f, &m);
        stun_write_bytes(&m.w, STUN_ATTR_USERNAME, "alice", 5);
        stun_write_bytes(&m.w, STUN_ATTR_REALM, c.realm, strlen(c.realm));
        stun_write_bytes(&m.w, STUN_ATTR_NONCE, made_up[i], strlen(made_up[i]));
        stun_integrity_append(f->crypto, &m.w, STUN_INTEGRITY_SHA1, &key);
        assert_int_equal(fixture_send(&c, &m), STUN_STALE_NONCE);
        assert_challenge(f);
    }
    fixture_learn(&c);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
}

static void stale_nonce_gets_one_438_and_the_allocation_lives(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    assert_int_equal(fixture_refresh(&c, 3600), STUN_OK);
    core_fixture_pass(f, 600);
    assert_int_equal(fixture_refresh(&c, 3600), STUN_OK);
    core_fixture_pass(f, 1);
    char old[64];
    strcpy(old, c.nonce);
    assert_int_equal(fixture_refresh(&c, 3600), STUN_STALE_NONCE);
    assert_challenge(f);
    assert_non_null(fixture_allocation(&c));
    fixture_learn(&c);
    assert_string_not_equal(old, c.nonce);
    assert_int_equal(fixture_refresh(&c, 3600), STUN_OK);
    f->config.nonce_lifetime_s = 0;
    core_fixture_pass(f, 3000);
    assert_int_equal(fixture_refresh(&c, 3600), STUN_OK);
}

static void one_nonce_serves_any_number_of_requests(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(fixture_bind(&c, 0x4000, "203.0.113.21:5000"), STUN_OK);
    }
}

/* ---- owners ---- */

static void another_user_gets_441_signed_and_changes_nothing(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    c.username = "bob", c.password = "builder";
    assert_int_equal(fixture_refresh(&c, 0), STUN_WRONG_CREDENTIALS);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY)); /* checked under bob's key by the fixture */
    assert_int_equal(fixture_permit(&c, "203.0.113.21:5000"), STUN_WRONG_CREDENTIALS);
    assert_int_equal(fixture_bind(&c, 0x4000, "203.0.113.21:5000"), STUN_WRONG_CREDENTIALS);
    assert_non_null(fixture_allocation(&c));
    assert_int_equal(fixture_allocation(&c)->n_permissions, 0);
    c.username = "alice", c.password = "wonder";
    assert_int_equal(fixture_refresh(&c, 600), STUN_OK);
}

static void unsigned_requests_on_an_allocation_are_challenged(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    static const uint16_t methods[] = {STUN_METHOD_ALLOCATE, STUN_METHOD_REFRESH,
                                       STUN_METHOD_CREATE_PERMISSION, STUN_METHOD_CHANNEL_BIND};
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    for (size_t i = 0; i < 4; i++) {
        fixture_begin(f, &m, STUN_REQUEST, methods[i]);
        stun_write_u32(&m.w, STUN_ATTR_LIFETIME, 0);
        fixture_write_peer(&m, "203.0.113.21:5000");
        assert_int_equal(fixture_send(&c, &m), STUN_UNAUTHENTICATED);
    }
    assert_non_null(fixture_allocation(&c));
    assert_int_equal(fixture_allocation(&c)->n_permissions, 0);
}

/* ---- integrity on errors ---- */

static void errors_to_authenticated_requests_are_signed(void **state) {
    struct core_fixture *f = *state;
    static const struct {
        enum stun_integrity_kind kind;
        uint16_t algorithm, attribute;
    } rows[] = {{STUN_INTEGRITY_SHA1, STUN_PASSWORD_ALGORITHM_MD5, STUN_ATTR_MESSAGE_INTEGRITY},
                {STUN_INTEGRITY_SHA256, STUN_PASSWORD_ALGORITHM_MD5, STUN_ATTR_MESSAGE_INTEGRITY_SHA256},
                {STUN_INTEGRITY_SHA1, STUN_PASSWORD_ALGORITHM_SHA256, STUN_ATTR_MESSAGE_INTEGRITY},
                {STUN_INTEGRITY_SHA256, STUN_PASSWORD_ALGORITHM_SHA256, STUN_ATTR_MESSAGE_INTEGRITY_SHA256}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fixture_client c = fixture_client(f);
        c.kind = rows[i].kind;
        c.algorithm = rows[i].algorithm;
        assert_int_equal(fixture_refresh(&c, 600), STUN_ALLOCATION_MISMATCH);
        assert_int_equal(fixture_count(f, rows[i].attribute), 1);
        assert_int_equal(fixture_allocate(&c), STUN_OK);
        assert_int_equal(fixture_count(f, rows[i].attribute), 1);
        assert_int_equal(fixture_permit(&c, "127.0.0.1:1"), STUN_FORBIDDEN);
        assert_int_equal(fixture_count(f, rows[i].attribute), 1);
        assert_int_equal(fixture_count(f, STUN_ATTR_MESSAGE_INTEGRITY) +
                             fixture_count(f, STUN_ATTR_MESSAGE_INTEGRITY_SHA256),
                         1);
        assert_int_equal(fixture_refresh(&c, 0), STUN_OK);
    }
}

static void fingerprint_comes_last_on_signed_replies(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    begin_allocate(f, &m);
    fixture_sign(&c, &m);
    stun_fingerprint_append(&m.w);
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    assert_true(fixture_has(f, STUN_ATTR_FINGERPRINT)); /* right and last: the fixture checks */
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY));
}

/* ---- SHA-256, PASSWORD-ALGORITHMS, USERHASH ---- */

/* Signs with SHA-256 throughout, with the list and the choice as told. */
static int ask_with(struct fixture_client *c, const uint16_t *list, size_t n_list, int choice) {
    struct core_fixture *f = c->f;
    struct fixture_message m;
    if (c->nonce[0] == '\0') {
        fixture_log_in(c);
    }
    begin_allocate(f, &m);
    stun_write_bytes(&m.w, STUN_ATTR_USERNAME, "alice", 5);
    stun_write_bytes(&m.w, STUN_ATTR_REALM, c->realm, strlen(c->realm));
    stun_write_bytes(&m.w, STUN_ATTR_NONCE, c->nonce, strlen(c->nonce));
    if (n_list > 0) {
        stun_write_password_algorithms(&m.w, list, n_list);
    }
    if (choice >= 0) {
        stun_write_password_algorithm(&m.w, (uint16_t)choice);
    }
    uint16_t algorithm = choice == STUN_PASSWORD_ALGORITHM_SHA256 ? choice : STUN_PASSWORD_ALGORITHM_MD5;
    stun_key_derive(f->crypto, &c->key, algorithm, "alice", 5, c->realm, "wonder");
    stun_integrity_append(f->crypto, &m.w, STUN_INTEGRITY_SHA256, &c->key);
    return fixture_send(c, &m);
}

static void bidding_down_is_noticed(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    static const uint16_t md5[] = {1}, sha256[] = {2}, swapped[] = {2, 1}, more[] = {1, 2, 3},
                          offered[] = {1, 2};
    assert_int_equal(ask_with(&c, md5, 1, 1), STUN_BAD_REQUEST);
    assert_no_challenge(f);
    assert_int_equal(ask_with(&c, sha256, 1, 2), STUN_BAD_REQUEST);
    assert_int_equal(ask_with(&c, swapped, 2, 2), STUN_BAD_REQUEST);
    assert_int_equal(ask_with(&c, more, 3, 2), STUN_BAD_REQUEST);
    assert_int_equal(ask_with(&c, NULL, 0, 2), STUN_BAD_REQUEST);
    assert_int_equal(ask_with(&c, offered, 2, -1), STUN_BAD_REQUEST);
    assert_int_equal(ask_with(&c, offered, 2, 3), STUN_BAD_REQUEST);
    assert_int_equal(ask_with(&c, offered, 2, 0), STUN_BAD_REQUEST);
    assert_null(fixture_allocation(&c));
    assert_int_equal(ask_with(&c, offered, 2, 2), STUN_OK);
    struct fixture_client d = fixture_client(f), e = fixture_client(f);
    assert_int_equal(ask_with(&d, offered, 2, 1), STUN_OK);
    assert_int_equal(ask_with(&e, NULL, 0, -1), STUN_OK); /* knows neither: MD5 */
}

static void algorithms_are_not_looked_at_where_none_was_offered(void **state) {
    (void)state;
    static const char *const hashed[] = {"h:0x00112233445566778899aabbccddeeff", NULL};
    static const uint16_t any[] = {9};
    struct core_fixture *f = fixture_with((struct core_fixture_params){.users = hashed});
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    const struct stun_key key = {
        {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}, 16};
    fixture_log_in(&c);
    begin_allocate(f, &m);
    stun_write_bytes(&m.w, STUN_ATTR_USERNAME, "h", 1);
    stun_write_bytes(&m.w, STUN_ATTR_REALM, c.realm, strlen(c.realm));
    stun_write_bytes(&m.w, STUN_ATTR_NONCE, c.nonce, strlen(c.nonce));
    stun_write_password_algorithms(&m.w, any, 1);
    stun_integrity_append(f->crypto, &m.w, STUN_INTEGRITY_SHA1, &key);
    c.key = key;
    assert_int_equal(fixture_send(&c, &m), STUN_OK);
    core_fixture_destroy(f);
}

static void userhash_stands_for_the_name(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    c.use_userhash = true;
    c.algorithm = STUN_PASSWORD_ALGORITHM_SHA256;
    c.kind = STUN_INTEGRITY_SHA256;
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    assert_string_equal(fixture_allocation(&c)->username, "alice");
    assert_int_equal(fixture_refresh(&c, 600), STUN_OK);
    c.use_userhash = false;
    assert_int_equal(fixture_refresh(&c, 600), STUN_OK);
    struct fixture_client d = fixture_client_of(f, "mallory", "wonder");
    d.use_userhash = true;
    assert_int_equal(fixture_allocate(&d), STUN_UNAUTHENTICATED);
}

static void malformed_userhash_gets_400(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    struct fixture_message m;
    const struct stun_key key = {"k", 16};
    fixture_log_in(&c);
    begin_allocate(f, &m);
    stun_write_bytes(&m.w, STUN_ATTR_USERHASH, "0123456789012345678901234567890", 31);
    stun_write_bytes(&m.w, STUN_ATTR_REALM, c.realm, strlen(c.realm));
    stun_write_bytes(&m.w, STUN_ATTR_NONCE, c.nonce, strlen(c.nonce));
    stun_integrity_append(f->crypto, &m.w, STUN_INTEGRITY_SHA1, &key);
    assert_int_equal(fixture_send(&c, &m), STUN_BAD_REQUEST);
}

static void owner_may_change_the_algorithm(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    c.algorithm = STUN_PASSWORD_ALGORITHM_SHA256;
    c.kind = STUN_INTEGRITY_SHA256;
    assert_int_equal(fixture_refresh(&c, 600), STUN_OK);
    assert_true(fixture_has(f, STUN_ATTR_MESSAGE_INTEGRITY_SHA256));
}

/* ---- time-limited credentials ---- */

static const char *const secrets[] = {"north", "south", NULL};

static struct fixture_client rest_client(struct core_fixture *f, const char *name, const char *secret,
                                         char password[32]) {
    stun_rest_password(f->crypto, password, secret, name, strlen(name));
    return fixture_client_of(f, name, password);
}

static int rest_allocate(struct core_fixture *f, const char *name, const char *secret) {
    char password[32];
    struct fixture_client c = rest_client(f, name, secret, password);
    return fixture_allocate(&c);
}

static void any_listed_secret_is_accepted_and_users_too(void **state) {
    (void)state;
    struct core_fixture *f = fixture_with((struct core_fixture_params){.secrets = secrets});
    assert_int_equal(rest_allocate(f, "1800000600:alice", "north"), STUN_OK);
    assert_int_equal(rest_allocate(f, "1800000600:alice", "south"), STUN_OK);
    assert_int_equal(rest_allocate(f, "1800000600:alice", "west"), STUN_UNAUTHENTICATED);
    assert_int_equal(rest_allocate(f, "alice:1800000600", "north"), STUN_OK);
    assert_int_equal(rest_allocate(f, "1800000600", "south"), STUN_OK);
    struct fixture_client c = fixture_client(f);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    core_fixture_destroy(f);
}

static void ill_formed_or_expired_names_are_refused(void **state) {
    (void)state;
    struct core_fixture *f = fixture_with((struct core_fixture_params){.secrets = secrets});
    static const char *const bad[] = {"carol", ":carol", "0:carol", "abc:carol", "1799999999:carol"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(rest_allocate(f, bad[i], "north"), STUN_UNAUTHENTICATED);
        assert_challenge(f);
    }
    assert_string_equal(core_fixture_last_event(f)->detail, "credential expired");
    /* rightly signed or not: the secret "north" does not open the static user alice */
    assert_int_equal(rest_allocate(f, "alice", "north"), STUN_UNAUTHENTICATED);
    core_fixture_destroy(f);
}

static void running_allocation_survives_its_credentials_end(void **state) {
    (void)state;
    struct core_fixture *f =
        fixture_with((struct core_fixture_params){.secrets = secrets, .nonce_lifetime_s = 9999});
    char password[32];
    struct fixture_client c = rest_client(f, "1800000002:alice", "south", password);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    core_fixture_pass(f, 60);
    assert_int_equal(fixture_refresh(&c, 600), STUN_OK);
    assert_int_equal(fixture_permit(&c, "203.0.113.21:5000"), STUN_OK);
    assert_int_equal(fixture_bind(&c, 0x4000, "203.0.113.21:5000"), STUN_OK);
    /* with the other algorithm, so not under the kept key */
    c.algorithm = STUN_PASSWORD_ALGORITHM_SHA256;
    assert_int_equal(fixture_refresh(&c, 600), STUN_OK);
    c.algorithm = STUN_PASSWORD_ALGORITHM_MD5;
    assert_int_equal(rest_allocate(f, "1800000002:alice", "south"), STUN_UNAUTHENTICATED);
    assert_int_equal(fixture_refresh(&c, 0), STUN_OK);
    assert_int_equal(fixture_allocate(&c), STUN_UNAUTHENTICATED);
    core_fixture_destroy(f);
}

static void another_time_limited_user_gets_441(void **state) {
    (void)state;
    struct core_fixture *f = fixture_with((struct core_fixture_params){.secrets = secrets});
    char alice[32], bob[32];
    struct fixture_client c = rest_client(f, "1800000600:alice", "north", alice);
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    stun_rest_password(f->crypto, bob, "north", "1800000600:bob", 14);
    c.username = "1800000600:bob", c.password = bob;
    assert_int_equal(fixture_refresh(&c, 0), STUN_WRONG_CREDENTIALS);
    assert_non_null(fixture_allocation(&c));
    core_fixture_destroy(f);
}

/* A reload may take the user away: what runs goes on, nothing new begins. */
static void removed_user_keeps_the_running_allocation(void **state) {
    struct core_fixture *f = *state;
    struct fixture_client c = fixture_client(f), d = fixture_client(f);
    const struct credential_params params = {"example.org", ':', false};
    struct credential_store *other;
    assert_int_equal(fixture_allocate(&c), STUN_OK);
    assert_int_equal(credential_store_create(&other, &params), 0);
    assert_int_equal(credential_store_add_user(other, "carol:singer"), 0);
    f->config.credentials = other;
    assert_int_equal(fixture_refresh(&c, 600), STUN_OK);
    assert_int_equal(fixture_allocate(&d), STUN_UNAUTHENTICATED);
    c.password = "wrong";
    assert_int_equal(fixture_refresh(&c, 0), STUN_UNAUTHENTICATED);
    f->config.credentials = f->credentials;
    credential_store_destroy(other);
}

int main(void) {
#define WITH_CORE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CORE(unsigned_request_is_challenged),
        WITH_CORE(challenge_is_small),
        WITH_CORE(unknown_attribute_waits_for_authentication),
        WITH_CORE(nonces_differ_and_serve_from_anywhere),
        cmocka_unit_test(features_tell_what_the_users_allow),
        WITH_CORE(refused_login_is_reported_with_its_name),
        WITH_CORE(attributes_beside_integrity_are_needed),
        WITH_CORE(attributes_after_integrity_do_not_count),
        WITH_CORE(tampered_request_is_not_carried_out),
        WITH_CORE(lifetime_smuggled_behind_integrity_is_ignored),
        WITH_CORE(other_realm_is_sent_back_with_ours),
        WITH_CORE(other_realm_under_a_key_of_ours_is_refused),
        WITH_CORE(long_username_is_refused),
        WITH_CORE(made_up_nonce_gets_438_and_a_good_one),
        WITH_CORE(stale_nonce_gets_one_438_and_the_allocation_lives),
        WITH_CORE(one_nonce_serves_any_number_of_requests),
        WITH_CORE(another_user_gets_441_signed_and_changes_nothing),
        WITH_CORE(unsigned_requests_on_an_allocation_are_challenged),
        WITH_CORE(errors_to_authenticated_requests_are_signed),
        WITH_CORE(fingerprint_comes_last_on_signed_replies),
        WITH_CORE(bidding_down_is_noticed),
        cmocka_unit_test(algorithms_are_not_looked_at_where_none_was_offered),
        WITH_CORE(userhash_stands_for_the_name),
        WITH_CORE(malformed_userhash_gets_400),
        WITH_CORE(owner_may_change_the_algorithm),
        cmocka_unit_test(any_listed_secret_is_accepted_and_users_too),
        cmocka_unit_test(ill_formed_or_expired_names_are_refused),
        cmocka_unit_test(running_allocation_survives_its_credentials_end),
        cmocka_unit_test(another_time_limited_user_gets_441),
        WITH_CORE(removed_user_keeps_the_running_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
