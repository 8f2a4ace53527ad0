/* What tests of packing kernels share: weights as a caller has them, and a writer that puts elements down one after
 * another, which states an order in plain C. */
#ifndef TCONV_CHECK_CUDA_PACKING_H
#define TCONV_CHECK_CUDA_PACKING_H

#include <cstdio>

#include "../../src/core/problem.h"
#include "check.h"

namespace tconv::check
{

/* How f32 is packed: rounded to TF32, or the two parts of strict math. Elements of 16 bits are packed as they are. */
enum weight_part { PART_ROUNDED, PART_BIG, PART_SMALL };

struct weights_shape {
    tconv_dtype dtype;
    int groups, group_in, group_out, kernel_rows, kernel_columns;
    bool kernel_inside; /* in memory [in][out][row][column], else [row][column][in][out] */
};

struct weights_tensor : weights_shape {
    tconv_weight_strides strides;
    std::vector<uint32_t> bits; /* of each element, as it lies in memory */

    size_t element_size() const
    {
        return dtype == TCONV_F32 ? 4 : 2;
    }
    /* The bits of a weight, 0 for one that does not exist. */
    uint32_t at(int group, int in, int out, int row, int column) const
    {
        const bool exists = in >= 0 && in < group_in && out >= 0 && out < group_out && row >= 0 && row < kernel_rows &&
                            column >= 0 && column < kernel_columns;
        return exists ? bits[((int64_t)group * group_in + in) * strides.in + out * strides.out + row * strides.h +
                             column * strides.w]
                      : 0;
    }
    device_buffer on_device() const
    {
        if (dtype == TCONV_F32)
            return input("weights", bits);
        return input("weights", std::vector<uint16_t>(bits.begin(), bits.end()));
    }
};

inline weights_tensor make_weights(const weights_shape &shape, bool any_bits)
{
    weights_tensor made;
    static_cast<weights_shape &>(made) = shape;
    const int64_t taps = (int64_t)shape.kernel_rows * shape.kernel_columns,
                  channels = (int64_t)shape.groups * shape.group_in * shape.group_out;
    if (shape.kernel_inside)
        made.strides = {shape.group_out * taps, taps, shape.kernel_columns, 1, 0};
    else
        made.strides = {shape.group_out, 1, shape.kernel_columns * channels, channels, 0};
    made.bits.resize((size_t)(taps * channels));
    for (uint32_t &bits : made.bits)
        bits = shape.dtype == TCONV_F32 ? (any_bits ? random_word() : bits_of(random_real())) : random_bits() & 0xffff;
    return made;
}

struct packed_writer {
    const weights_tensor &from;
    std::vector<uint8_t> bytes;

    void bits(uint32_t value)
    {
        const size_t size = from.element_size();
        bytes.resize(bytes.size() + size);
        memcpy(&bytes[bytes.size() - size], &value, size);
    }
    void fill(size_t count, uint8_t byte)
    {
        bytes.insert(bytes.end(), count, byte);
    }
    void element(weight_part part, int group, int in, int out, int row, int column)
    {
        uint32_t value = from.at(group, in, out, row, column), big, small;
        if (from.dtype == TCONV_F32) {
            tf32_parts_of(value, &big, &small);
            value = part == PART_ROUNDED ? tf32_of(value) : part == PART_BIG ? big : small;
        }
        bits(value);
    }
    /* 16 bytes of neighbouring input channels. */
    void core_row(weight_part part, int group, int in, int out, int row, int column)
    {
        for (int i = 0; i < 16 / (int)from.element_size(); i++)
            element(part, group, in + i, out, row, column);
    }
};

/* The parts of f32 in strict math, or the only one. */
inline weight_part part_of_plane(int planes, int plane)
{
    return planes == 1 ? PART_ROUNDED : plane == 0 ? PART_BIG : PART_SMALL;
}

/* launch packs what `weights` points to, to `packed`, by the library's function. */
typedef std::function<tconv_status(const void *weights, void *packed, tconv_issue *issue)> pack_function;

inline void require_success(tconv_status status, const tconv_issue &issue)
{
    if (status != TCONV_SUCCESS)
        fail("status %d: %s", (int)status, issue.message);
}

/* Packs, and compares with what the writer has. */
inline void compare_packed(const packed_writer &wanted, const pack_function &launch)
{
    tconv_issue issue = {};
    const device_buffer weights = wanted.from.on_device(), packed = output("packed", wanted.bytes.size());
    require_success(launch(weights.data, packed.data, &issue), issue);
    finish_kernels();
    compare_bits<uint8_t>(packed, wanted.bytes);
}

/* Times packing, whose work is the bytes that are read and written. */
inline void rate_packing(const char *variant, const weights_tensor &from, size_t packed_bytes,
                         const pack_function &launch)
{
    begin_case("rate");
    tconv_issue issue = {};
    const device_buffer weights = from.on_device(), packed = output("packed", packed_bytes);
    rate(
        variant, [&] { require_success(launch(weights.data, packed.data, &issue), issue); },
        (double)(weights.bytes + packed_bytes), "GB/s", pass_rate());
}

} // namespace tconv::check

#endif
