#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#endif
#include "kafka.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Static_assert(sizeof(int) == 4, "enums of librdkafka have 4 bytes");

/* --- the functions of librdkafka ----------------------------------------------------- */

sf_librdkafka sf_kafka;

static int bound;

int32_t sf_level(void) { return SF_LEVEL; }

int32_t sf_bind(void *const *functions, size_t count) {
    if (count != sizeof(sf_kafka) / sizeof(void *))
        return SF_NOT_BOUND;
    for (size_t i = 0; i < count; i++)
        if (functions[i] == NULL)
            return SF_NOT_BOUND;
    /* ISO C has no cast from object to function pointers; POSIX defines both alike. */
    memcpy(&sf_kafka, functions, sizeof(sf_kafka));
    bound = 1;
    return SF_OK;
}

int64_t sf_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* --- how clients are found: librdkafka's interface for interceptors ------------------- */

enum { NO_FAILURE, NOTING_FAILURE, FAILURE_NOTED };
enum { NO_RESOURCES = -194, PURGED_FROM_QUEUE = -152 };

struct sf_client {
    void *handle;
    /* What became of messages. Written by librdkafka's threads. */
    _Atomic int64_t delivered;
    _Atomic int state;
    sf_failure failure; /* complete in the state FAILURE_NOTED */
};

static const char NAME[] = "streamfactory";

/* The client that this thread created last. rd_kafka_new() calls `on_new` in the
 * thread that called it. */
static _Thread_local sf_client *newest;

static void note_failure(sf_client *client, const sf_message *message) {
    const char *topic = message->topic ? sf_kafka.topic_name(message->topic) : "";
    size_t size = strlen(topic);
    if (size >= sizeof(client->failure.topic))
        size = sizeof(client->failure.topic) - 1;
    memcpy(client->failure.topic, topic, size);
    client->failure.topic[size] = 0;
    client->failure.error = message->err;
    client->failure.partition = message->partition;
    client->failure.size = (int64_t)message->len;
}

/* Called for each message, before librdkafka drops it or queues its report: by the
 * thread of a broker, or by the one that sends where the partition does not exist. */
static int32_t on_acknowledgement(void *handle, sf_message *message, void *opaque) {
    sf_client *client = opaque;
    int state = NO_FAILURE;
    (void)handle;
    if (message->err == 0) {
        atomic_fetch_add_explicit(&client->delivered, 1, memory_order_relaxed);
    } else if (message->err != PURGED_FROM_QUEUE &&
               atomic_compare_exchange_strong(&client->state, &state, NOTING_FAILURE)) {
        note_failure(client, message);
        atomic_store(&client->state, FAILURE_NOTED);
    }
    return 0;
}

static int32_t on_new(void *handle, const void *conf, void *opaque, char *errstr,
                      size_t size) {
    sf_client *client = opaque;
    (void)conf, (void)errstr, (void)size;
    client->handle = handle;
    newest = client;
    return sf_kafka.interceptor_add_on_acknowledgement(handle, NAME, on_acknowledgement,
                                                       client);
}

/* The settings belong to the client, which frees them last, after its threads ended. */
static int32_t on_conf_destroy(void *opaque) {
    if (newest == opaque)
        newest = NULL;
    free(opaque);
    return 0;
}

static int32_t refuse(const char *reason, char *errstr, size_t size) {
    size_t length = strlen(reason);
    if (size > length)
        memcpy(errstr, reason, length + 1);
    return NO_RESOURCES;
}

int32_t conf_init(void *conf, void **opaque, char *errstr, size_t size) {
    sf_client *client;
    int32_t error;
    (void)opaque;
    newest = NULL;
    if (!bound)
        return refuse("streamfactory_native is not bound to librdkafka", errstr, size);
    client = calloc(1, sizeof(*client));
    if (client == NULL)
        return refuse("no memory", errstr, size);
    error = sf_kafka.conf_interceptor_add_on_conf_destroy(conf, NAME, on_conf_destroy,
                                                          client);
    if (error != 0) {
        free(client);
        return error;
    }
    return sf_kafka.conf_interceptor_add_on_new(conf, NAME, on_new, client);
}

sf_client *sf_take_client(void) {
    sf_client *client = newest;
    newest = NULL;
    return client;
}

void *sf_handle(const sf_client *client) { return client->handle; }

/* --- delivery reports ------------------------------------------------------------------ */

/* Forgets reports; no message may be waiting for its own. */
void sf_reset_reports(sf_client *client) {
    atomic_store(&client->delivered, 0);
    atomic_store(&client->state, NO_FAILURE);
}

int64_t sf_delivered(sf_client *client) { return atomic_load(&client->delivered); }

/* Copies the first failure; false if there is none. */
int32_t sf_first_failure(sf_client *client, sf_failure *failure) {
    if (atomic_load(&client->state) != FAILURE_NOTED)
        return 0;
    *failure = client->failure;
    return 1;
}
