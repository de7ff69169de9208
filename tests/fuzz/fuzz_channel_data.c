/* ChannelData in a datagram. */
#include "channel_data.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    uint16_t number;
    const uint8_t *payload;
    uint32_t n_payload;
    if (!channel_data_decode(bytes, n_bytes, &number, &payload, &n_payload)) {
        return 0;
    }
    if (payload < bytes || payload + n_payload > bytes + n_bytes) {
        abort();
    }
    uint8_t header[CHANNEL_HEADER_BYTES];
    channel_data_encode_header(header, number, (uint16_t)n_payload);
    for (size_t i = 0; i < sizeof header; i++) {
        if (header[i] != bytes[i]) {
            abort();
        }
    }
    return 0;
}
