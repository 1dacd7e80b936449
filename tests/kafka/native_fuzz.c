/*
 * Feeds kafka_columns.c from a librdkafka that answers at random: sizes up to the
 * largest number, NULLs, texts that are not UTF-8, errors, and an allocator that fails.
 * Built with sanitizers; every batch is compared with what was fed. Usage: SEED ROUNDS.
 */
#define _POSIX_C_SOURCE 200809L
#include <assert.h>
#include <limits.h>
#include <stdio.h>

static long allocations_left = LONG_MAX;

#include <stdlib.h>
static void *failing_realloc(void *data, size_t size) {
    if (allocations_left-- <= 0)
        return NULL;
    return realloc(data, size);
}
#define realloc failing_realloc
#include "kafka_columns.c"
#undef realloc

static uint64_t state;
static uint64_t chance(uint64_t most) { /* xorshift64 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % (most + 1);
}

enum { HEADERS = 5 };
static const char bytes[4096] = {'x'};
static const char *names[] = {"", "name", "\xc3\xa9", "\xf0\x9f\x98\x80", "a\xcc\x81"};
static const char *bad[] = {"\xff",         "\xc3",         "\xc0\x80", "\xed\xa0\x80",
                            "\xf4\x90\x80\x80", "\x80", "\xe2\x82", "\xf0\x9f\x98"};

typedef struct {
    sf_message message;
    int32_t error;
    int kind;
    size_t headers;
    int hostile; /* sizes that cannot be true */
    int bad_name;
} sf_event;

static int live; /* events that were not destroyed */
static int64_t offset;
static int hostile_sizes, bad_names, errors;

static int32_t add_on_new(void *a, const char *b, on_new_f c, void *d) {
    (void)a, (void)b, (void)c, (void)d;
    return 0;
}
static void *get_partition(void *a, const char *b, int32_t c) {
    (void)b, (void)c;
    return a;
}
static void forward(void *a, void *b) { (void)a, (void)b; }
static void destroy_queue(void *a) { (void)a; }

static void value(const void **data, size_t *size, sf_event *event) {
    *data = chance(4) == 0 ? NULL : bytes;
    *size = chance(3) == 0 ? 0 : (size_t)chance(sizeof(bytes));
    if (hostile_sizes && chance(30) == 0 && *data != NULL) {
        static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)INT32_MAX + 1,
                                       (size_t)1 << 32, (size_t)UINT32_MAX};
        *size = sizes[chance(4)];
        event->hostile = 1;
    }
}

static void *poll(void *queue, int timeout) {
    sf_event *event;
    (void)queue, (void)timeout;
    if (chance(200) == 0)
        return NULL;
    event = calloc(1, sizeof(*event));
    live++;
    if (errors && chance(50) == 0) {
        event->error = chance(1) ? PARTITION_EOF : (int32_t)chance(INT32_MAX) - INT32_MAX / 2;
        return event;
    }
    offset += 1 + (int64_t)chance(3);
    event->message.offset = offset;
    event->kind = (int)chance(2);
    value(&event->message.key, &event->message.key_len, event);
    value(&event->message.payload, &event->message.len, event);
    event->headers = chance(2) ? 0 : chance(HEADERS);
    event->bad_name = bad_names && event->headers && chance(20) == 0;
    return event;
}
static int type(const void *event) {
    return ((const sf_event *)event)->error ? EVENT_ERROR : 2;
}
static const sf_message *message_next(void *event) {
    sf_event *one = event;
    return one->error ? NULL : &one->message;
}
static int32_t error(void *event) { return ((sf_event *)event)->error; }
static const char *error_string(void *event) {
    static char text[2000];
    size_t size = (size_t)chance(sizeof(text) - 1);
    (void)event;
    memset(text, 'e', sizeof(text));
    text[size] = 0;
    return chance(5) ? text : NULL;
}
static sf_place *topic_partition(void *event) {
    sf_place *place = chance(5) ? calloc(1, sizeof(sf_place)) : NULL;
    (void)event;
    if (place != NULL)
        place->offset = offset + 1;
    return place;
}
static void destroy_event(void *event) {
    live--;
    free(event);
}
static void destroy_place(sf_place *place) { free(place); }
static int64_t timestamp(const sf_message *message, int *kind) {
    *kind = ((const sf_event *)message)->kind;
    return *kind ? (int64_t)((uint64_t)chance(UINT64_MAX - 1)) : -1;
}
static int32_t headers(const sf_message *message, void **found) {
    const sf_event *event = (const sf_event *)message;
    *found = (void *)(uintptr_t)event;
    return event->headers ? 0 : -156;
}
static int32_t header(const void *found, size_t index, const char **name,
                      const void **data, size_t *size) {
    sf_event *event = (sf_event *)(uintptr_t)found;
    if (index >= event->headers)
        return -156;
    *name = event->bad_name ? bad[chance(7)] : names[chance(4)];
    value(data, size, event);
    return 0;
}

static void check_binary(const sf_binary *column, int64_t rows) {
    const int32_t *ends = (const int32_t *)(const void *)column->offsets.data;
    int64_t nulls = 0;
    assert(column->offsets.used == (size_t)(rows + 1) * 4 && ends[0] == 0);
    assert(column->valid.used == (size_t)(rows + 7) / 8);
    for (int64_t i = 0; i < rows; i++) {
        assert(ends[i] <= ends[i + 1]);
        nulls += !(column->valid.data[i / 8] >> (i % 8) & 1);
    }
    assert(ends[rows] == (int32_t)column->data.used && nulls == column->nulls);
}

static void check(const sf_columns *columns) {
    const int32_t *lists = (const int32_t *)(const void *)columns->header_lists.data;
    int64_t rows = columns->rows, before = -1;
    check_binary(&columns->keys, rows);
    check_binary(&columns->values, rows);
    assert(columns->offsets.used == (size_t)rows * 8);
    assert(columns->micros.used == (size_t)rows * 8);
    assert(columns->kinds.used == (size_t)rows * 4);
    assert(columns->times_valid.used == (size_t)(rows + 7) / 8);
    for (int64_t i = 0; i < rows; i++) {
        int64_t at;
        memcpy(&at, columns->offsets.data + 8 * i, 8);
        assert(at > before);
        before = at;
    }
    assert(rows == 0 || columns->next_offset == before + 1);
    if (columns->headers) {
        check_binary(&columns->header_keys, columns->header_count);
        check_binary(&columns->header_values, columns->header_count);
        assert(columns->header_lists.used == (size_t)(rows + 1) * 4);
        assert(lists[rows] == columns->header_count);
    }
    assert(memchr(columns->reason, 0, sizeof(columns->reason)) != NULL);
}

/* Columns that are almost full refuse what does not fit, and allocate nothing. */
static void check_limits(void) {
    sf_binary column = {0};
    column.data.used = INT32_MAX - 10;
    assert(add_binary(&column, 0, bytes, 11) == SF_TOO_LARGE);
    assert(add_binary(&column, 0, bytes, SIZE_MAX) == SF_TOO_LARGE);
    assert(column.data.data == NULL && column.valid.data == NULL);
    sf_buffer buffer = {NULL, SIZE_MAX / 2 - 1, 0};
    assert(!reserve(&buffer, 2) && !reserve(&buffer, SIZE_MAX));
}

int main(int count, char **arguments) {
    long rounds = count > 2 ? atol(arguments[2]) : 100;
    int statuses[8] = {0};
    void *functions[] = {
        (void *)add_on_new,      (void *)get_partition, (void *)forward,
        (void *)destroy_queue,   (void *)poll,          (void *)type,
        (void *)message_next,    (void *)error,         (void *)error_string,
        (void *)topic_partition, (void *)destroy_event, (void *)destroy_place,
        (void *)timestamp,       (void *)headers,       (void *)header,
    };
    state = count > 1 ? strtoull(arguments[1], NULL, 10) + 1 : 1;
    assert(conf_init(NULL, NULL, (char[80]){0}, 80) == -1);
    assert(sf_bind(functions, 3) == SF_NOT_BOUND);
    assert(sf_bind(functions, sizeof(functions) / sizeof(*functions)) == SF_OK);
    check_limits();
    for (long round = 0; round < rounds; round++) {
        sf_columns *columns;
        int status = SF_OK;
        hostile_sizes = chance(3) == 0;
        bad_names = chance(3) == 0;
        errors = (int)chance(1);
        allocations_left = chance(4) ? LONG_MAX : (long)chance(60);
        offset = 0;
        columns = sf_new_columns((int32_t)chance(1));
        if (columns == NULL) {
            statuses[SF_NO_MEMORY]++;
            continue;
        }
        for (int call = 0; call < 20 && status == SF_OK; call++) {
            int64_t rows = columns->rows;
            status = sf_fill(columns, bytes[0] ? &offset : NULL, (int64_t)chance(300), 0);
            assert(columns->rows == rows + columns->added);
            assert(live == 0);
            if (status == SF_OK)
                check(columns);
        }
        statuses[status]++;
        sf_free_columns(columns);
    }
    printf("ok=%d no_memory=%d too_large=%d bad_header=%d\n", statuses[SF_OK],
           statuses[SF_NO_MEMORY], statuses[SF_TOO_LARGE], statuses[SF_BAD_HEADER]);
    return 0;
}
