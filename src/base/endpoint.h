/* An IP address with a port, as a value. Knows nothing of sockets' state; any thread may use it. */
#ifndef TURN_ENDPOINT_H
#define TURN_ENDPOINT_H

#include <assert.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

enum { ENDPOINT_TEXT_BYTES = 56 }; /* "[" + IPv6 + "]:" + port + NUL fits */

/* No padding, unused bytes always zero: endpoints may be compared with memcmp and hashed as bytes. */
struct endpoint {
    uint8_t family; /* AF_INET, AF_INET6, or AF_UNSPEC for "none" */
    uint8_t zero;
    uint16_t port;  /* host byte order; 0 where only the address matters */
    uint8_t ip[16]; /* network byte order; IPv4 uses the first 4, the rest is zero */
};
static_assert(sizeof(struct endpoint) == 20, "compared and hashed as bytes");

/* A socket address just large enough for both families. */
union endpoint_sockaddr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

static inline bool endpoint_equal(const struct endpoint *a, const struct endpoint *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* True when both have the same family and address; the ports are not looked at (RFC 8656, 9). */
static inline bool endpoint_same_ip(const struct endpoint *a, const struct endpoint *b) {
    return a->family == b->family && memcmp(a->ip, b->ip, sizeof a->ip) == 0;
}

/* Bytes of the address: 4, 16, or 0 for AF_UNSPEC. */
size_t endpoint_ip_bytes(const struct endpoint *e);

/* Fills *out from a socket address of AF_INET or AF_INET6; anything else gives AF_UNSPEC.
 * IPv4-mapped IPv6 addresses are kept as they are. */
void endpoint_from_sockaddr(struct endpoint *out, const struct sockaddr *sa);

/* Writes *e to *out; returns the length to pass to the kernel, 0 for AF_UNSPEC. */
socklen_t endpoint_to_sockaddr(union endpoint_sockaddr *out, const struct endpoint *e);

/* Reads "1.2.3.4", "1.2.3.4:5", "2001:db8::1", "[2001:db8::1]" or "[2001:db8::1]:5". Without a port,
 * default_port is taken. Strict: no blanks, scope ids, leading zeros or trailing text. Returns 0 or -EINVAL;
 * *out is then untouched. No name is ever looked up. */
int endpoint_parse(struct endpoint *out, const char *text, uint16_t default_port);

/* Writes "1.2.3.4:5" or "[2001:db8::1]:5" ("-" for AF_UNSPEC); _format_ip leaves out the port and the
 * brackets. Returns buffer. */
const char *endpoint_format(const struct endpoint *e, char buffer[ENDPOINT_TEXT_BYTES]);
const char *endpoint_format_ip(const struct endpoint *e, char buffer[ENDPOINT_TEXT_BYTES]);

/* True for 0.0.0.0 and ::. */
bool endpoint_is_unspecified(const struct endpoint *e);

#endif
