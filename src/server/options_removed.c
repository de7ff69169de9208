#include "options_internal.h"

#define ALREADY "asks for what is always done; the line can go"
#define NEITHER "this version has none; the line can go"
#define TURNADMIN "short-term credentials are not supported; the line has no effect"

const struct option_removed options_removed[OPTIONS_REMOVED_COUNT] = {
    {"no-loopback-peers", false, OPTION_NOTE, ALREADY},
    {"no-tlsv1", false, OPTION_NOTE, ALREADY},
    {"no-tlsv1_1", false, OPTION_NOTE, ALREADY},
    {"no-sslv2", false, OPTION_NOTE, ALREADY},
    {"no-sslv3", false, OPTION_NOTE, ALREADY},
    {"no-stun-backward-compatibility", false, OPTION_NOTE, ALREADY},
    {"no-http", false, OPTION_NOTE, NEITHER},
    {"no-web-admin", false, OPTION_NOTE, NEITHER},
    {"no-prometheus", false, OPTION_NOTE, NEITHER},
    {"prometheus-no-username-labels", false, OPTION_NOTE, ALREADY},
    {"prod", false, OPTION_NOTE, ALREADY},
    {"ne", true, OPTION_WARNING, "there is one network engine; the line has no effect"},
    {"dh2066", false, OPTION_NOTE, ALREADY},
    {"sha256", false, OPTION_NOTE,
     "MESSAGE-INTEGRITY-SHA256 is negotiated with each client; the line can go"},
    {"sha384", false, OPTION_WARNING, "STUN has no such integrity; the line has no effect"},
    {"sha512", false, OPTION_WARNING, "STUN has no such integrity; the line has no effect"},
    {"st-cred-mech", false, OPTION_WARNING, TURNADMIN},
    {"add-st", true, OPTION_WARNING, TURNADMIN},
    {"delete-st", true, OPTION_WARNING, TURNADMIN},
    {"list-st", false, OPTION_WARNING, TURNADMIN},
    {"secret-ts-exp-time", true, OPTION_WARNING,
     "the time is in the user name itself; the line has no effect"},
    {"systemd", false, OPTION_NOTE, "nothing is to be switched on for systemd; the line can go"},
    {"allow-encoding-with-aes", true, OPTION_WARNING,
     "it matters to MySQL connections only, which are not supported; the line has no effect"},
    {"new-timestamp-format", true, OPTION_WARNING,
     "is called new-log-timestamp-format now; the line has no effect"},
    {"new-timestamp_format", true, OPTION_WARNING,
     "is called new-log-timestamp-format now; the line has no effect"},
};
