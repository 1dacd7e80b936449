/*
 * Messages of librdkafka from and into buffers of Arrow's layout.
 *
 * The library is plain C, loaded with ctypes: it uses neither Python's ABI nor the
 * headers of librdkafka. The functions of librdkafka are bound at run time, so that
 * they are those of the library that confluent-kafka has loaded.
 */
#ifndef STREAMFACTORY_KAFKA_H
#define STREAMFACTORY_KAFKA_H

#include <stddef.h>
#include <stdint.h>

#define SF_EXPORT __attribute__((visibility("default")))

/* Increased with every change of what Python calls; Python refuses other numbers. */
#define SF_LEVEL 4

/* What functions return. */
enum sf_status {
    SF_OK = 0,
    SF_NO_MEMORY = 1,  /* allocation failed */
    SF_TOO_LARGE = 2,  /* a column would exceed 2^31-1 bytes */
    SF_BAD_HEADER = 3, /* the name of a header is not UTF-8; see sf_columns.next_offset */
    SF_NOT_BOUND = 4,  /* a function of librdkafka is missing */
    SF_BAD_ROWS = 5,   /* a column of sf_rows has offsets outside of its data */
};

/* --- librdkafka ------------------------------------------------------------------- */

/* A public structure, unchanged since version 0.9. */
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

typedef int32_t (*sf_on_conf_destroy)(void *);
typedef int32_t (*sf_on_new)(void *, const void *, void *, char *, size_t);
typedef int32_t (*sf_on_acknowledgement)(void *, sf_message *, void *);

/* Its functions, in the order of FUNCTIONS in native_library.py. */
typedef struct {
    int32_t (*conf_interceptor_add_on_conf_destroy)(void *, const char *,
                                                    sf_on_conf_destroy, void *);
    int32_t (*conf_interceptor_add_on_new)(void *, const char *, sf_on_new, void *);
    int32_t (*interceptor_add_on_acknowledgement)(void *, const char *,
                                                  sf_on_acknowledgement, void *);
    int32_t (*last_error)(void);
    void *(*queue_new)(void *);
    void *(*queue_get_partition)(void *, const char *, int32_t);
    void (*queue_forward)(void *, void *);
    void (*queue_destroy)(void *);
    void *(*queue_poll)(void *, int);
    int (*event_type)(const void *);
    const sf_message *(*event_message_next)(void *);
    int32_t (*event_error)(void *);
    const char *(*event_error_string)(void *);
    sf_place *(*event_topic_partition)(void *);
    void (*event_destroy)(void *);
    void (*topic_partition_destroy)(sf_place *);
    int64_t (*message_timestamp)(const sf_message *, int *);
    int32_t (*message_headers)(const sf_message *, void **);
    int32_t (*header_get_all)(const void *, size_t, const char **, const void **,
                              size_t *);
    void *(*topic_new)(void *, const char *, void *);
    void (*topic_destroy)(void *);
    const char *(*topic_name)(const void *);
    void *(*headers_new)(size_t);
    void (*headers_destroy)(void *);
    int32_t (*header_add)(void *, const char *, ptrdiff_t, const void *, ptrdiff_t);
    int32_t (*producev)(void *, ...);
} sf_librdkafka;

extern sf_librdkafka sf_kafka;

/* --- clients ---------------------------------------------------------------------- */

/* A message that was not delivered. */
typedef struct {
    int32_t error; /* librdkafka's code */
    int32_t partition;
    int64_t size; /* bytes of the value */
    char topic[256];
} sf_failure;

/* A client of librdkafka; freed with it. */
typedef struct sf_client sf_client;

SF_EXPORT int32_t sf_level(void);
SF_EXPORT int32_t sf_bind(void *const *functions, size_t count);
SF_EXPORT sf_client *sf_take_client(void);
SF_EXPORT void sf_reset_reports(sf_client *client);
SF_EXPORT int64_t sf_delivered(sf_client *client);
SF_EXPORT int32_t sf_first_failure(sf_client *client, sf_failure *failure);

/* Called by librdkafka when it loads this library as a plug-in. */
SF_EXPORT int32_t conf_init(void *conf, void **opaque, char *errstr, size_t size);

void *sf_handle(const sf_client *client);
int64_t sf_now_ms(void);

/* --- reading ---------------------------------------------------------------------- */

/* Bytes from which a batch takes no more messages, whatever it is asked for. Below it,
 * a message of up to 1 GiB fits: columns stay below 2^31. */
#define SF_MOST_BYTES ((int64_t)1 << 30)

/* Bytes of a header besides its name and value: the ends of both. */
#define SF_HEADER_BYTES 8

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
    int64_t size;        /* bytes of keys, values and headers */
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

SF_EXPORT void *sf_open_queue(sf_client *client, const char *topic, int32_t partition);
SF_EXPORT void sf_purge_queue(void *queue);
SF_EXPORT void sf_close_queue(void *queue);
SF_EXPORT sf_columns *sf_new_columns(int32_t headers);
SF_EXPORT void sf_free_columns(sf_columns *columns);
SF_EXPORT int32_t sf_fill(sf_columns *columns, void *queue, int64_t wanted,
                          int64_t most, int32_t timeout_ms);

/* The type of events about errors and ends of partitions. */
enum { SF_EVENT_ERROR = 8 };

int sf_add_row(sf_columns *columns, const sf_message *message);
int sf_add_error(sf_columns *columns, void *event, const sf_place *place);
void *sf_next_event(void *queue, int64_t until);

/* --- reading several partitions ----------------------------------------------------- */

/* The columns of one partition. */
typedef struct {
    sf_columns *columns; /* NULL after sf_take_columns */
    char *topic;
    int32_t partition;
    int32_t unused;
} sf_part;

/* One batch of each partition of which messages were polled. Python reads the fields;
 * the order is that of `RawParts` in native_library.py. */
typedef struct {
    sf_part *parts;
    int64_t count;
    int64_t capacity;
    int64_t last;     /* index of the part of the last message */
    int64_t rows;     /* of all parts */
    int64_t size;     /* bytes of keys, values and headers of all parts */
    int64_t received; /* by the last call: messages and events */
    int64_t failed;   /* by the last call: index of the part with an error; -1 without */
    int32_t headers;  /* whether headers are collected */
    int32_t unused;
} sf_parts;

SF_EXPORT void *sf_new_queue(sf_client *client);
SF_EXPORT int32_t sf_forward(sf_client *client, const char *topic, int32_t partition,
                             void *queue);
SF_EXPORT sf_parts *sf_new_parts(int32_t headers);
SF_EXPORT void sf_free_parts(sf_parts *parts);
SF_EXPORT int32_t sf_fill_parts(sf_parts *parts, void *queue, int64_t wanted,
                                int64_t most, int32_t timeout_ms);
SF_EXPORT sf_columns *sf_take_columns(sf_parts *parts, int64_t index);

/* --- writing ---------------------------------------------------------------------- */

/* A column of an Arrow array of type binary, string or list, which may be a slice. */
typedef struct {
    const uint8_t *valid;   /* bits; NULL if all values are valid */
    const uint8_t *offsets; /* int32, of any alignment; NULL if all values are null */
    const uint8_t *data;    /* not of lists */
    int64_t size;           /* bytes of data, or items of lists */
    int64_t first;          /* index of the first row in the first two */
} sf_values;

/* Messages of one partition. The order is that of `Rows` in native_library.py. */
typedef struct {
    int64_t count;
    int64_t next;  /* index of the next row to be sent */
    int32_t error; /* librdkafka's code for refusing that row; 0 without */
    int32_t unused;
    sf_values keys;
    sf_values values;
    const uint8_t *times_valid; /* bits; NULL if all values are valid */
    const uint8_t *micros;      /* int64, of any alignment; NULL if all are null */
    int64_t times_first;
    sf_values headers; /* lists of the following two; offsets are NULL without any */
    sf_values header_keys;
    sf_values header_values;
} sf_rows;

SF_EXPORT int32_t sf_send(sf_client *client, const char *topic, int32_t partition,
                          sf_rows *rows, int64_t most, int32_t timeout_ms);

#endif
