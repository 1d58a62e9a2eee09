/* Integers as record batches hold them: big-endian ones, and zigzag varints as in protocol buffers.
 *
 * A reader gets a cursor and the end of what it may read. It moves the cursor past the number and answers 0,
 * or answers 1 where the number runs past the end or past its greatest length. Bits beyond the width of the
 * result are dropped, as Kafka's own reader drops them.
 */
#ifndef BARNABAS_BYTES_H
#define BARNABAS_BYTES_H

#include <stdint.h>

static inline int16_t load16(const uint8_t *at) { return (int16_t)((uint16_t)at[0] << 8 | at[1]); }

static inline int32_t load32(const uint8_t *at)
{
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static inline int64_t load64(const uint8_t *at)
{
    return (int64_t)((uint64_t)(uint32_t)load32(at) << 32 | (uint32_t)load32(at + 4));
}

static inline void store16(uint8_t *at, uint64_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline void store32(uint8_t *at, uint64_t value)
{
    store16(at, value >> 16);
    store16(at + 2, value);
}

static inline void store64(uint8_t *at, uint64_t value)
{
    store32(at, value >> 32);
    store32(at + 4, value);
}

static __attribute__((noinline)) int read_unsigned(const uint8_t **cursor, const uint8_t *end, int max_bytes, uint64_t *out)
{
    const uint8_t *at = *cursor;
    uint64_t value = 0;
    /* nearly all numbers in records take one byte or two */
    if (at < end && at[0] < 128) {
        *out = at[0];
        *cursor = at + 1;
        return 0;
    }
    if (end - at >= 2 && at[1] < 128) {
        *out = (uint64_t)(at[0] & 127) | (uint64_t)at[1] << 7;
        *cursor = at + 2;
        return 0;
    }
    for (int i = 0; i < max_bytes && at < end; i++) {
        uint8_t byte = *at++;
        value |= (uint64_t)(byte & 127) << (7 * i);
        if (byte < 128) {
            *cursor = at;
            *out = value;
            return 0;
        }
    }
    return 1;
}

/* Numbers of one or two bytes, which nearly all are. */
static inline int read_short(const uint8_t **cursor, const uint8_t *end, uint64_t *out)
{
    const uint8_t *at = *cursor;
    if (end - at < 2) return 1;
    if (at[0] < 128) {
        *out = at[0];
        *cursor = at + 1;
        return 0;
    }
    *out = (uint64_t)at[1] << 7 | (at[0] & 127);
    *cursor = at + 2;
    if (at[1] < 128) return 0;
    *cursor = at;
    return 1;
}

static inline int read_varint(const uint8_t **cursor, const uint8_t *end, int32_t *out)
{
    uint64_t wide;
    if (read_short(cursor, end, &wide) && read_unsigned(cursor, end, 5, &wide)) return 1;
    uint32_t raw = (uint32_t)wide;
    *out = (int32_t)(raw >> 1 ^ (0u - (raw & 1)));
    return 0;
}

static inline int read_varlong(const uint8_t **cursor, const uint8_t *end, int64_t *out)
{
    uint64_t raw;
    if (read_short(cursor, end, &raw) && read_unsigned(cursor, end, 10, &raw)) return 1;
    *out = (int64_t)(raw >> 1 ^ ((uint64_t)0 - (raw & 1)));
    return 0;
}

static inline uint64_t zigzag(int64_t value) { return (uint64_t)value << 1 ^ (uint64_t)(value >> 63); }

static inline int varlong_size(int64_t value)
{
    int bits = 64 - __builtin_clzll(zigzag(value) | 1);
    return (bits + 6) / 7;
}

static inline uint8_t *write_varlong(uint8_t *at, int64_t value)
{
    uint64_t raw = zigzag(value);
    while (raw > 127) {
        *at++ = (uint8_t)(raw | 128);
        raw >>= 7;
    }
    *at++ = (uint8_t)raw;
    return at;
}

#endif
