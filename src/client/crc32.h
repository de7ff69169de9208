/* CRC-32 as FINGERPRINT uses it (ITU V.42, reflected polynomial 0xEDB88320). Any thread. */
#ifndef TURN_CRC32_H
#define TURN_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Continues crc (0 at the start) over the bytes. */
uint32_t crc32_update(uint32_t crc, const void *bytes, size_t n_bytes);

#endif
