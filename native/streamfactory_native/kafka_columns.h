/*
 * Copies messages of librdkafka into buffers of Arrow's layout.
 *
 * The library is plain C, loaded with ctypes: it uses neither Python's ABI nor the
 * headers of librdkafka. The functions of librdkafka are bound at run time, so that
 * they are those of the library that confluent-kafka has loaded.
 */
#ifndef STREAMFACTORY_KAFKA_COLUMNS_H
#define STREAMFACTORY_KAFKA_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#define SF_EXPORT __attribute__((visibility("default")))

/* Increased with every change of what Python calls; Python refuses other numbers. */
#define SF_LEVEL 1

/* What `sf_fill` and `sf_bind` return. */
enum sf_status {
    SF_OK = 0,
    SF_NO_MEMORY = 1,  /* allocation failed */
    SF_TOO_LARGE = 2,  /* a column would exceed 2^31-1 bytes */
    SF_BAD_HEADER = 3, /* the name of a header is not UTF-8; see sf_columns.next_offset */
    SF_NOT_BOUND = 4,  /* a function of librdkafka is missing */
};

/* A public structure of librdkafka, unchanged since version 0.9. */
typedef struct {
    int32_t err;
    void *topic;
    int32_t partition;
    const void *payload;
    size_t len;
    const void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} sf_message;

/* The beginning of another one. */
typedef struct {
    char *topic;
    int32_t partition;
    int64_t offset;
} sf_place;

/* A growing buffer; `data` may be NULL while `used` is 0. */
typedef struct {
    uint8_t *data;
    size_t used;
    size_t capacity;
} sf_buffer;

/* A column of type binary or string; `offsets` has one entry more than there are rows. */
typedef struct {
    sf_buffer data;
    sf_buffer offsets;
    sf_buffer valid; /* one bit for each row */
    int64_t nulls;
} sf_binary;

/* Columns of one batch, and what the last call of `sf_fill` found. Python reads the
 * fields; the order is that of `_Columns` in native_library.py. */
typedef struct {
    int64_t rows;
    int64_t size;        /* bytes of keys and values */
    int64_t next_offset; /* after the last row */
    int64_t received;    /* by the last call: messages and events */
    int64_t added;       /* by the last call: rows */
    int64_t end;         /* by the last call: end of the partition; -1 if not reached */
    int32_t error;       /* by the last call: librdkafka's code; 0 without */
    int32_t headers;     /* whether headers are collected */
    char reason[512];    /* text of the error */
    sf_binary keys;
    sf_binary values;
    sf_buffer offsets;     /* int64 */
    sf_buffer micros;      /* int64 */
    sf_buffer times_valid; /* bits */
    int64_t times_nulls;
    sf_buffer kinds;        /* int32 */
    sf_buffer header_lists; /* int32: offsets of the lists */
    sf_buffer header_valid; /* bits */
    int64_t header_nulls;
    int64_t header_count;
    sf_binary header_keys;
    sf_binary header_values;
} sf_columns;

SF_EXPORT int32_t sf_level(void);
SF_EXPORT int32_t sf_bind(void *const *functions, size_t count);
SF_EXPORT void *sf_take_client(void);
SF_EXPORT void *sf_open_queue(void *client, const char *topic, int32_t partition);
SF_EXPORT void sf_purge_queue(void *queue);
SF_EXPORT void sf_close_queue(void *queue);
SF_EXPORT sf_columns *sf_new_columns(int32_t headers);
SF_EXPORT void sf_free_columns(sf_columns *columns);
SF_EXPORT int32_t sf_fill(sf_columns *columns, void *queue, int64_t wanted,
                          int32_t timeout_ms);

/* Called by librdkafka when it loads this library as a plug-in. */
SF_EXPORT int32_t conf_init(void *conf, void **opaque, char *errstr, size_t size);

#endif
