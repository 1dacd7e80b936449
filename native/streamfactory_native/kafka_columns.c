#include "kafka.h"

#include <stdlib.h>
#include <string.h>

/* --- the queue of one partition ---------------------------------------------------- */

enum { PARTITION_EOF = -191 };

/* Without forwarding the queue contains what was fetched of the partition, its end and
 * its errors. It is read as events, which call no callback: those of confluent-kafka
 * abort the process unless it is they that called librdsf_kafka. */
void *sf_open_queue(sf_client *client, const char *topic, int32_t partition) {
    void *queue = sf_kafka.queue_get_partition(sf_handle(client), topic, partition);
    if (queue != NULL)
        sf_kafka.queue_forward(queue, NULL);
    return queue;
}

void sf_purge_queue(void *queue) {
    void *event;
    while ((event = sf_kafka.queue_poll(queue, 0)) != NULL)
        sf_kafka.event_destroy(event);
}

void sf_close_queue(void *queue) { sf_kafka.queue_destroy(queue); }

/* --- buffers ------------------------------------------------------------------------- */

/* Makes room for more bytes; false if there is no memory. */
static int reserve(sf_buffer *buffer, size_t more) {
    size_t needed, capacity = buffer->capacity;
    uint8_t *data;
    if (more > SIZE_MAX / 2 - buffer->used)
        return 0;
    needed = buffer->used + more;
    if (needed <= capacity)
        return 1;
    if (capacity < 256)
        capacity = 256;
    while (capacity < needed)
        capacity *= 2; /* needed is at most SIZE_MAX / 2 */
    data = realloc(buffer->data, capacity);
    if (data == NULL)
        return 0;
    buffer->data = data;
    buffer->capacity = capacity;
    return 1;
}

static int add_int32(sf_buffer *buffer, int32_t value) {
    if (!reserve(buffer, sizeof(value)))
        return 0;
    memcpy(buffer->data + buffer->used, &value, sizeof(value));
    buffer->used += sizeof(value);
    return 1;
}

static int add_int64(sf_buffer *buffer, int64_t value) {
    if (!reserve(buffer, sizeof(value)))
        return 0;
    memcpy(buffer->data + buffer->used, &value, sizeof(value));
    buffer->used += sizeof(value);
    return 1;
}

/* Adds bit number `index`: all before it were added. */
static int add_bit(sf_buffer *bits, int64_t index, int value) {
    size_t byte = (size_t)index / 8;
    if (byte == bits->used) {
        if (!reserve(bits, 1))
            return 0;
        bits->data[bits->used++] = 0;
    }
    bits->data[byte] |= (uint8_t)(value << (index % 8));
    return 1;
}

/* Adds value number `index`; NULL is a null. */
static int add_binary(sf_binary *column, int64_t index, const void *data, size_t size) {
    if (data == NULL)
        size = 0;
    if (size > (size_t)INT32_MAX - column->data.used)
        return SF_TOO_LARGE;
    if (!add_bit(&column->valid, index, data != NULL) || !reserve(&column->data, size))
        return SF_NO_MEMORY;
    if (size > 0)
        memcpy(column->data.data + column->data.used, data, size);
    column->data.used += size;
    column->nulls += data == NULL;
    return add_int32(&column->offsets, (int32_t)column->data.used) ? SF_OK
                                                                   : SF_NO_MEMORY;
}

static void free_binary(sf_binary *column) {
    free(column->data.data);
    free(column->offsets.data);
    free(column->valid.data);
}

sf_columns *sf_new_columns(int32_t headers) {
    sf_columns *columns = calloc(1, sizeof(*columns));
    if (columns == NULL)
        return NULL;
    columns->headers = headers;
    if (add_int32(&columns->keys.offsets, 0) && add_int32(&columns->values.offsets, 0) &&
        add_int32(&columns->header_lists, 0) &&
        add_int32(&columns->header_keys.offsets, 0) &&
        add_int32(&columns->header_values.offsets, 0))
        return columns;
    sf_free_columns(columns);
    return NULL;
}

void sf_free_columns(sf_columns *columns) {
    if (columns == NULL)
        return;
    free_binary(&columns->keys);
    free_binary(&columns->values);
    free_binary(&columns->header_keys);
    free_binary(&columns->header_values);
    free(columns->offsets.data);
    free(columns->micros.data);
    free(columns->times_valid.data);
    free(columns->kinds.data);
    free(columns->header_lists.data);
    free(columns->header_valid.data);
    free(columns);
}

/* --- messages ------------------------------------------------------------------------ */

/* Whether a text is UTF-8, as Unicode defines it: shortest form, no surrogates. */
static int is_utf8(const char *text, size_t size) {
    const uint8_t *at = (const uint8_t *)text, *end = at + size;
    while (at < end) {
        uint8_t first = *at++;
        int more = first < 0x80 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
        uint8_t low = 0x80, high = 0xbf;
        if (more == 0)
            continue;
        if (first < 0xc2 || first > 0xf4 || end - at < more)
            return 0;
        if (first == 0xe0)
            low = 0xa0;
        if (first == 0xed)
            high = 0x9f;
        if (first == 0xf0)
            low = 0x90;
        if (first == 0xf4)
            high = 0x8f;
        while (more-- > 0) {
            if (*at < low || *at > high)
                return 0;
            at++;
            low = 0x80, high = 0xbf;
        }
    }
    return 1;
}

static int add_headers(sf_columns *columns, const sf_message *message) {
    void *headers = NULL;
    const char *name;
    const void *value;
    size_t size;
    int64_t before = columns->header_count;
    int status;
    if (sf_kafka.message_headers(message, &headers) != 0)
        headers = NULL;
    for (size_t i = 0; headers != NULL; i++) {
        if (sf_kafka.header_get_all(headers, i, &name, &value, &size) != 0)
            break;
        if (!is_utf8(name, strlen(name)))
            return SF_BAD_HEADER;
        if (columns->header_count == INT32_MAX)
            return SF_TOO_LARGE;
        status = add_binary(&columns->header_keys, columns->header_count, name,
                            strlen(name));
        if (status == SF_OK)
            status = add_binary(&columns->header_values, columns->header_count, value,
                                size);
        if (status != SF_OK)
            return status;
        columns->header_count++;
    }
    if (!add_int32(&columns->header_lists, (int32_t)columns->header_count) ||
        !add_bit(&columns->header_valid, columns->rows, columns->header_count > before))
        return SF_NO_MEMORY;
    columns->header_nulls += columns->header_count == before;
    return SF_OK;
}

int sf_add_row(sf_columns *columns, const sf_message *message) {
    int kind = 0, status;
    int64_t row = columns->rows, millis = sf_kafka.message_timestamp(message, &kind);
    /* The product wraps around like NumPy's: a timestamp is any number. */
    int64_t micros = kind == 0 ? 0 : (int64_t)((uint64_t)millis * 1000);
    columns->next_offset = message->offset;
    status = add_binary(&columns->keys, row, message->key, message->key_len);
    if (status == SF_OK)
        status = add_binary(&columns->values, row, message->payload, message->len);
    if (status == SF_OK && columns->headers)
        status = add_headers(columns, message);
    if (status != SF_OK)
        return status;
    if (!add_int64(&columns->offsets, message->offset) ||
        !add_int64(&columns->micros, micros) ||
        !add_bit(&columns->times_valid, row, kind != 0) ||
        !add_int32(&columns->kinds, kind - 1))
        return SF_NO_MEMORY;
    columns->times_nulls += kind == 0;
    columns->size =
        (int64_t)(columns->keys.data.used + columns->values.data.used +
                  columns->header_keys.data.used + columns->header_values.data.used) +
        SF_HEADER_BYTES * columns->header_count;
    columns->next_offset = message->offset + 1;
    columns->rows = row + 1;
    columns->added++;
    return SF_OK;
}

/* Notes the end of the partition or an error; true for an error. */
int sf_add_error(sf_columns *columns, void *event, const sf_place *place) {
    int32_t code = sf_kafka.event_error(event);
    const char *text = sf_kafka.event_error_string(event);
    size_t size = text == NULL ? 0 : strlen(text);
    if (code == PARTITION_EOF) {
        if (place != NULL)
            columns->end = place->offset;
        return 0;
    }
    if (size >= sizeof(columns->reason))
        size = sizeof(columns->reason) - 1;
    if (size > 0)
        memcpy(columns->reason, text, size);
    columns->reason[size] = 0;
    columns->error = code;
    return code != 0;
}

/* The next event; NULL if there is none until a time. */
void *sf_next_event(void *queue, int64_t until) {
    void *event = sf_kafka.queue_poll(queue, 0);
    int64_t left = event == NULL ? until - sf_now_ms() : 0;
    if (left > 0)
        event = sf_kafka.queue_poll(queue, (int)left);
    return event;
}

/* Adds up to `wanted` messages, and waits for all of them until the timeout. Stops at
 * an error of librdkafka, and when the columns have `most` bytes, or SF_MOST_BYTES; what
 * follows stays in the queue. After a status other than SF_OK the columns can only be
 * freed; `next_offset` is then that of the message that was refused. */
int32_t sf_fill(sf_columns *columns, void *queue, int64_t wanted, int64_t most,
                int32_t timeout_ms) {
    int64_t until = sf_now_ms() + timeout_ms;
    const sf_message *message;
    int status = SF_OK, stopped = 0;
    sf_place *place;
    void *event;
    columns->received = columns->added = 0;
    columns->end = -1;
    columns->error = 0;
    if (most > SF_MOST_BYTES)
        most = SF_MOST_BYTES;
    while (columns->received < wanted && columns->size < most && status == SF_OK &&
           !stopped) {
        event = sf_next_event(queue, until);
        if (event == NULL)
            break;
        columns->received++;
        /* An event of a consumer has one message, or none. */
        if ((message = sf_kafka.event_message_next(event)) != NULL)
            status = sf_add_row(columns, message);
        else if (sf_kafka.event_type(event) == SF_EVENT_ERROR) {
            place = sf_kafka.event_topic_partition(event);
            stopped = sf_add_error(columns, event, place);
            if (place != NULL)
                sf_kafka.topic_partition_destroy(place);
        }
        sf_kafka.event_destroy(event);
    }
    return status;
}
