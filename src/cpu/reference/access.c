/* Elements and innermost loops of the reference, for each dtype. */
#include <math.h>

#include "../../core/checked.h"
#include "../kernels/half.h"
#include "reference.h"

/* Products that are summed before their sum is added without loss. */
enum { SEGMENT = 16 };

void tconv_cpu_reference_add(tconv_cpu_reference_sum *sum, double value)
{
    const double high = sum->high + value, added = high - sum->high;
    sum->low += (sum->high - (high - added)) + (value - added);
    sum->high = high;
}

double tconv_cpu_reference_total(const tconv_cpu_reference_sum *sum)
{
    return isnan(sum->low) ? sum->high : sum->high + sum->low; /* NaN where high is Inf */
}

#define DEFINE_ACCESS(name, type, to_double, from_double)                                                              \
    static double get_##name(const void *memory, int64_t index)                                                        \
    {                                                                                                                  \
        return to_double(((const type *)memory)[index]);                                                               \
    }                                                                                                                  \
    static void put_##name(void *memory, int64_t index, double value)                                                  \
    {                                                                                                                  \
        ((type *)memory)[index] = from_double(value);                                                                  \
    }                                                                                                                  \
    static void accumulate_##name(double *sums, int64_t step, int64_t count, double weight,                            \
                                  tconv_cpu_reference_run run)                                                         \
    {                                                                                                                  \
        const type *from = (const type *)run.memory + run.index;                                                       \
        if (step == 1 && run.step == 1)                                                                                \
            for (int64_t i = 0; i < count; i++)                                                                        \
                sums[i] += weight * to_double(from[i]);                                                                \
        else                                                                                                           \
            for (int64_t i = 0; i < count; i++)                                                                        \
                sums[i * step] += weight * to_double(from[i * run.step]);                                              \
    }                                                                                                                  \
    static void dot_##name(tconv_cpu_reference_sum *sum, int64_t count, tconv_cpu_reference_run a,                     \
                           tconv_cpu_reference_run b)                                                                  \
    {                                                                                                                  \
        const type *of_a = (const type *)a.memory + a.index, *of_b = (const type *)b.memory + b.index;                 \
        for (int64_t begin = 0; begin < count; begin += SEGMENT) {                                                     \
            double segment = 0;                                                                                        \
            for (int64_t i = begin; i < tconv_min(count, begin + SEGMENT); i++)                                        \
                segment += to_double(of_a[i * a.step]) * to_double(of_b[i * b.step]);                                  \
            tconv_cpu_reference_add(sum, segment);                                                                     \
        }                                                                                                              \
    }

#define TO_DOUBLE(value)        ((double)(value))
#define F16_TO_DOUBLE(value)    ((double)tconv_float_from_f16(value))
#define BF16_TO_DOUBLE(value)   ((double)tconv_float_from_bf16(value))
#define DOUBLE_TO_FLOAT(value)  ((float)(value))
#define DOUBLE_TO_DOUBLE(value) (value)
DEFINE_ACCESS(f32, float, TO_DOUBLE, DOUBLE_TO_FLOAT)
DEFINE_ACCESS(f64, double, TO_DOUBLE, DOUBLE_TO_DOUBLE)
DEFINE_ACCESS(f16, uint16_t, F16_TO_DOUBLE, tconv_f16_from_double)
DEFINE_ACCESS(bf16, uint16_t, BF16_TO_DOUBLE, tconv_bf16_from_double)

const tconv_cpu_reference_access tconv_cpu_reference_accesses[TCONV_DTYPES] = {
    [TCONV_F32] = {get_f32, put_f32, accumulate_f32, dot_f32},
    [TCONV_F64] = {get_f64, put_f64, accumulate_f64, dot_f64},
    [TCONV_F16] = {get_f16, put_f16, accumulate_f16, dot_f16},
    [TCONV_BF16] = {get_bf16, put_bf16, accumulate_bf16, dot_bf16},
};
