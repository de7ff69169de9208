#!/bin/sh
# check_install.sh BUILD_DIR: installs the client library into a prefix of its own, compiles a program against it
# with nothing but what pkg-config says, and runs it.
set -eu
build=$1
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$build" --component client --prefix "$prefix" >/dev/null

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name turntable-client.pc)")
export PKG_CONFIG_PATH
cat >"$prefix/program.c" <<'PROGRAM'
#include <stdio.h>
#include <string.h>
#include <turn_client.h>
#include <turn_stream.h>

static void fill(void *context, void *out, size_t n_bytes) {
    (void)context;
    memset(out, 7, n_bytes);
}

int main(void) {
    struct stun_crypto *crypto;
    struct turn_client *client;
    struct endpoint peer;
    if (stun_crypto_create(&crypto) != 0 || endpoint_parse(&peer, "192.0.2.1:5000", 0) != 0) {
        return 1;
    }
    struct turn_client_params params = {.crypto = crypto, .random = fill, .username = "us\xc3\xa9r", .password = "p"};
    if (turn_client_create(&client, &params) != 0 || turn_client_allocate(client, 0) != 0) {
        return 1;
    }
    const uint8_t *bytes;
    size_t n_bytes, n_frame, n_total;
    if (!turn_client_next_output(client, &bytes, &n_bytes) ||
        turn_frame_measure(bytes, n_bytes, &n_frame, &n_total) != TURN_FRAME_WHOLE) {
        return 1;
    }
    printf("an Allocate of %zu bytes\n", n_bytes);
    turn_client_destroy(client);
    stun_crypto_destroy(crypto);
    return 0;
}
PROGRAM
# shellcheck disable=SC2046,SC2086 # the flags are words; CFLAGS carries sanitizers
${CC:-cc} -std=c17 -Wall -Wextra -Werror ${CFLAGS:-} "$prefix/program.c" -o "$prefix/program" \
    $(pkg-config --cflags turntable-client) $(pkg-config --static --libs turntable-client)
"$prefix/program"
