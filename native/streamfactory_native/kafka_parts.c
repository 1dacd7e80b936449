#include "kafka.h"

#include <stdlib.h>
#include <string.h>

/* --- one queue for several partitions ------------------------------------------------ */

/* A queue of a member of a group. Closed by sf_close_queue, which drops its contents, and
 * what partitions forward to it later. */
void *sf_new_queue(sf_client *client) { return sf_kafka.queue_new(sf_handle(client)); }

/* Has the queue of a partition add its messages, ends and errors to another queue; those
 * that it contains, too. False if the partition has no queue. librdkafka forwards the
 * queues of partitions to the client's own otherwise, but not one of which the
 * application has set where it is forwarded. It ends every forwarding when it stops
 * fetching the partition. */
int32_t sf_forward(sf_client *client, const char *topic, int32_t partition,
                   void *queue) {
    void *from = sf_kafka.queue_get_partition(sf_handle(client), topic, partition);
    if (from == NULL)
        return 0;
    sf_kafka.queue_forward(from, queue);
    sf_kafka.queue_destroy(from); /* this handle; the forwarding remains */
    return 1;
}

/* --- columns of several partitions ---------------------------------------------------- */

sf_parts *sf_new_parts(int32_t headers) {
    sf_parts *parts = calloc(1, sizeof(*parts));
    if (parts != NULL)
        parts->headers = headers;
    return parts;
}

void sf_free_parts(sf_parts *parts) {
    if (parts == NULL)
        return;
    for (int64_t i = 0; i < parts->count; i++) {
        sf_free_columns(parts->parts[i].columns);
        free(parts->parts[i].topic);
    }
    free(parts->parts);
    free(parts);
}

/* The columns of a part, which the caller frees. No message can be added after it. */
sf_columns *sf_take_columns(sf_parts *parts, int64_t index) {
    sf_columns *columns = parts->parts[index].columns;
    parts->parts[index].columns = NULL;
    return columns;
}

static int is_of(const sf_part *part, const char *topic, int32_t partition) {
    return part->partition == partition && strcmp(part->topic, topic) == 0;
}

/* Adds a part; false if there is no memory. */
static int add_part(sf_parts *parts, const char *topic, int32_t partition) {
    size_t size = strlen(topic) + 1;
    sf_part part = {NULL, NULL, partition, 0}, *grown;
    if (parts->count == parts->capacity) {
        int64_t capacity = parts->capacity ? 2 * parts->capacity : 8;
        grown = realloc(parts->parts, (size_t)capacity * sizeof(*grown));
        if (grown == NULL)
            return 0;
        parts->parts = grown;
        parts->capacity = capacity;
    }
    part.topic = malloc(size);
    part.columns = sf_new_columns(parts->headers);
    if (part.topic == NULL || part.columns == NULL) {
        free(part.topic);
        sf_free_columns(part.columns);
        return 0;
    }
    memcpy(part.topic, topic, size);
    part.columns->end = -1;
    parts->parts[parts->count++] = part;
    return 1;
}

/* Makes a partition's part the last one; false if there is no memory. Messages of one
 * partition follow each other in runs. */
static int find_part(sf_parts *parts, const char *topic, int32_t partition) {
    if (parts->count > 0 && is_of(&parts->parts[parts->last], topic, partition))
        return 1;
    for (int64_t i = 0; i < parts->count; i++)
        if (is_of(&parts->parts[i], topic, partition)) {
            parts->last = i;
            return 1;
        }
    parts->last = parts->count;
    return add_part(parts, topic, partition);
}

static int add_message(sf_parts *parts, const sf_message *message) {
    sf_columns *columns;
    int64_t size;
    int status;
    if (!find_part(parts, sf_kafka.topic_name(message->topic), message->partition))
        return SF_NO_MEMORY;
    columns = parts->parts[parts->last].columns;
    size = columns->size;
    status = sf_add_row(columns, message);
    if (status != SF_OK) {
        parts->failed = parts->last;
        return status;
    }
    parts->size += columns->size - size;
    parts->rows++;
    return SF_OK;
}

/* Adds the end of a partition or an error. An event that names no partition belongs to
 * none: its part has no topic. */
static int add_event(sf_parts *parts, void *event) {
    sf_place *place = sf_kafka.event_topic_partition(event);
    int found = find_part(parts, place ? place->topic : "", place ? place->partition : -1);
    if (found && sf_add_error(parts->parts[parts->last].columns, event, place))
        parts->failed = parts->last;
    if (place != NULL)
        sf_kafka.topic_partition_destroy(place);
    return found ? SF_OK : SF_NO_MEMORY;
}

/* Adds up to `wanted` messages, each to the columns of its partition; otherwise like
 * sf_fill. After a status other than SF_OK the parts can only be freed; `failed` is then
 * the part whose message was refused, if there is one. */
int32_t sf_fill_parts(sf_parts *parts, void *queue, int64_t wanted, int64_t most,
                      int32_t timeout_ms) {
    int64_t until = sf_now_ms() + timeout_ms;
    const sf_message *message;
    int status = SF_OK;
    void *event;
    parts->received = 0;
    parts->failed = -1;
    if (most > SF_MOST_BYTES)
        most = SF_MOST_BYTES;
    while (parts->received < wanted && parts->size < most && status == SF_OK &&
           parts->failed < 0) {
        event = sf_next_event(queue, until);
        if (event == NULL)
            break;
        parts->received++;
        if ((message = sf_kafka.event_message_next(event)) != NULL)
            status = add_message(parts, message);
        else if (sf_kafka.event_type(event) == SF_EVENT_ERROR)
            status = add_event(parts, event);
        sf_kafka.event_destroy(event);
    }
    return status;
}
