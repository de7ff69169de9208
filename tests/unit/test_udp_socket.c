#include "udp_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "udp_loopback.h"

#ifdef TURN_UDP_BACKEND_LINUX
enum { IS_LINUX = 1 };
#else
enum { IS_LINUX = 0 };
#endif

static struct udp_socket_params params_for(const char *ip, uint16_t port) {
    struct udp_socket_params params = {0};
    assert_int_equal(endpoint_parse(&params.local, ip, port), 0);
    return params;
}

static void opening_fills_in_the_port(void **state) {
    (void)state;
    static const char *const ips[] = {"127.0.0.1", "::1", "0.0.0.0", "::"};
    for (size_t i = 0; i < 4; i++) {
        struct udp_socket s;
        struct udp_socket_params params = params_for(ips[i], 0);
        params.gro = params.error_queue = true;
        assert_int_equal(udp_socket_open(&s, &params), 0);
        assert_true(s.fd >= 0);
        assert_true(endpoint_same_ip(&s.local, &params.local));
        assert_int_not_equal(s.local.port, 0);
        assert_int_equal(s.packet_info, IS_LINUX && i >= 2);
        assert_int_equal(s.error_queue, IS_LINUX);
        assert_int_equal(s.gso, IS_LINUX);
        assert_int_equal(s.gro, IS_LINUX);
        assert_false(s.gro_refused);
        assert_true((fcntl(s.fd, F_GETFL) & O_NONBLOCK) != 0);
        assert_true((fcntl(s.fd, F_GETFD) & FD_CLOEXEC) != 0);
        udp_socket_close(&s);
        assert_int_equal(s.fd, -1);
        udp_socket_close(&s); /* twice is harmless */
    }
}

static void what_is_not_asked_for_stays_off(void **state) {
    (void)state;
    struct udp_socket s;
    struct udp_socket_params params = params_for("127.0.0.1", 0);
    assert_int_equal(udp_socket_open(&s, &params), 0);
    assert_false(s.gro || s.gro_refused || s.error_queue || s.packet_info);
    assert_true(s.receive_buffer_bytes > 0 && s.send_buffer_bytes > 0);
    udp_socket_close(&s);
}

static void refusals_leave_no_descriptor(void **state) {
    (void)state;
    struct udp_socket s, holder;
    struct udp_socket_params params = {.local = {.family = AF_UNSPEC}};
    assert_int_equal(udp_socket_open(&s, &params), -EAFNOSUPPORT);
    assert_int_equal(s.fd, -1);
    params = params_for("192.0.2.1", 0);
    assert_int_equal(udp_socket_open(&s, &params), -EADDRNOTAVAIL);
    assert_int_equal(s.fd, -1);
    loopback_open(&holder, "127.0.0.1", false);
    params.local = holder.local;
    assert_int_equal(udp_socket_open(&s, &params), -EADDRINUSE);
    assert_int_equal(s.fd, -1);
    udp_socket_close(&holder);
    assert_int_equal(udp_socket_open(&s, &params), 0);
    udp_socket_close(&s);
}

static void threads_may_share_a_port(void **state) {
    (void)state;
    struct udp_socket a, b, c;
    struct udp_socket_params params = params_for("127.0.0.1", 0);
    params.reuse_port = true;
    assert_int_equal(udp_socket_open(&a, &params), 0);
    params.local = a.local;
    assert_int_equal(udp_socket_open(&b, &params), 0);
    assert_true(endpoint_equal(&a.local, &b.local));
    params.reuse_port = false;
    assert_int_equal(udp_socket_open(&c, &params), -EADDRINUSE);
    udp_socket_close(&a);
    udp_socket_close(&b);
}

static void ipv6_leaves_ipv4_its_port(void **state) {
    (void)state;
    struct udp_socket v4, v6;
    struct udp_socket_params params = params_for("::", 0);
    assert_int_equal(udp_socket_open(&v6, &params), 0);
    struct udp_socket_params params4 = params_for("0.0.0.0", v6.local.port);
    assert_int_equal(udp_socket_open(&v4, &params4), 0);
    udp_socket_close(&v4);
    udp_socket_close(&v6);
}

static void buffers_are_read_back(void **state) {
    (void)state;
    struct udp_socket s;
    struct udp_socket_params params = params_for("127.0.0.1", 0);
    params.buffer_bytes = 65536;
    assert_int_equal(udp_socket_open(&s, &params), 0);
    assert_true(s.receive_buffer_bytes >= 65536);
    assert_true(s.send_buffer_bytes >= 65536);
    if (IS_LINUX) { /* in the caller's unit, though the kernel shows twice of it */
        assert_int_equal(s.receive_buffer_bytes, 65536);
        assert_int_equal(s.send_buffer_bytes, 65536);
    }
    udp_socket_close(&s);
}

/* Sends n bytes to a port where nobody listens; its endpoint. */
static struct endpoint provoke_error(struct udp_socket *s, const char *ip) {
    struct udp_socket closed;
    union endpoint_sockaddr address;
    loopback_open(&closed, ip, false);
    udp_socket_close(&closed);
    socklen_t n = endpoint_to_sockaddr(&address, &closed.local);
    for (int i = 0; i < 2; i++) { /* the first may have to report an earlier error */
        if (sendto(s->fd, "x", 1, 0, &address.sa, n) == 1) {
            break;
        }
    }
    return closed.local;
}

static void check_errors(const char *ip, uint8_t type, uint8_t code) {
    struct udp_socket s;
    struct udp_socket_params params = params_for(ip, 0);
    params.error_queue = true;
    assert_int_equal(udp_socket_open(&s, &params), 0);
    struct udp_error error = {.error = 77};
    assert_int_equal(udp_socket_next_error(&s, &error), 0);
    assert_int_equal(error.error, 77);
    struct endpoint first = provoke_error(&s, ip);
    struct endpoint second = provoke_error(&s, ip);
    struct pollfd p = {.fd = s.fd};
    (void)poll(&p, 1, 1000);
    assert_int_equal(udp_socket_next_error(&s, &error), 1);
    assert_true(endpoint_equal(&error.peer, &first));
    assert_int_equal(error.icmp_type, type);
    assert_int_equal(error.icmp_code, code);
    assert_int_equal(error.error, ECONNREFUSED);
    assert_int_equal(error.info, 0);
    assert_int_equal(udp_socket_next_error(&s, &error), 1);
    assert_true(endpoint_equal(&error.peer, &second));
    assert_int_equal(udp_socket_next_error(&s, &error), 0);
    udp_socket_close(&s);
    assert_true(udp_socket_next_error(&s, &error) < 0);
}

static void icmp_errors_tell_their_peer(void **state) {
    (void)state;
    if (!IS_LINUX) {
        skip();
    }
    check_errors("127.0.0.1", 3, 3);
    check_errors("::1", 1, 4);
}

/* An error that the own stack found (here: too long for the interface) is no ICMP message. */
static void own_errors_are_passed_over(void **state) {
    (void)state;
    if (!IS_LINUX) {
        skip();
    }
    struct udp_socket s;
    struct udp_error error;
    static uint8_t bytes[65507];
    struct udp_socket_params params = params_for("::1", 0);
    params.error_queue = true;
    assert_int_equal(udp_socket_open(&s, &params), 0);
    union endpoint_sockaddr address;
    socklen_t n = endpoint_to_sockaddr(&address, &s.local);
    int value = 1280, on = 1;
    assert_int_equal(setsockopt(s.fd, IPPROTO_IPV6, IPV6_MTU, &value, sizeof value), 0);
    assert_int_equal(setsockopt(s.fd, IPPROTO_IPV6, IPV6_DONTFRAG, &on, sizeof on), 0);
    assert_int_equal(sendto(s.fd, bytes, sizeof bytes, 0, &address.sa, n), -1);
    assert_int_equal(errno, EMSGSIZE);
    struct endpoint closed = provoke_error(&s, "::1");
    assert_int_equal(udp_socket_next_error(&s, &error), 1);
    assert_true(endpoint_equal(&error.peer, &closed));
    assert_int_equal(udp_socket_next_error(&s, &error), 0);
    udp_socket_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_fills_in_the_port),    cmocka_unit_test(what_is_not_asked_for_stays_off),
        cmocka_unit_test(refusals_leave_no_descriptor), cmocka_unit_test(threads_may_share_a_port),
        cmocka_unit_test(ipv6_leaves_ipv4_its_port),    cmocka_unit_test(buffers_are_read_back),
        cmocka_unit_test(icmp_errors_tell_their_peer),  cmocka_unit_test(own_errors_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
