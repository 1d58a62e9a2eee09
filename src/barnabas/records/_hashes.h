/* Hashes of record keys.
 *
 * murmur2 decides the partition of a key, as the Java clients compute it (seed 0x9747b28c). SipHash-2-4 with
 * 128 bits of output identifies a key in compaction's map of latest offsets: it is keyed with a secret seed,
 * so that nobody who writes to a topic can make two keys collide and one of them vanish.
 */
#ifndef BARNABAS_HASHES_H
#define BARNABAS_HASHES_H

#include <stddef.h>
#include <stdint.h>

static inline int32_t murmur2_of(const uint8_t *data, size_t size)
{
    const uint32_t mix = 0x5bd1e995u;
    uint32_t hash = 0x9747b28cu ^ (uint32_t)size;
    for (; size >= 4; size -= 4, data += 4) {
        uint32_t word = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                        (uint32_t)data[3] << 24;
        word *= mix;
        word ^= word >> 24;
        hash = (hash * mix) ^ (word * mix);
    }
    if (size) {
        for (size_t i = size; i-- > 0;) hash ^= (uint32_t)data[i] << (8 * i);
        hash *= mix;
    }
    hash ^= hash >> 13;
    hash *= mix;
    return (int32_t)(hash ^ hash >> 15);
}

static inline uint64_t little64(const uint8_t *at, size_t size)
{
    uint64_t word = 0;
    for (size_t i = 0; i < size; i++) word |= (uint64_t)at[i] << (8 * i);
    return word;
}

static inline uint64_t rotate_left(uint64_t word, int by) { return word << by | word >> (64 - by); }

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] = rotate_left(v[0], 32) + v[3];
    v[2] += v[1];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] = rotate_left(v[2], 32);
}

static inline void siphash128(const uint8_t *data, size_t size, uint64_t k0, uint64_t k1, uint64_t out[2])
{
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du ^ 0xee, k0 ^ 0x6c7967656e657261u,
                     k1 ^ 0x7465646279746573u};
    uint64_t last = (uint64_t)size << 56;
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word = little64(data, 8);
        v[3] ^= word;
        sip_round(v);
        sip_round(v);
        v[0] ^= word;
    }
    last |= little64(data, size);
    v[3] ^= last;
    sip_round(v);
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xee;
    for (int i = 0; i < 4; i++) sip_round(v);
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    for (int i = 0; i < 4; i++) sip_round(v);
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
