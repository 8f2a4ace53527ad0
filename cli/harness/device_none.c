/* The device of a build without CUDA: there is none. No plan runs on CUDA there, so nothing here is ever asked for. */
#include "device.h"

void *harness_device_allocate(size_t size)
{
    (void)size;
    return NULL;
}

void harness_device_release(void *memory)
{
    (void)memory;
}

bool harness_device_copy(void *to, const void *from, size_t size, void *stream)
{
    (void)to, (void)from, (void)size, (void)stream;
    return false;
}

bool harness_device_fill(void *memory, int byte, size_t size, void *stream)
{
    (void)memory, (void)byte, (void)size, (void)stream;
    return false;
}

void *harness_stream_create(void)
{
    return NULL;
}

void harness_stream_destroy(void *stream)
{
    (void)stream;
}

bool harness_stream_synchronize(void *stream)
{
    (void)stream;
    return false;
}

harness_event *harness_event_create(void)
{
    return NULL;
}

void harness_event_destroy(harness_event *event)
{
    (void)event;
}

bool harness_event_record(harness_event *event, void *stream)
{
    (void)event, (void)stream;
    return false;
}

double harness_event_elapsed(const harness_event *from, const harness_event *to)
{
    (void)from, (void)to;
    return -1;
}

bool harness_device_select(int device)
{
    (void)device;
    return false;
}

size_t harness_device_l2_bytes(void)
{
    return 0;
}

size_t harness_device_free_bytes(void)
{
    return 0;
}

const char *harness_device_name(void)
{
    return "";
}

const char *harness_device_error(void)
{
    return "built without CUDA";
}
