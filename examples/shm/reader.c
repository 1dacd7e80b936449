/* Copies one partition of a topic in shared memory to standard output, as an Arrow
   stream: shows that docs/shm-format.md is enough to read one from another language.

   cc -O2 -o reader reader.c
   ./reader /dev/shm/streamfactory-1000/clicks.topic 0 [FOLLOW_SECONDS] > clicks.arrows

   Rows are copied, so no lease is needed: what a writer has overwritten meanwhile is
   seen by the tail, which it moves first. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PART = 32, STATE_HEAD = 32, RECORD_HEAD = 64 };

typedef struct {
    char magic[8];
    uint32_t version, flags;
    uint8_t incarnation[16];
    uint64_t capacity, schema, slot;
} control_head;

typedef struct {
    uint64_t number, appended_ms;
    uint32_t parts, writers, writers_crc, crc;
} state_head;

typedef struct {
    uint64_t earliest, latest, tail, head;
} part_bounds;

typedef struct {
    uint32_t magic, crc;
    uint64_t position, length, base, rows, appended_ms, payload;
    uint32_t kind, reserved;
} record_head;

_Static_assert(sizeof(state_head) == STATE_HEAD, "state");
_Static_assert(sizeof(part_bounds) == PART, "bounds");
_Static_assert(sizeof(record_head) == RECORD_HEAD, "record");

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static uint32_t crc32(uint32_t crc, const uint8_t *data, size_t size) {
    crc = ~crc;
    while (size--) {
        crc ^= *data++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1));
    }
    return ~crc;
}

static uint8_t *mapped(const char *folder, const char *name, size_t *size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat found;
    if (file < 0 || fstat(file, &found) || found.st_size < PAGE)
        fail("a file of the topic is missing, or too short");
    *size = (size_t)found.st_size;
    uint8_t *data = mmap(NULL, *size, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED)
        fail("a file of the topic cannot be mapped");
    close(file);
    return data;
}

static uint64_t commit_word(const uint8_t *control) {
    return __atomic_load_n((const uint64_t *)control + 8, __ATOMIC_ACQUIRE);
}

/* The bounds of a partition as the last commit left them; 0 where it has none. */
static int bounds_of(const uint8_t *control, uint32_t partition, part_bounds *found,
                     uint64_t *number) {
    const control_head *head = (const control_head *)control;
    for (int attempt = 0; attempt < 1000; attempt++) {
        *number = commit_word(control);
        uint64_t at = PAGE + (head->schema + PAGE - 1) / PAGE * PAGE;
        const uint8_t *slot = control + at + *number % 2 * head->slot;
        state_head state;
        memcpy(&state, slot, sizeof state);
        if (state.parts > (head->slot - STATE_HEAD) / PART)
            continue;
        size_t size = STATE_HEAD + (size_t)state.parts * PART;
        uint8_t *copy = malloc(size);
        if (copy == NULL)
            fail("no memory");
        memcpy(copy, slot, size);
        uint32_t crc = crc32(0, copy, STATE_HEAD - 4);
        crc = crc32(crc, copy + STATE_HEAD, size - STATE_HEAD);
        memcpy(&state, copy, sizeof state);
        int same = crc == state.crc && state.number == *number;
        if (same && partition < state.parts)
            memcpy(found, copy + STATE_HEAD + (size_t)partition * PART, PART);
        free(copy);
        if (same && commit_word(control) == *number)
            return partition < state.parts;
    }
    fail("the state of the topic is damaged");
    return 0;
}

/* The record at a position, with its messages; NULL where it is not one. */
static uint8_t *record_at(const uint8_t *ring, uint64_t capacity, uint64_t position,
                          uint64_t head, record_head *found) {
    uint64_t at = position % capacity;
    memcpy(found, ring + PAGE + at, sizeof *found);
    uint32_t crc = crc32(0, (const uint8_t *)found + 8, RECORD_HEAD - 8);
    if (found->magic != 0x43524653 || found->crc != crc || found->position != position)
        return NULL;
    if (found->length < RECORD_HEAD || found->length > head - position ||
        found->length > capacity - at || found->payload > found->length - RECORD_HEAD)
        return NULL;
    uint8_t *payload = malloc(found->payload + 1);
    if (payload == NULL)
        fail("no memory");
    memcpy(payload, ring + PAGE + at + RECORD_HEAD, found->payload);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return payload;
}

static void put(const void *data, size_t size) {
    if (fwrite(data, 1, size, stdout) != size)
        fail("standard output cannot be written");
}

int main(int count, char **given) {
    if (count < 3)
        fail("usage: reader TOPIC_FOLDER PARTITION [FOLLOW_SECONDS]");
    uint32_t partition = (uint32_t)atoi(given[2]);
    double until = count > 3 ? atof(given[3]) : 0;
    size_t size, ring_size;
    uint8_t *control = mapped(given[1], "control", &size);
    const control_head *head = (const control_head *)control;
    if (memcmp(head->magic, "SFSHMCTL", 8) || head->version != 1)
        fail("the folder is no topic of version 1");
    uint64_t begin = PAGE + (head->schema + PAGE - 1) / PAGE * PAGE;
    if (head->schema > size || head->capacity == 0 || head->slot < STATE_HEAD ||
        head->slot > size || begin + 2 * head->slot != size)
        fail("the control file announces sizes that it has not");
    char name[32];
    snprintf(name, sizeof name, "%u.ring", partition);
    uint8_t *ring = mapped(given[1], name, &ring_size);
    if (ring_size != PAGE + head->capacity ||
        memcmp(ring, "SFSHMRNG", 8) || memcmp(ring + 16, head->incarnation, 16))
        fail("the ring is not of this topic");

    put(control + PAGE, head->schema); /* the schema message of the stream */
    part_bounds bounds;
    uint64_t number, at = 0;
    time_t end = time(NULL) + (time_t)until;
    if (!bounds_of(control, partition, &bounds, &number))
        fail("there is no such partition");
    at = bounds.tail;
    for (;;) {
        while (at < bounds.head) {
            record_head record;
            uint8_t *payload = record_at(ring, head->capacity, at, bounds.head, &record);
            bounds_of(control, partition, &bounds, &number);
            if (bounds.tail > at) { /* it was overwritten while it was copied */
                fprintf(stderr, "lost: bytes %llu to %llu\n", (unsigned long long)at,
                        (unsigned long long)bounds.tail);
                at = bounds.tail;
            } else if (payload == NULL || record.kind > 1) {
                fail("a record is damaged, or has dictionaries");
            } else {
                put(payload, record.payload); /* padding has none */
                at += record.length;
            }
            free(payload);
        }
        if (((const uint64_t *)control)[9] != 0 || time(NULL) >= end)
            break;
        struct timespec limit = {0, 50000000};
        syscall(SYS_futex, (const uint32_t *)control + 16, FUTEX_WAIT,
                (uint32_t)number, &limit, NULL, 0);
        bounds_of(control, partition, &bounds, &number);
    }
    static const uint8_t last[8] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0};
    put(last, sizeof last);
    return 0;
}
