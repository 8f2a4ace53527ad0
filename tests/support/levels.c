#include "levels.h"

#include "../../src/cpu/cpu_backend.h"
#include "harness.h"

int list_levels(struct level levels[MAX_LEVELS])
{
    int count = 0;
    for (int isa = TCONV_CPU_ISA_GENERIC; isa <= TCONV_CPU_ISA_NEON; isa++)
        if (tconv_cpu_has_isa((tconv_cpu_isa)isa))
            levels[count++] =
                (struct level){tconv_cpu_find_kernels((tconv_cpu_isa)isa), harness_cpu_isa_name((tconv_cpu_isa)isa)};
    return count;
}

tconv_dtype level_real(tconv_dtype dtype)
{
    return dtype == TCONV_F64 ? TCONV_F64 : TCONV_F32;
}

int level_lanes(const struct level *level, tconv_dtype dtype)
{
    return level->kernels->real[dtype == TCONV_F64].lanes;
}

struct guarded level_make_elements(tconv_dtype dtype, int64_t count, double value, enum guard_side side)
{
    struct guarded made = guard_allocate((size_t)count * harness_element_size(dtype), side);
    for (int64_t i = 0; i < count; i++)
        harness_element_set(dtype, made.data, i, value);
    return made;
}

struct guarded level_make_random(tconv_dtype dtype, int64_t count, enum guard_side side, uint64_t seed)
{
    struct guarded made = guard_allocate((size_t)count * harness_element_size(dtype), side);
    harness_random random;
    harness_random_seed(&random, seed);
    for (int64_t i = 0; i < count; i++)
        harness_element_set(dtype, made.data, i, 100 * harness_random_real(&random));
    return made;
}
