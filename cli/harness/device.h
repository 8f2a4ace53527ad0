/*
 * The CUDA device as the harness needs it: memory, copies, a stream, events. Compiled from device_cuda.c where the build
 * has CUDA, else from device_none.c, which has no device and fails every call. Works on the current device.
 */
#ifndef TCONV_HARNESS_DEVICE_H
#define TCONV_HARNESS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "tconv/tconv.h"

typedef struct harness_event harness_event;

/* Device memory; NULL when there is none to be had. size 0 is allowed. */
void *harness_device_allocate(size_t size);
void harness_device_release(void *memory);

/* Copies in either direction, or on the device, in the order of stream (NULL: the default stream). Host memory may be
 * used again when the call is back. False on a CUDA error. */
bool harness_device_copy(void *to, const void *from, size_t size, void *stream);
bool harness_device_fill(void *memory, int byte, size_t size, void *stream);

/* A stream that does not wait for the default stream; NULL on failure. */
void *harness_stream_create(void);
void harness_stream_destroy(void *stream);
bool harness_stream_synchronize(void *stream);

/* Marks in a stream, to time with. */
harness_event *harness_event_create(void);
void harness_event_destroy(harness_event *event);
bool harness_event_record(harness_event *event, void *stream);

/* Milliseconds from one event to another, both recorded; waits for them. Negative on failure. */
double harness_event_elapsed(const harness_event *from, const harness_event *to);

/* Makes a device the calling thread's current one. */
bool harness_device_select(int device);

/* Of the current device; 0 and "" where there is none. */
size_t harness_device_l2_bytes(void);
size_t harness_device_free_bytes(void);
const char *harness_device_name(void);

/* The last error as text, "" if there was none; kept for each thread. */
const char *harness_device_error(void);

#endif
