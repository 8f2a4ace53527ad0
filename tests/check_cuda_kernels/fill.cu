/* cuda_general's kernels that fill what has no tap. Nothing else may be written, but for outputs with a tap between the others of a
 * row in NCHW, which the kernel that sums writes afterwards. */
#include <algorithm>

#include "../../src/cuda/general/parameters.h"
#include "check.h"
#include "families.h"

namespace tconv::check
{

namespace
{

struct fill_case {
    tconv_dtype dtype;
    tconv_layout layout;
    int batch, channels, rows, columns, stride_h, stride_w;
    int row_phases, column_phases; /* residues that have one: every other */
    bool bias;
};

void check_fill_case(const fill_case &of)
{
    const size_t element = of.dtype == TCONV_F64 ? 8 : of.dtype == TCONV_F32 ? 4 : 2;
    const int64_t plane = (int64_t)of.rows * of.columns, all = of.batch * of.channels * plane;
    std::vector<tconv_phase> phases;
    for (int i = 0; i < of.row_phases; i++)
        phases.push_back({2 * i, 1, 1, 0, 0});
    for (int i = 0; i < of.column_phases; i++)
        phases.push_back({2 * i, 1, 1, 0, 0});
    std::vector<uint8_t> bias((size_t)of.channels * element), wanted((size_t)all * element, 0xff);
    for (uint8_t &byte : bias)
        byte = (uint8_t)random_bits();
    tconv_layer layer = {};
    tconv_problem &problem = layer.problem;
    problem.layout = of.layout;
    problem.dst = of.layout == TCONV_NCHW
                      ? tconv_strides{of.channels * plane, plane, of.columns, 1, 0}
                      : tconv_strides{of.channels * plane, 1, (int64_t)of.columns * of.channels, of.channels, 0};
    for (int64_t i = 0; i < all; i++) {
        const int column = (int)(i % of.columns), row = (int)(i / of.columns % of.rows);
        const int64_t channel = i / plane % of.channels, image = i / plane / of.channels;
        const int row_residue = row % of.stride_h, column_residue = column % of.stride_w;
        const bool row_has = row_residue % 2 == 0 && row_residue / 2 < of.row_phases,
                   column_has = column_residue % 2 == 0 && column_residue / 2 < of.column_phases;
        uint8_t *to = &wanted[(size_t)(image * problem.dst.n + channel * problem.dst.c + row * problem.dst.h +
                                       column * problem.dst.w) *
                              element];
        const bool whole_row = of.layout == TCONV_NCHW && of.column_phases < of.stride_w;
        if (row_has && column_has && !whole_row)
            continue;
        if (of.bias)
            memcpy(to, &bias[(size_t)channel * element], element);
        else
            memset(to, 0, element);
    }
    begin_case("dtype %d, %s, %d images of %d channels, %d x %d, strides %d x %d%s", (int)of.dtype,
               of.layout == TCONV_NCHW ? "NCHW" : "NHWC", of.batch, of.channels, of.rows, of.columns, of.stride_h,
               of.stride_w, of.bias ? ", bias" : "");
    const device_buffer table = input("phases", phases), add = input("bias", bias), dst = output("dst", wanted.size());
    problem.dtype = of.dtype;
    problem.element_size = element;
    problem.batch = of.batch;
    problem.out_channels = of.channels;
    problem.h.out = of.rows;
    problem.w.out = of.columns;
    problem.h.stride = of.stride_h;
    problem.w.stride = of.stride_w;
    layer.rows.count = of.row_phases;
    layer.rows.phases = phases.data();
    layer.rows.bias_only = std::min(of.stride_h, of.rows) - of.row_phases;
    layer.columns.count = of.column_phases;
    layer.columns.bias_only = std::min(of.stride_w, of.columns) - of.column_phases;
    layer.columns.phases = phases.data() + of.row_phases;
    tconv_arguments arguments = {};
    arguments.bias = of.bias ? add.data : nullptr;
    arguments.dst = dst.data;
    tconv_issue issue = {};
    if (tconv_general_fill_bias_only(&layer, table.as<tconv_phase>(), &arguments, &issue) != TCONV_SUCCESS)
        fail("%s", issue.message);
    finish_kernels();
    compare_bits<uint8_t>(dst, wanted);
}

void check_fill()
{
    static const fill_case cases[] = {{TCONV_F32, TCONV_NCHW, 2, 3, 70, 41, 2, 3, 1, 2, true},
                                      {TCONV_F32, TCONV_NHWC, 2, 8, 9, 41, 3, 2, 1, 1, true},
                                      {TCONV_F16, TCONV_NHWC, 1, 24, 130, 7, 4, 4, 2, 1, true},
                                      {TCONV_BF16, TCONV_NHWC, 3, 5, 6, 7, 2, 5, 1, 3, false},
                                      {TCONV_F64, TCONV_NCHW, 1, 2, 65, 300, 4, 2, 1, 1, false},
                                      {TCONV_F64, TCONV_NHWC, 1, 6, 5, 30, 2, 2, 0, 1, true},
                                      {TCONV_F32, TCONV_NCHW, 2, 3, 1, 5000, 1, 5, 1, 2, true},
                                      {TCONV_F16, TCONV_NCHW, 2, 3, 70, 41, 3, 1, 1, 1, true},
                                      {TCONV_F16, TCONV_NHWC, 1, 8, 2, 700, 1, 100, 1, 40, true}};
    for (const fill_case &of : cases)
        check_fill_case(of);
}

const entry entries[] = {
    {"cuda/general/fill_bias_only", check_fill, nullptr, false},
};

} // namespace

void check_filling()
{
    check_entries(entries);
}

} // namespace tconv::check
