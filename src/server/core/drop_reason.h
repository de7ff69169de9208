/* Why a datagram was not relayed. Every datagram that comes in leaves again or counts under one of these. */
#ifndef TURN_DROP_REASON_H
#define TURN_DROP_REASON_H

/* name in C, name in logs and metrics */
#define DROP_REASONS(X)                                                                                      \
    X(NONE, "none")                                                                                          \
    X(TRUNCATED, "truncated") /* larger than the receive slot */                                             \
    X(NOT_TURN, "not_turn")   /* neither STUN nor ChannelData */                                             \
    X(MALFORMED, "malformed") /* STUN or ChannelData that does not parse */                                  \
    X(SOURCE_PORT_ZERO, "source_port_zero")                                                                  \
    X(NO_ALLOCATION, "no_allocation")                                                                        \
    X(NO_CHANNEL, "no_channel")                                                                              \
    X(NO_PERMISSION, "no_permission")                                                                        \
    X(PEER_DENIED, "peer_denied")               /* by policy */                                              \
    X(PEER_FAMILY, "peer_family")               /* no relayed address of the peer's family */                \
    X(UNKNOWN_PEER, "unknown_peer")             /* nobody on this relayed address permits the peer */        \
    X(AMBIGUOUS_PEER, "ambiguous_peer")         /* several do, and nothing tells which is meant */           \
    X(NO_RELAYED_ADDRESS, "no_relayed_address") /* relay to relay: nobody has that address */                \
    X(MAILBOX_FULL, "mailbox_full")             /* relay to relay: the other thread is behind */             \
    X(CLIENT_QUEUE_FULL, "client_queue_full")                                                                \
    X(TOO_BIG, "too_big")         /* no room left for the header of a Data indication */                     \
    X(SEND_FAILED, "send_failed") /* the kernel refused; by errno in the send counters */                    \
    X(NO_MEMORY, "no_memory")

enum drop_reason {
#define X(name, text) DROP_##name,
    DROP_REASONS(X)
#undef X
        DROP_REASON_COUNT
};

const char *drop_reason_name(enum drop_reason reason);

#endif
