/* ChannelData frames (RFC 8656, 12.4). */
#ifndef TURN_CHANNEL_DATA_H
#define TURN_CHANNEL_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHANNEL_HEADER_BYTES = 4,
    CHANNEL_NUMBER_MIN = 0x4000,
    CHANNEL_NUMBER_MAX = 0x4FFF,      /* RFC 8656, 12 */
    CHANNEL_NUMBER_MAX_5766 = 0x7FFE, /* RFC 5766, 11 */
};

/* True when the first byte can only be that of ChannelData: the two top bits are 01 (RFC 7983 leaves
 * 0x40-0x4F to TURN; older clients use up to 0x7F). */
static inline bool channel_data_is_first_byte(uint8_t first) {
    return (first & 0xC0) == 0x40;
}

/* Takes a datagram apart. Trailing bytes beyond LENGTH are padding and ignored; LENGTH beyond the datagram
 * fails. On success *out_payload points into bytes. */
static inline bool channel_data_decode(const uint8_t *bytes, size_t n_bytes, uint16_t *out_number,
                                       const uint8_t **out_payload, uint32_t *out_n_payload) {
    if (n_bytes < CHANNEL_HEADER_BYTES) {
        return false;
    }
    uint32_t length = (uint32_t)bytes[2] << 8 | bytes[3];
    if (length > n_bytes - CHANNEL_HEADER_BYTES) {
        return false;
    }
    *out_number = (uint16_t)(bytes[0] << 8 | bytes[1]);
    *out_payload = bytes + CHANNEL_HEADER_BYTES;
    *out_n_payload = length;
    return true;
}

static inline void channel_data_encode_header(uint8_t header[CHANNEL_HEADER_BYTES], uint16_t number,
                                              uint16_t length) {
    header[0] = (uint8_t)(number >> 8), header[1] = (uint8_t)number;
    header[2] = (uint8_t)(length >> 8), header[3] = (uint8_t)length;
}

#endif
