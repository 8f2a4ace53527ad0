/* The cost model by itself: machines by name and by what a device says of itself, and what a cost depends on. The
 * work that plans count is judged by test_regret.c. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../src/cuda/model/work.h"

/* A tile of each kind of thing, so that none is free. */
static tconv_cuda_work some_work(void)
{
    return (tconv_cuda_work){.dram_bytes = 1e8,
                             .passes = 1,
                             .pass_bytes = 1e7,
                             .rounds = 10,
                             .resident = 2,
                             .prologue = 1,
                             .k_blocks = 8,
                             .wgmma = 128,
                             .wgmma_chain = 64,
                             .mma_sync = 256,
                             .mma_chain = 16,
                             .ffma = 4096,
                             .loads = 64,
                             .fragments = 2,
                             .adds = 32,
                             .shared_bytes = 65536,
                             .box_bytes = 16384,
                             .box_rows = 32,
                             .weight_bytes = 16384,
                             .transpose_bytes = 1024,
                             .split_bytes = 1024,
                             .convert_bytes = 1024,
                             .gather_bytes = 1024,
                             .chain_loads = 2,
                             .stages = 4,
                             .weight_stages = 3,
                             .weight_waits = 1,
                             .stores = 512,
                             .bulk_stores = 64,
                             .store_warps = 4,
                             .sectors = 2048,
                             .part_sectors = 64,
                             .issues = 2,
                             .issue_cycles = 300,
                             .slow_issues = 1,
                             .slow_issue_cycles = 600,
                             .tile_cycles = 2000};
}

Test(cost, machines_are_found_by_name)
{
    const tconv_cuda_machine *machine;
    for (int i = 0; (machine = tconv_cuda_machine_at(i)) != NULL; i++) {
        cr_assert_eq(tconv_cuda_machine_named(machine->name), machine, "%s", machine->name);
        cr_assert_not_null(strstr(tconv_cuda_machine_names(), machine->name), "%s", machine->name);
        cr_assert_eq(machine->measured, strcmp(machine->name, "h200") == 0, "%s", machine->name);
    }
    cr_assert_not_null(tconv_cuda_machine_named("h200"));
    cr_assert_null(tconv_cuda_machine_named("H200"));
    cr_assert_null(tconv_cuda_machine_at(-1));
}

Test(cost, every_number_of_every_machine_is_set)
{
    const tconv_cuda_machine *machine;
    for (int i = 0; (machine = tconv_cuda_machine_at(i)) != NULL; i++) {
        const double *numbers = &machine->hz;
        const size_t count = (sizeof *machine - offsetof(tconv_cuda_machine, hz)) / sizeof(double);
        for (size_t j = 0; j < count; j++)
            cr_assert(numbers[j] > 0 && isfinite(numbers[j]), "%s: number %zu", machine->name, j);
        cr_assert(machine->capability >= 80 && machine->multiprocessors > 0 && machine->shared_bytes > 48 * 1024);
    }
}

Test(cost, a_device_gets_the_machine_that_is_most_like_it)
{
    const struct {
        int capability, multiprocessors;
        const char *name;
    } cases[] = {{90, 132, "h200"},    {90, 114, "h200"},  {80, 108, "a100"},     {86, 84, "rtx4090"},
                 {89, 128, "rtx4090"}, {100, 148, "b200"}, {120, 170, "rtx5090"}, {120, 84, "rtx5090"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const tconv_cuda_machine machine = tconv_cuda_machine_like(cases[i].capability, cases[i].multiprocessors);
        cr_assert_str_eq(machine.name, cases[i].name, "%d", cases[i].capability);
        cr_assert_eq(machine.multiprocessors, cases[i].multiprocessors);
    }
}

/* From the first count to the last, but for buffers and warps, of which more are better. */
Test(cost, more_work_never_costs_less)
{
    const tconv_cuda_machine *machine = tconv_cuda_machine_named("h200");
    const tconv_cuda_work base = some_work();
    const double seconds = tconv_cuda_cost_of(machine, &base).seconds;
    const size_t fewer[] = {offsetof(tconv_cuda_work, stages), offsetof(tconv_cuda_work, weight_stages),
                            offsetof(tconv_cuda_work, store_warps)};
    cr_assert(seconds > machine->launch && isfinite(seconds));
    for (size_t at = 0; at < sizeof base; at += sizeof(double)) {
        bool is_fewer = false;
        for (size_t i = 0; i < sizeof fewer / sizeof fewer[0]; i++)
            is_fewer = is_fewer || fewer[i] == at;
        if (at == offsetof(tconv_cuda_work, overlaps) / sizeof(double) * sizeof(double))
            continue;
        tconv_cuda_work work = base;
        double *count = (double *)((char *)&work + at);
        *count *= is_fewer ? 0.25 : 4;
        const double more = tconv_cuda_cost_of(machine, &work).seconds;
        cr_assert(more >= seconds, "count %zu: %g < %g", at / sizeof(double), more, seconds);
    }
}

Test(cost, a_kernel_is_never_faster_than_the_memory_and_its_launch)
{
    const tconv_cuda_machine *machine = tconv_cuda_machine_named("h200");
    const tconv_cuda_work work = {.dram_bytes = 4.28e9, .rounds = 1, .resident = 1, .k_blocks = 1, .store_warps = 1};
    const double seconds = tconv_cuda_cost_of(machine, &work).seconds;
    cr_assert(seconds > 1e-3 && seconds < 1.02e-3, "%g", seconds); /* a copy of 4.28 TB/s */
}

Test(cost, stores_that_overlap_cost_less)
{
    const tconv_cuda_machine *machine = tconv_cuda_machine_named("h200");
    tconv_cuda_work work = some_work();
    const double apart = tconv_cuda_cost_of(machine, &work).seconds;
    work.overlaps = true;
    cr_assert_lt(tconv_cuda_cost_of(machine, &work).seconds, apart);
}
