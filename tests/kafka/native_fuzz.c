/*
 * Runs the compiled part beside a librdkafka that answers at random. Reading: sizes up to
 * the largest number, NULLs, texts that are not UTF-8, errors, and an allocator that
 * fails; into columns of one partition, and of several. Writing: a queue that is full,
 * refusals, rows whose offsets lie, and reports from other threads. Built with
 * sanitizers; every batch is compared with what was fed, every message with its row.
 * Usage: SEED ROUNDS.
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
static void *failing_calloc(size_t count, size_t size) {
    return allocations_left-- <= 0 ? NULL : calloc(count, size);
}
static void *failing_malloc(size_t size) {
    return allocations_left-- <= 0 ? NULL : malloc(size);
}
#define calloc failing_calloc
#include "kafka_client.c"
#define realloc failing_realloc
#define malloc failing_malloc
#include "kafka_parts.c"
#undef malloc
#undef realloc
#undef calloc
#include "kafka_rows.c"
#include <stdarg.h>
#include <pthread.h>

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
    const sf_place *place;
} sf_event;

static int live; /* events that were not destroyed */
static int64_t offset;
static int hostile_sizes, bad_names, errors;

/* Partitions of which messages are polled. An offset modulo their number names one. */
enum { PLACES = 7 };
static char long_name[250], *topics[] = {"t", "u", "", long_name};
static const sf_place places[PLACES] = {{"t", 0, 0}, {"t", 1, 0}, {"t", INT32_MAX, 0},
                                        {"u", 0, 0}, {"u", 1, 0}, {"", 0, 0},
                                        {long_name, 0, 0}};
static int several; /* whether more than one of them is polled */

/* --- clients: settings that keep the interceptors, and call them ---------------------- */

static sf_on_conf_destroy conf_destroyed;
static sf_on_new created;
static sf_on_acknowledgement acknowledged;
static void *its_client;
static int conflicts; /* whether adding an interceptor fails */

static int32_t add_on_conf_destroy(void *a, const char *b, sf_on_conf_destroy c, void *d) {
    (void)a, (void)b;
    conf_destroyed = c;
    its_client = d;
    return conflicts;
}
static int32_t add_on_new(void *a, const char *b, sf_on_new c, void *d) {
    (void)a, (void)b;
    assert(d == its_client);
    created = c;
    return 0;
}
static int32_t add_on_acknowledgement(void *a, const char *b, sf_on_acknowledgement c,
                                      void *d) {
    (void)a, (void)b;
    assert(d == its_client);
    acknowledged = c;
    return 0;
}
static int32_t last_error(void) { return -185; }

/* --- reading ---------------------------------------------------------------------------- */

static int client_handle; /* its address is the handle */
static void *get_partition(void *a, const char *b, int32_t c) {
    (void)b;
    return c < 0 ? NULL : a;
}
static void *forwarded; /* where the queue of a partition was forwarded last */
static void forward(void *a, void *b) {
    (void)a;
    forwarded = b;
}
static int queue; /* its address is the queue of a member */
static void *new_queue(void *a) {
    assert(a == &client_handle);
    return &queue;
}
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

/* The topic of a message: the address of its name's entry. */
static void *topic_of(const char *name) {
    for (size_t i = 0; i < sizeof(topics) / sizeof(*topics); i++)
        if (strcmp(topics[i], name) == 0)
            return &topics[i];
    assert(0);
    return NULL;
}

static void *poll(void *a, int timeout) {
    sf_event *event;
    (void)a, (void)timeout;
    if (chance(200) == 0)
        return NULL;
    event = calloc(1, sizeof(*event));
    live++;
    event->place = &places[several ? chance(PLACES - 1) : 0];
    if (errors && chance(50) == 0) {
        event->error = chance(1) ? PARTITION_EOF : (int32_t)chance(INT32_MAX) - INT32_MAX / 2;
        return event;
    }
    offset += 1 + (int64_t)chance(3);
    event->place = &places[several ? offset % PLACES : 0];
    event->message.offset = offset;
    event->message.partition = event->place->partition;
    event->message.topic = topic_of(event->place->topic);
    event->kind = (int)chance(2);
    value(&event->message.key, &event->message.key_len, event);
    value(&event->message.payload, &event->message.len, event);
    event->headers = chance(2) ? 0 : chance(HEADERS);
    event->bad_name = bad_names && event->headers && chance(20) == 0;
    return event;
}
static int type(const void *event) {
    return ((const sf_event *)event)->error ? SF_EVENT_ERROR : 2;
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
    if (place != NULL) {
        *place = *((sf_event *)event)->place;
        place->offset = offset + 1;
        live++;
    }
    return place;
}
static void destroy_event(void *event) {
    live--;
    free(event);
}
static void destroy_place(sf_place *place) {
    live--;
    free(place);
}
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
    assert((size_t)columns->size ==
           columns->keys.data.used + columns->values.data.used +
               columns->header_keys.data.used + columns->header_values.data.used +
               SF_HEADER_BYTES * (size_t)columns->header_count);
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

/* --- writing ---------------------------------------------------------------------------- */

enum { ROWS = 40, MOST_HEADERS = 4 };

/* The rows of one call of `sf_send`, in buffers of exactly their size. */
static sf_rows rows;
static int64_t expected;    /* index of the row whose message is next */
static int open_topics;     /* handles that were not destroyed */
static int header_lists;    /* headers that belong to nobody */
static int refusal, is_full; /* what producev() returns */
static uint8_t *owned[32];
static int owned_count;

static void *kept(size_t size) {
    uint8_t *data = malloc(size ? size : 1);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)chance(255);
    return owned[owned_count++] = data;
}

/* A column of `count` values behind `first` others, with offsets that lie if hostile. */
static sf_values column_of(int64_t count, int64_t first, int64_t most, int hostile) {
    size_t size = (size_t)chance((uint64_t)most);
    sf_values column = {NULL, NULL, NULL, (int64_t)size, first};
    int32_t *ends;
    if (chance(6) == 0)
        return (sf_values){0};
    if (chance(2))
        column.valid = kept((size_t)(first + count + 7) / 8);
    column.data = most == MOST_HEADERS ? NULL : kept(size);
    column.offsets = kept((size_t)(first + count + 1) * 4);
    ends = (int32_t *)(void *)owned[owned_count - 1];
    ends[0] = (int32_t)chance(size);
    for (int64_t i = 1; i <= first + count; i++)
        ends[i] = ends[i - 1] + (int32_t)chance((uint64_t)((int32_t)size - ends[i - 1]) / 2);
    if (hostile)
        ends[chance((uint64_t)(first + count))] = (int32_t)(chance(UINT32_MAX) - INT32_MAX);
    return column;
}

static void check_slice(const sf_values *column, int64_t index, const void *data,
                        size_t size) {
    int64_t at = column->first + index;
    const int32_t *ends = (const int32_t *)(const void *)column->offsets;
    int null = ends == NULL ||
               (column->valid && !(column->valid[at / 8] >> (at % 8) & 1));
    assert(null == (data == NULL));
    assert(null ? size == 0 : size == (size_t)(ends[at + 1] - ends[at]));
    assert(size == 0 || data == column->data + ends[at]);
    for (size_t i = 0; i < size; i++) /* the sanitizer checks that it can be read */
        (void)((const volatile uint8_t *)data)[i];
}

static void *topic_new(void *handle, const char *name, void *conf) {
    assert(handle == &client_handle && strcmp(name, "topic") == 0 && conf == NULL);
    if (chance(20) == 0)
        return NULL;
    open_topics++;
    return &open_topics;
}
static void topic_destroy(void *topic) {
    assert(topic == &open_topics);
    open_topics--;
}
static const char *topic_name(const void *topic) {
    static char name[400];
    if (topic >= (const void *)topics && topic < (const void *)(topics + 4))
        return *(char *const *)topic;
    memset(name, 't', sizeof(name) - 1);
    return name;
}
static int headers_added; /* to the list that is being built */
static void *headers_new(size_t size) {
    assert(size > 0 && size <= MOST_HEADERS);
    if (allocations_left-- <= 0)
        return NULL;
    header_lists++;
    headers_added = 0;
    return &header_lists;
}
static void headers_destroy(void *list) {
    assert(list == &header_lists);
    header_lists--;
}
static int32_t header_add(void *list, const char *name, ptrdiff_t name_size,
                          const void *data, ptrdiff_t size) {
    int64_t at = rows.headers.first + expected;
    int64_t index = ((const int32_t *)(const void *)rows.headers.offsets)[at];
    assert(list == &header_lists && name_size >= 0 && size >= 0);
    index += headers_added++;
    check_slice(&rows.header_keys, index, name, (size_t)name_size);
    check_slice(&rows.header_values, index, data, (size_t)size);
    return 0;
}
static int32_t producev(void *handle, ...) {
    const void *key, *data, *list;
    size_t key_size, size;
    int64_t time;
    va_list given;
    assert(handle == &client_handle);
    va_start(given, handle);
    assert(va_arg(given, int) == 2 && va_arg(given, void *) == &open_topics);
    assert(va_arg(given, int) == 3 && va_arg(given, int32_t) == 7);
    assert(va_arg(given, int) == 7 && va_arg(given, int) == 2);
    assert(va_arg(given, int) == 5);
    key = va_arg(given, const void *), key_size = va_arg(given, size_t);
    assert(va_arg(given, int) == 4);
    data = va_arg(given, const void *), size = va_arg(given, size_t);
    assert(va_arg(given, int) == 8);
    time = va_arg(given, int64_t);
    assert(va_arg(given, int) == 10);
    list = va_arg(given, const void *);
    assert(va_arg(given, int) == 0);
    va_end(given);
    if (is_full)
        return chance(1) ? -184 : (is_full = 0, -184);
    if (refusal && chance(20) == 0)
        return refusal;
    check_slice(&rows.keys, expected, key, key_size);
    check_slice(&rows.values, expected, data, size);
    if (rows.micros != NULL && is_valid(rows.times_valid, rows.times_first + expected)) {
        int64_t micros;
        memcpy(&micros, rows.micros + 8 * (rows.times_first + expected), 8);
        assert((__int128)time * 1000 <= micros && micros < ((__int128)time + 1) * 1000);
    } else {
        assert(time == 0);
    }
    if (list != NULL)
        headers_destroy((void *)(uintptr_t)list); /* they belong to the message */
    expected++;
    is_full = chance(30) == 0;
    return 0;
}

static int nameless; /* whether messages have no topic */

static void *report(void *client) {
    for (int i = 0; i < 200; i++) {
        sf_message message = {.partition = i, .len = 5, .topic = nameless ? NULL : &rows};
        message.err = i % 50 == 20 ? -152 : i % 100 == 60 ? 10 : 0;
        acknowledged(&client_handle, &message, client);
    }
    return NULL;
}

/* Reports of four threads at once are all counted, and one failure is kept. */
static void check_reports(sf_client *client) {
    pthread_t threads[4];
    sf_failure failure;
    sf_reset_reports(client);
    assert(sf_delivered(client) == 0 && !sf_first_failure(client, &failure));
    for (int i = 0; i < 4; i++)
        assert(pthread_create(&threads[i], NULL, report, client) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert(sf_delivered(client) == 4 * (200 - 4 - 2));
    assert(sf_first_failure(client, &failure));
    assert(failure.error == 10 && failure.size == 5 && failure.partition % 100 == 60);
    assert(strlen(failure.topic) == (nameless ? 0 : 255));
}

static sf_client *client_made(void) {
    char reason[80] = "";
    sf_client *client;
    allocations_left = LONG_MAX;
    conflicts = -173;
    assert(conf_init(NULL, NULL, reason, sizeof(reason)) == -173);
    conflicts = 0;
    allocations_left = 0;
    assert(conf_init(NULL, NULL, reason, sizeof(reason)) == NO_RESOURCES);
    assert(strcmp(reason, "no memory") == 0);
    assert(conf_init(NULL, NULL, NULL, 0) == NO_RESOURCES);
    allocations_left = LONG_MAX;
    assert(conf_init(NULL, NULL, reason, sizeof(reason)) == 0);
    assert(sf_take_client() == NULL);
    assert(created(&client_handle, NULL, its_client, NULL, 0) == 0);
    conf_destroyed(its_client); /* a client that failed to start */
    assert(sf_take_client() == NULL);
    assert(conf_init(NULL, NULL, reason, sizeof(reason)) == 0);
    assert(created(&client_handle, NULL, its_client, NULL, 0) == 0);
    client = sf_take_client();
    assert(client == its_client && sf_take_client() == NULL);
    return client;
}

static void fuzz_writing(sf_client *client, int *statuses) {
    int hostile = chance(3) == 0, status = SF_OK;
    int64_t count = (int64_t)chance(ROWS), first = (int64_t)chance(9), pairs;
    owned_count = 0;
    refusal = chance(3) ? 0 : 10;
    is_full = 0;
    allocations_left = chance(4) ? LONG_MAX : (long)chance(60);
    rows = (sf_rows){.count = count};
    rows.keys = column_of(count, first, 500, hostile && chance(2) == 0);
    rows.values = column_of(count, (int64_t)chance(9), 3000, hostile);
    rows.headers = column_of(count, (int64_t)chance(9), MOST_HEADERS, hostile);
    pairs = rows.headers.size;
    rows.header_keys = column_of(pairs, (int64_t)chance(9), 90, hostile && chance(4) == 0);
    rows.header_values = column_of(pairs, (int64_t)chance(9), 90, hostile);
    if (chance(2)) {
        rows.times_first = first;
        rows.times_valid = chance(1) ? kept((size_t)(first + count + 7) / 8) : NULL;
        rows.micros = kept((size_t)(first + count) * 8);
    }
    expected = 0;
    for (int call = 0; call < 500 && status == SF_OK && rows.next < count; call++) {
        int64_t before = rows.next, most = (int64_t)chance(ROWS);
        status = sf_send(client, "topic", 7, &rows, most, (int32_t)chance(1));
        assert(rows.next == expected && expected - before <= most && expected <= count);
        assert(open_topics == 0 && header_lists == 0);
        assert(rows.error == 0 || rows.error == 10 || rows.error == -185);
        assert(rows.error != 10 || refusal == 10);
    }
    assert(status != SF_OK || rows.next == count);
    statuses[status]++;
    while (owned_count > 0)
        free(owned[--owned_count]);
}

static void fuzz_reading(int *statuses);
static void fuzz_parts(int *statuses);

int main(int count, char **arguments) {
    long rounds = count > 2 ? atol(arguments[2]) : 100;
    int statuses[8] = {0};
    char reason[80] = "";
    sf_client *client;
    void *functions[] = {
        (void *)add_on_conf_destroy,
        (void *)add_on_new,
        (void *)add_on_acknowledgement,
        (void *)last_error,
        (void *)new_queue,
        (void *)get_partition,
        (void *)forward,
        (void *)destroy_queue,
        (void *)poll,
        (void *)type,
        (void *)message_next,
        (void *)error,
        (void *)error_string,
        (void *)topic_partition,
        (void *)destroy_event,
        (void *)destroy_place,
        (void *)timestamp,
        (void *)headers,
        (void *)header,
        (void *)topic_new,
        (void *)topic_destroy,
        (void *)topic_name,
        (void *)headers_new,
        (void *)headers_destroy,
        (void *)header_add,
        (void *)producev,
    };
    state = count > 1 ? strtoull(arguments[1], NULL, 10) + 1 : 1;
    assert(conf_init(NULL, NULL, reason, sizeof(reason)) == NO_RESOURCES);
    assert(strstr(reason, "not bound") != NULL);
    assert(sf_bind(functions, 3) == SF_NOT_BOUND);
    assert(sf_bind(functions, sizeof(functions) / sizeof(*functions)) == SF_OK);
    check_limits();
    client = client_made();
    assert(sf_open_queue(client, "t", 0) == &client_handle && forwarded == NULL);
    assert(sf_new_queue(client) == &queue);
    assert(sf_forward(client, "t", 0, &queue) && forwarded == &queue);
    assert(!sf_forward(client, "t", -1, &queue));
    for (nameless = 0; nameless < 2; nameless++)
        check_reports(client);
    for (long round = 0; round < 20 * rounds; round++)
        fuzz_writing(client, statuses);
    conf_destroyed(client);
    memset(long_name, 'n', sizeof(long_name) - 1);
    for (long round = 0; round < rounds; round++) {
        fuzz_reading(statuses);
        fuzz_parts(statuses);
    }
    printf("ok=%d no_memory=%d too_large=%d bad_header=%d bad_rows=%d\n",
           statuses[SF_OK], statuses[SF_NO_MEMORY], statuses[SF_TOO_LARGE],
           statuses[SF_BAD_HEADER], statuses[SF_BAD_ROWS]);
    return 0;
}

static void begin_reading(void) {
    hostile_sizes = chance(3) == 0;
    bad_names = chance(3) == 0;
    errors = (int)chance(1);
    allocations_left = chance(4) ? LONG_MAX : (long)chance(60);
    offset = 0;
}

static void fuzz_reading(int *statuses) {
    sf_columns *columns;
    int status = SF_OK;
    begin_reading();
    several = 0;
    columns = sf_new_columns((int32_t)chance(1));
    if (columns == NULL) {
        statuses[SF_NO_MEMORY]++;
        return;
    }
    for (int call = 0; call < 20 && status == SF_OK; call++) {
        int64_t before = columns->rows, most = (int64_t)chance(1 << 20);
        int64_t size = columns->size;
        status = sf_fill(columns, bytes[0] ? &offset : NULL, (int64_t)chance(300),
                         most, 0);
        assert(columns->rows == before + columns->added);
        assert(size < most || columns->received == 0);
        assert(live == 0);
        if (status == SF_OK)
            check(columns);
    }
    statuses[status]++;
    sf_free_columns(columns);
}

static int equals(const sf_part *part, const char *topic, int32_t partition) {
    return strcmp(part->topic, topic) == 0 && part->partition == partition;
}

/* Every message is in the columns of its partition, and each partition in one part. */
static void check_parts(const sf_parts *parts) {
    int64_t total = 0, size = 0;
    assert(parts->count <= PLACES + 1 && parts->count <= parts->capacity);
    for (int64_t i = 0; i < parts->count; i++) {
        const sf_part *part = &parts->parts[i];
        for (int64_t j = 0; j < i; j++)
            assert(!equals(&parts->parts[j], part->topic, part->partition));
        check(part->columns);
        for (int64_t row = 0; row < part->columns->rows; row++) {
            const sf_place *place;
            int64_t at;
            memcpy(&at, part->columns->offsets.data + 8 * row, 8);
            place = &places[at % PLACES];
            assert(equals(part, place->topic, place->partition));
        }
        total += part->columns->rows;
        size += part->columns->size;
    }
    assert(total == parts->rows && size == parts->size);
    assert(parts->failed < parts->count);
    assert(parts->failed < 0 || parts->parts[parts->failed].columns->error != 0);
}

static void fuzz_parts(int *statuses) {
    sf_parts *parts;
    int status = SF_OK;
    begin_reading();
    several = 1;
    parts = sf_new_parts((int32_t)chance(1));
    if (parts == NULL) {
        statuses[SF_NO_MEMORY]++;
        return;
    }
    for (int call = 0; call < 20 && status == SF_OK; call++) {
        int64_t wanted = (int64_t)chance(300);
        status = sf_fill_parts(parts, &queue, wanted, (int64_t)1 << 40, 0);
        assert(live == 0 && parts->received <= wanted);
        if (status == SF_OK)
            check_parts(parts);
        else
            assert(parts->failed < parts->count);
    }
    statuses[status]++;
    if (parts->count > 0 && status == SF_OK)
        sf_free_columns(sf_take_columns(parts, (int64_t)chance((uint64_t)parts->count - 1)));
    sf_free_parts(parts);
}
