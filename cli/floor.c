/* The floor of a layer, and the rates of the CUDA device. */
#include "floor.h"

#include "harness.h"

#define COPY_BYTES  (1L << 30) /* bytes of each array: far more than an L2 cache holds */
#define COPY_PASSES 12         /* the first ones warm up; the fastest counts */

/* FLOP/s that the best matrix products reach on one H200. Strict f32 on tensor cores takes three TF32 products. */
#define NOMINAL_TF32 356e12
#define NOMINAL_F16  650e12
#define NOMINAL_BF16 700e12
#define NOMINAL_F64  60e12

/* Returns the seconds of the fastest copy; negative on failure. */
static double best_copy(void *to, const void *from, void *stream, harness_event *start, harness_event *end)
{
    double best = -1;
    for (int i = 0; i < COPY_PASSES; ++i) {
        if (!harness_event_record(start, stream) || !harness_device_copy(to, from, COPY_BYTES, stream) ||
            !harness_event_record(end, stream))
            return -1;
        double seconds = 1e-3 * harness_event_elapsed(start, end);
        if (seconds > 0 && (best < 0 || seconds < best))
            best = seconds;
    }
    return best;
}

bool floor_measure_cuda(machine_floor *floor)
{
    void *from = harness_device_allocate(COPY_BYTES), *to = harness_device_allocate(COPY_BYTES);
    void *stream = harness_stream_create();
    harness_event *start = harness_event_create(), *end = harness_event_create();
    double seconds = -1;
    *floor = (machine_floor){.nominal = true, .tf32_flops_per_second = NOMINAL_TF32};
    floor->flops_per_second[TCONV_F32] = NOMINAL_TF32 / 3;
    floor->flops_per_second[TCONV_F64] = NOMINAL_F64;
    floor->flops_per_second[TCONV_F16] = NOMINAL_F16;
    floor->flops_per_second[TCONV_BF16] = NOMINAL_BF16;
    if (from != NULL && to != NULL && stream != NULL && start != NULL && end != NULL &&
        harness_device_fill(from, 0, COPY_BYTES, stream))
        seconds = best_copy(to, from, stream, start, end);
    floor->bytes_per_second = seconds > 0 ? 2.0 * (double)COPY_BYTES / seconds : 0;
    floor->measured = seconds > 0;
    harness_event_destroy(end);
    harness_event_destroy(start);
    harness_stream_destroy(stream);
    harness_device_release(to);
    harness_device_release(from);
    return floor->measured;
}

double floor_milliseconds(const machine_floor *floor, const tconv_desc *desc, tconv_math math, double bytes)
{
    bool tf32 = desc->dtype == TCONV_F32 && math == TCONV_MATH_TF32;
    double rate = tf32 ? floor->tf32_flops_per_second : floor->flops_per_second[desc->dtype];
    double arithmetic = harness_layer_flops(desc) / rate, memory = bytes / floor->bytes_per_second;
    return 1e3 * (arithmetic > memory ? arithmetic : memory);
}
