#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#endif
#include "kafka.h"

#include <string.h>
#include <time.h>

/* Tags of rd_kafka_producev(), and a flag. */
enum { END, V_TOPIC = 2, V_PARTITION, V_VALUE, V_KEY, V_FLAGS = 7, V_TIME, V_HEADERS = 10 };
enum { FLAG_COPY = 2, QUEUE_FULL = -184 };

typedef struct {
    const uint8_t *data; /* NULL: null */
    size_t size;
} sf_slice;

static int is_valid(const uint8_t *bits, int64_t index) {
    return bits == NULL || (bits[index / 8] >> (index % 8) & 1);
}

/* Begin and end of value number `index`; false if they are outside of the data. */
static int bounds(const sf_values *column, int64_t index, int32_t *begin, int32_t *end) {
    const uint8_t *at = column->offsets + (column->first + index) * (int64_t)sizeof(*begin);
    memcpy(begin, at, sizeof(*begin));
    memcpy(end, at + sizeof(*begin), sizeof(*end));
    return *begin >= 0 && *begin <= *end && *end <= column->size;
}

static int is_null(const sf_values *column, int64_t index) {
    return column->offsets == NULL || !is_valid(column->valid, column->first + index);
}

static int value_at(const sf_values *column, int64_t index, sf_slice *found) {
    int32_t begin, end;
    *found = (sf_slice){NULL, 0};
    if (is_null(column, index))
        return 1;
    if (!bounds(column, index, &begin, &end))
        return 0;
    found->size = (size_t)(end - begin);
    /* A value that is empty differs from null by its address alone. */
    found->data = begin < end ? column->data + begin : (const uint8_t *)"";
    return 1;
}

/* Milliseconds, rounded down; 0 for null, for which librdkafka sets the time. */
static int64_t millis_at(const sf_rows *rows, int64_t index) {
    int64_t micros, at = rows->times_first + index;
    if (rows->micros == NULL || !is_valid(rows->times_valid, at))
        return 0;
    memcpy(&micros, rows->micros + at * (int64_t)sizeof(micros), sizeof(micros));
    return micros / 1000 - (micros % 1000 < 0);
}

/* The headers of a row; NULL without any. */
static int headers_at(const sf_rows *rows, int64_t index, void **headers) {
    int32_t begin, end;
    *headers = NULL;
    if (is_null(&rows->headers, index))
        return SF_OK;
    if (!bounds(&rows->headers, index, &begin, &end))
        return SF_BAD_ROWS;
    if (begin < end && (*headers = sf_kafka.headers_new((size_t)(end - begin))) == NULL)
        return SF_NO_MEMORY;
    for (; begin < end; begin++) {
        sf_slice name, value;
        if (!value_at(&rows->header_keys, begin, &name) || name.data == NULL ||
            !value_at(&rows->header_values, begin, &value))
            return SF_BAD_ROWS;
        if (sf_kafka.header_add(*headers, (const char *)name.data, (ptrdiff_t)name.size,
                                value.data, (ptrdiff_t)value.size) != 0)
            return SF_NO_MEMORY;
    }
    return SF_OK;
}

/* Sends one row; librdkafka copies it. Its code is in rows->error. */
static int send_row(void *handle, void *topic, int32_t partition, sf_rows *rows) {
    sf_slice key, value;
    void *headers;
    int status;
    if (!value_at(&rows->keys, rows->next, &key) ||
        !value_at(&rows->values, rows->next, &value))
        return SF_BAD_ROWS;
    status = headers_at(rows, rows->next, &headers);
    if (status == SF_OK)
        rows->error = sf_kafka.producev(
            handle, V_TOPIC, topic, V_PARTITION, partition, V_FLAGS, FLAG_COPY, V_KEY,
            key.data, key.size, V_VALUE, value.data, value.size, V_TIME,
            millis_at(rows, rows->next), V_HEADERS, headers, END);
    if (headers != NULL && (status != SF_OK || rows->error != 0))
        sf_kafka.headers_destroy(headers); /* otherwise they belong to the message */
    return status;
}

static void pause_1_ms(void) {
    const struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

/* Sends up to `most` rows. While librdkafka's queue is full, waits for room until the
 * timeout. Stops at a row that is refused: see rows->next and rows->error. */
int32_t sf_send(sf_client *client, const char *topic, int32_t partition, sf_rows *rows,
                int64_t most, int32_t timeout_ms) {
    int64_t until = sf_now_ms() + timeout_ms;
    int64_t end = rows->count - rows->next > most ? rows->next + most : rows->count;
    void *handle = sf_handle(client), *to = sf_kafka.topic_new(handle, topic, NULL);
    int status = SF_OK;
    rows->error = to == NULL ? sf_kafka.last_error() : 0;
    while (status == SF_OK && rows->error == 0 && rows->next < end) {
        status = send_row(handle, to, partition, rows);
        if (status == SF_OK && rows->error == 0) {
            rows->next++;
        } else if (rows->error == QUEUE_FULL) {
            rows->error = 0;
            if (sf_now_ms() >= until)
                break;
            pause_1_ms();
        }
    }
    if (to != NULL)
        sf_kafka.topic_destroy(to);
    return status;
}
