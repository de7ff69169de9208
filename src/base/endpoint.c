#include "endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

size_t endpoint_ip_bytes(const struct endpoint *e) {
    switch (e->family) {
    case AF_INET:
        return sizeof(struct in_addr);
    case AF_INET6:
        return sizeof(struct in6_addr);
    default:
        return 0;
    }
}

void endpoint_from_sockaddr(struct endpoint *out, const struct sockaddr *sa) {
    memset(out, 0, sizeof *out);
    /* Copied before it is read: the caller's buffer need not be aligned for the larger type. */
    if (sa->sa_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, sa, sizeof in);
        out->family = AF_INET;
        out->port = ntohs(in.sin_port);
        memcpy(out->ip, &in.sin_addr, sizeof in.sin_addr);
    } else if (sa->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, sa, sizeof in6);
        out->family = AF_INET6;
        out->port = ntohs(in6.sin6_port);
        memcpy(out->ip, &in6.sin6_addr, sizeof in6.sin6_addr);
    }
}

socklen_t endpoint_to_sockaddr(union endpoint_sockaddr *out, const struct endpoint *e) {
    memset(out, 0, sizeof *out);
    if (e->family == AF_INET) {
        out->in.sin_family = AF_INET;
        out->in.sin_port = htons(e->port);
        memcpy(&out->in.sin_addr, e->ip, sizeof out->in.sin_addr);
        return sizeof out->in;
    }
    if (e->family == AF_INET6) {
        out->in6.sin6_family = AF_INET6;
        out->in6.sin6_port = htons(e->port);
        memcpy(&out->in6.sin6_addr, e->ip, sizeof out->in6.sin6_addr);
        return sizeof out->in6;
    }
    return 0;
}

/* The address alone, from n_text characters of text. */
static int parse_ip(struct endpoint *out, uint8_t family, const char *text, size_t n_text) {
    char terminated[INET6_ADDRSTRLEN];
    if (n_text >= sizeof terminated) {
        return -EINVAL;
    }
    memcpy(terminated, text, n_text);
    terminated[n_text] = '\0';
    memset(out, 0, sizeof *out);
    out->family = family;
    return inet_pton(family, terminated, out->ip) == 1 ? 0 : -EINVAL;
}

/* Decimal without sign, blanks or leading zeros, up to the end of the text. */
static int parse_port(uint16_t *out, const char *text) {
    if (text[0] == '0' && text[1] != '\0') {
        return -EINVAL;
    }
    uint32_t port = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        port = port * 10 + (uint32_t)(*at - '0');
        if (port > UINT16_MAX) {
            return -EINVAL;
        }
    }
    if (at == text || *at != '\0') {
        return -EINVAL;
    }
    *out = (uint16_t)port;
    return 0;
}

/* The address from ip up to ip_end; rest is what follows it: nothing, or ":" and a port. */
static int parse_ip_and_port(struct endpoint *out, uint8_t family, const char *ip, const char *ip_end,
                             const char *rest, uint16_t default_port) {
    struct endpoint parsed;
    int err = parse_ip(&parsed, family, ip, (size_t)(ip_end - ip));
    if (err < 0) {
        return err;
    }
    parsed.port = default_port;
    if (*rest == ':') {
        err = parse_port(&parsed.port, rest + 1);
    } else if (*rest != '\0') {
        err = -EINVAL;
    }
    if (err == 0) {
        *out = parsed;
    }
    return err;
}

int endpoint_parse(struct endpoint *out, const char *text, uint16_t default_port) {
    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        if (close == NULL) {
            return -EINVAL;
        }
        return parse_ip_and_port(out, AF_INET6, text + 1, close, close + 1, default_port);
    }
    const char *end = text + strlen(text);
    const char *colon = strchr(text, ':');
    if (colon == NULL) {
        return parse_ip_and_port(out, AF_INET, text, end, end, default_port);
    }
    if (strchr(colon + 1, ':') == NULL) {
        return parse_ip_and_port(out, AF_INET, text, colon, colon, default_port);
    }
    return parse_ip_and_port(out, AF_INET6, text, end, end, default_port);
}

const char *endpoint_format_ip(const struct endpoint *e, char buffer[ENDPOINT_TEXT_BYTES]) {
    if (endpoint_ip_bytes(e) == 0 || inet_ntop(e->family, e->ip, buffer, ENDPOINT_TEXT_BYTES) == NULL) {
        memcpy(buffer, "-", sizeof "-");
    }
    return buffer;
}

const char *endpoint_format(const struct endpoint *e, char buffer[ENDPOINT_TEXT_BYTES]) {
    if (endpoint_ip_bytes(e) == 0) {
        memcpy(buffer, "-", sizeof "-");
        return buffer;
    }
    char ip[ENDPOINT_TEXT_BYTES];
    endpoint_format_ip(e, ip);
    bool is_v6 = e->family == AF_INET6;
    snprintf(buffer, ENDPOINT_TEXT_BYTES, "%s%.45s%s:%u", is_v6 ? "[" : "", ip, is_v6 ? "]" : "",
             (unsigned)e->port);
    return buffer;
}

bool endpoint_is_unspecified(const struct endpoint *e) {
    static const uint8_t zero[sizeof e->ip];
    return endpoint_ip_bytes(e) != 0 && memcmp(e->ip, zero, sizeof zero) == 0;
}
