/* Large column buffers on huge pages, where the system has them to give.
 *
 * A fresh page costs a fault when it is first written, and a set of columns is written once: with pages of
 * 4 KiB the faults would take longer than the decoding. It is advice; where it is not taken, nothing changes.
 */
#ifndef BARNABAS_MEMORY_H
#define BARNABAS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

static inline void advise_large(void *data, size_t size)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = 4096, large = 1u << 21;
    uintptr_t start = ((uintptr_t)data + page - 1) & ~(page - 1), end = ((uintptr_t)data + size) & ~(page - 1);
    if (end > start && end - start >= 2 * large) (void)madvise((void *)start, end - start, MADV_HUGEPAGE);
#else
    (void)data;
    (void)size;
#endif
}

#endif
