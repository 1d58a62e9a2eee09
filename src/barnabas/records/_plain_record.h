/* The record that nearly all records are: a length, timestamp delta and value length of at most two bytes, a
 * key length of at most one, no headers. Recognised without loops, so that a pass over a batch costs a few
 * nanoseconds a record. Anything else, sound or not, is left to the general reader.
 */
#ifndef BARNABAS_PLAIN_RECORD_H
#define BARNABAS_PLAIN_RECORD_H

#include <stddef.h>
#include <stdint.h>

/* One or two bytes of a varint at `at`, which moves past them; makes the caller give up on a longer one. */
#define SHORT_VARINT(at, raw)                             \
    if ((at)[0] < 128) {                                  \
        raw = (at)[0];                                    \
        at += 1;                                          \
    } else {                                              \
        if ((at)[1] >= 128) return NULL;                  \
        raw = (uint32_t)((at)[0] & 127) | (uint32_t)(at)[1] << 7; \
        at += 2;                                          \
    }

/* Where the record after the one at `at` begins, or NULL where it is not a plain one with this offset delta.
 * The sizes are -1 for a null. */
static inline const uint8_t *plain_record(const uint8_t *at, const uint8_t *end, uint32_t offset_delta,
                                          int64_t *timestamp_delta, const uint8_t **key, int32_t *key_size,
                                          const uint8_t **value, int32_t *value_size)
{
    const uint8_t *stop;
    uint32_t raw, expected = offset_delta << 1;
    if (end - at < 9 || offset_delta >= 1u << 13) return NULL;
    SHORT_VARINT(at, raw)
    /* attributes, two deltas and the key's length: six bytes at most, so none of them is read past the end */
    if (raw & 1 || raw < 2 * 7 || (ptrdiff_t)(raw >> 1) > end - at) return NULL;
    stop = at + (raw >> 1);
    at += 1;
    SHORT_VARINT(at, raw)
    *timestamp_delta = (int32_t)(raw >> 1 ^ (0u - (raw & 1)));
    if (expected < 128) {
        if (at[0] != expected) return NULL;
        at += 1;
    } else {
        if (at[0] != ((expected & 127) | 128) || at[1] != expected >> 7) return NULL;
        at += 2;
    }
    raw = *at++;
    *key = at;
    *key_size = -1;
    if (raw != 1) {
        if (raw & 1 || raw >= 128) return NULL;
        *key_size = (int32_t)(raw >> 1);
        at += raw >> 1;
    }
    if (stop - at < 3) return NULL;
    SHORT_VARINT(at, raw)
    *value = at;
    *value_size = -1;
    if (raw != 1) {
        if (raw & 1) return NULL;
        *value_size = (int32_t)(raw >> 1);
        at += raw >> 1;
    }
    return at + 1 == stop && *at == 0 ? stop : NULL;
}

#undef SHORT_VARINT
#endif
