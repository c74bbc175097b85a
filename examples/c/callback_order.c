/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callbacks on streams in plain C: a report thread serves two streams, copies and callbacks are launched, and the
 * program prints in which order things happened.
 *
 *   make -C examples/c run
 *
 * What it shows:
 * - a callback runs on the thread that is subscribed to its stream, when that thread is in aclrtProcessReport;
 * - callbacks of one stream run in launch order, after the tasks launched before them;
 * - a NO_BLOCK callback does not hold up its stream: synchronising does not wait for it;
 * - a BLOCK callback does: what follows it in the stream waits until the function has returned;
 * - callbacks of different streams have no order; here the second stream waits for an event of the first.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"

#define SIZE 1024

static void check(int code, const char *call) {
    if (code != ACL_RT_SUCCESS) {
        const char *message = aclGetRecentErrMsg();
        fprintf(stderr, "%s failed with %d: %s\n", call, code, message != NULL ? message : "no message");
        exit(1);
    }
}
#define CHECK(call) check((call), #call)

/* --- the report thread ------------------------------------------------------------------------------------------ */

struct reports {
    aclrtContext context;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int subscribed;
    atomic_int stop;
};

/* aclrtProcessReport returns 107012 at once while nobody is subscribed: wait for that first, or it spins. */
static void *serve(void *argument) {
    struct reports *reports = argument;
    CHECK(aclrtSetCurrentContext(reports->context));
    pthread_mutex_lock(&reports->mutex);
    while (!reports->subscribed) {
        pthread_cond_wait(&reports->changed, &reports->mutex);
    }
    pthread_mutex_unlock(&reports->mutex);
    while (!atomic_load(&reports->stop)) {
        int code = aclrtProcessReport(100);
        if (code != ACL_RT_SUCCESS && code != ACL_ERROR_RT_REPORT_TIMEOUT) {
            check(code, "aclrtProcessReport");
        }
    }
    return NULL;
}

/* --- the callbacks: they call no ACL function and return soon --------------------------------------------------- */

struct note {
    const char *text;
    const unsigned char *bytes; /* shown if not NULL */
};

static void print_note(void *argument) {
    const struct note *note = argument;
    if (note->bytes != NULL) {
        printf("  callback: %s, sees %d\n", note->text, note->bytes[SIZE - 1]);
    } else {
        printf("  callback: %s\n", note->text);
    }
}

/* Puts another value into the host buffer that the next copy of the stream reads. */
static void refill(void *argument) {
    unsigned char *bytes = argument;
    for (int i = 0; i < SIZE; ++i) {
        bytes[i] = 2;
    }
    printf("  callback: BLOCK on the first stream, has refilled the source\n");
}

int main(void) {
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(0));

    struct reports reports = {.subscribed = 0};
    pthread_mutex_init(&reports.mutex, NULL);
    pthread_cond_init(&reports.changed, NULL);
    CHECK(aclrtGetCurrentContext(&reports.context));

    aclrtStream first, second;
    aclrtEvent ready;
    unsigned char *source, *result;
    void *device;
    CHECK(aclrtCreateStream(&first));
    CHECK(aclrtCreateStream(&second));
    CHECK(aclrtCreateEventExWithFlag(&ready, ACL_EVENT_SYNC));
    CHECK(aclrtMallocHost((void **)&source, SIZE));
    CHECK(aclrtMallocHost((void **)&result, SIZE));
    CHECK(aclrtMalloc(&device, SIZE, ACL_MEM_MALLOC_HUGE_FIRST));
    for (int i = 0; i < SIZE; ++i) {
        source[i] = 1;
        result[i] = 0;
    }

    /* The thread id is the value of pthread_self(), not the kernel's. */
    pthread_create(&reports.thread, NULL, serve, &reports);
    CHECK(aclrtSubscribeReport((uint64_t)reports.thread, first));
    CHECK(aclrtSubscribeReport((uint64_t)reports.thread, second));
    pthread_mutex_lock(&reports.mutex);
    reports.subscribed = 1;
    pthread_cond_signal(&reports.changed);
    pthread_mutex_unlock(&reports.mutex);

    struct note notes[] = {
        {"NO_BLOCK on the first stream, after copying in and out", result},
        {"BLOCK on the first stream, after copying again", result},
        {"BLOCK on the second stream, after the event", NULL},
    };
    printf("launching\n");
    CHECK(aclrtMemcpyAsync(device, SIZE, source, SIZE, ACL_MEMCPY_HOST_TO_DEVICE, first));
    CHECK(aclrtMemcpyAsync(result, SIZE, device, SIZE, ACL_MEMCPY_DEVICE_TO_HOST, first));
    CHECK(aclrtLaunchCallback(print_note, &notes[0], ACL_CALLBACK_NO_BLOCK, first));
    CHECK(aclrtLaunchCallback(refill, source, ACL_CALLBACK_BLOCK, first));
    CHECK(aclrtMemcpyAsync(device, SIZE, source, SIZE, ACL_MEMCPY_HOST_TO_DEVICE, first));
    CHECK(aclrtMemcpyAsync(result, SIZE, device, SIZE, ACL_MEMCPY_DEVICE_TO_HOST, first));
    CHECK(aclrtLaunchCallback(print_note, &notes[1], ACL_CALLBACK_BLOCK, first));
    CHECK(aclrtRecordEvent(ready, first));
    CHECK(aclrtStreamWaitEvent(second, ready));
    CHECK(aclrtLaunchCallback(print_note, &notes[2], ACL_CALLBACK_BLOCK, second));

    /* BLOCK callbacks are part of the stream: when this returns they have run. Never call it on the report thread. */
    CHECK(aclrtSynchronizeStream(second));
    printf("synchronised\n");

    /* Unsubscribe when nothing is pending, end the thread, then destroy. */
    CHECK(aclrtSynchronizeStream(first));
    atomic_store(&reports.stop, 1);
    pthread_join(reports.thread, NULL);
    CHECK(aclrtUnSubscribeReport((uint64_t)reports.thread, first));
    CHECK(aclrtUnSubscribeReport((uint64_t)reports.thread, second));
    CHECK(aclrtDestroyEvent(ready));
    CHECK(aclrtFree(device));
    CHECK(aclrtFreeHost(result));
    CHECK(aclrtFreeHost(source));
    CHECK(aclrtDestroyStream(second));
    CHECK(aclrtDestroyStream(first));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    printf("done\n");
    return 0;
}
