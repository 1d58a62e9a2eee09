/* CRC-32C (Castagnoli), as record batches use it.
 *
 * Where the processor has the instruction (SSE 4.2, found out at run time; ARMv8 CRC, at compile time) three
 * streams run side by side, because the instruction takes three cycles but one can start every cycle. The
 * streams are joined by tables that advance a checksum over a fixed number of zero bytes. Elsewhere eight
 * bytes at a time go through tables. All tables are computed once, by crc32c_init, before any other call.
 */
#ifndef BARNABAS_CRC32C_H
#define BARNABAS_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32C_POLYNOMIAL 0x82f63b78u
#define CRC32C_LONG 1024
#define CRC32C_SHORT 128

static uint32_t crc32c_table[8][256];
static uint32_t crc32c_over_long[4][256];
static uint32_t crc32c_over_short[4][256];
static int crc32c_has_instruction;

static uint32_t crc32c_by_table(uint32_t crc, const unsigned char *data, size_t size)
{
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        crc = crc32c_table[7][low & 255] ^ crc32c_table[6][low >> 8 & 255] ^
              crc32c_table[5][low >> 16 & 255] ^ crc32c_table[4][low >> 24] ^ crc32c_table[3][data[4]] ^
              crc32c_table[2][data[5]] ^ crc32c_table[1][data[6]] ^ crc32c_table[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--) crc = crc >> 8 ^ crc32c_table[0][(crc ^ *data++) & 255];
    return crc;
}

static inline uint32_t crc32c_advance(uint32_t over[4][256], uint32_t crc)
{
    return over[0][crc & 255] ^ over[1][crc >> 8 & 255] ^ over[2][crc >> 16 & 255] ^ over[3][crc >> 24];
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#define CRC32C_INSTRUCTION
#define CRC32C_TARGET __attribute__((target("sse4.2")))
#define CRC32C_8(crc, word) _mm_crc32_u64((crc), (word))
#define CRC32C_1(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
#define CRC32C_PRESENT __builtin_cpu_supports("sse4.2")
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define CRC32C_INSTRUCTION
#define CRC32C_TARGET
#define CRC32C_8(crc, word) __crc32cd((uint32_t)(crc), (word))
#define CRC32C_1(crc, byte) __crc32cb((uint32_t)(crc), (byte))
#define CRC32C_PRESENT 1
#endif

#ifdef CRC32C_INSTRUCTION
static inline uint64_t crc32c_word(const unsigned char *data)
{
    uint64_t word;
    memcpy(&word, data, 8);
    return word;
}

CRC32C_TARGET static inline uint32_t crc32c_three(uint32_t crc, const unsigned char *data, size_t stride,
                                                  uint32_t over[4][256])
{
    uint64_t one = crc, two = 0, three = 0;
    const unsigned char *end = data + stride;
    for (; data < end; data += 8) {
        one = CRC32C_8(one, crc32c_word(data));
        two = CRC32C_8(two, crc32c_word(data + stride));
        three = CRC32C_8(three, crc32c_word(data + 2 * stride));
    }
    two ^= crc32c_advance(over, (uint32_t)one);
    return (uint32_t)(three ^ crc32c_advance(over, (uint32_t)two));
}

CRC32C_TARGET static uint32_t crc32c_by_instruction(uint32_t crc, const unsigned char *data, size_t size)
{
    for (; size >= 3 * CRC32C_LONG; size -= 3 * CRC32C_LONG, data += 3 * CRC32C_LONG)
        crc = crc32c_three(crc, data, CRC32C_LONG, crc32c_over_long);
    for (; size >= 3 * CRC32C_SHORT; size -= 3 * CRC32C_SHORT, data += 3 * CRC32C_SHORT)
        crc = crc32c_three(crc, data, CRC32C_SHORT, crc32c_over_short);
    for (; size >= 8; size -= 8, data += 8) crc = (uint32_t)CRC32C_8(crc, crc32c_word(data));
    for (; size; size--) crc = CRC32C_1(crc, *data++);
    return crc;
}
#endif

static void crc32c_fill_advance(uint32_t over[4][256], size_t zeros)
{
    static const unsigned char nothing[CRC32C_LONG];
    uint32_t bit[32];
    for (int i = 0; i < 32; i++) bit[i] = crc32c_by_table(1u << i, nothing, zeros);
    for (int byte = 0; byte < 4; byte++)
        for (int value = 0; value < 256; value++) {
            uint32_t sum = 0;
            for (int i = 0; i < 8; i++)
                if (value >> i & 1) sum ^= bit[8 * byte + i];
            over[byte][value] = sum;
        }
}

static void crc32c_init(void)
{
    for (int value = 0; value < 256; value++) {
        uint32_t crc = (uint32_t)value;
        for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
        crc32c_table[0][value] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int value = 0; value < 256; value++) {
            uint32_t crc = crc32c_table[slice - 1][value];
            crc32c_table[slice][value] = crc >> 8 ^ crc32c_table[0][crc & 255];
        }
    crc32c_fill_advance(crc32c_over_long, CRC32C_LONG);
    crc32c_fill_advance(crc32c_over_short, CRC32C_SHORT);
#ifdef CRC32C_INSTRUCTION
    crc32c_has_instruction = CRC32C_PRESENT;
#endif
}

static uint32_t crc32c_of(const unsigned char *data, size_t size)
{
#ifdef CRC32C_INSTRUCTION
    if (crc32c_has_instruction) return ~crc32c_by_instruction(0xffffffffu, data, size);
#endif
    return ~crc32c_by_table(0xffffffffu, data, size);
}

/* The portable way, kept reachable so that the tests can hold it against the instruction. */
static uint32_t crc32c_portable(const unsigned char *data, size_t size)
{
    return ~crc32c_by_table(0xffffffffu, data, size);
}

#endif
