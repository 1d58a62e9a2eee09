/* Large memory: column buffers on huge pages, and a table that costs nothing before it is used.
 *
 * A fresh page costs a fault when it is first written, and a set of columns is written once: with pages of
 * 4 KiB the faults would take longer than the decoding. It is advice; where it is not taken, nothing changes.
 *
 * A table that is filled here and there is the opposite case: it is mapped, so that only the pages in use are
 * resident, and emptied by giving them back, which costs as much as was used.
 */
#ifndef BARNABAS_MEMORY_H
#define BARNABAS_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

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

/* NULL where there is not as much. */
static inline void *zeroed(size_t size)
{
#if defined(__linux__)
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return data == MAP_FAILED ? NULL : data;
#else
    return calloc(size, 1);
#endif
}

static inline void give_back(void *data, size_t size)
{
    if (data == NULL) return;
#if defined(__linux__)
    (void)munmap(data, size);
#else
    (void)size;
    free(data);
#endif
}

#endif
