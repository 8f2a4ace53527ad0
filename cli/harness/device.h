/*
 * The CUDA device as the harness needs it: memory, copies, a stream, events. device_cuda.c implements it where the
 * build has CUDA, else device_none.c, which has no device and fails every call. All functions work on the current
 * device.
 */
#ifndef TCONV_HARNESS_DEVICE_H
#define TCONV_HARNESS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "tconv/tconv.h"

typedef struct harness_event harness_event;

/* Allocates device memory; NULL when there is none left. size 0 is allowed. */
void *harness_device_allocate(size_t size);
void harness_device_release(void *memory);

/* Copies in either direction, or on the device, in the order of stream (NULL: the default stream). Host memory may be
 * used again when the call returns. Returns false on a CUDA error. */
bool harness_device_copy(void *to, const void *from, size_t size, void *stream);
bool harness_device_fill(void *memory, int byte, size_t size, void *stream);

/* Makes a stream that does not wait for the default stream; NULL on failure. */
void *harness_stream_create(void);
void harness_stream_destroy(void *stream);
bool harness_stream_synchronize(void *stream);

/* Events: marks in a stream to time with. */
harness_event *harness_event_create(void);
void harness_event_destroy(harness_event *event);
bool harness_event_record(harness_event *event, void *stream);

/* Returns the milliseconds from one event to another, both recorded; waits for them. Negative on failure. */
double harness_event_elapsed(const harness_event *from, const harness_event *to);

/* Makes a device the calling thread's current one. */
bool harness_device_select(int device);

/* These describe the current device; 0 and "" where there is none. */
size_t harness_device_l2_bytes(void);
size_t harness_device_free_bytes(void);
const char *harness_device_name(void);

/* Returns the thread's last error as text; "" if there was none. */
const char *harness_device_error(void);

#endif
