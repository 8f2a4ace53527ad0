#!/usr/bin/env python3
"""Makes goldens.csv, goldens.bin and gradients.bin: transposed convolutions and their gradients, by PyTorch in float64.

    python3 make_goldens.py        # needs torch and numpy; writes beside itself

Each row of goldens.csv is a layer; its last eight columns are of depth. The tensors are not stored: element i of a tensor,
counted in its logical order (n, c, d, h, w; weights: in, out / groups, kernel_d, kernel_h, kernel_w), follows from splitmix64(stream << 32 | i), as value_bits below and in
test_goldens.c; stream is 4 * row + 0 for src, + 1 for the weights, + 2 for the bias, + 3 for the gradient of dst.

Each layer is computed on two fillings. "exact" are multiples of 1/8 up to 4: they fit in every dtype, and all sums are
exact in f32, so that one rounding gives the one right answer. "real" are float64 numbers in [-1, 1).

goldens.bin holds 16 bytes for each output element, little-endian, layers one after another, n, c, d, h, w: float64 result on
real; float32 result on exact; float32 sum of |src||weights| + |bias| on real, the unit of the error bounds.

gradients.bin holds the same of the gradients of src, weights and bias, in this order and each in its logical order, of the
layers where these have at most GRADIENT_ELEMENTS elements together. The bias has a gradient whether the layer has one or
not. Bounds are the sums of the absolute values of their terms.
"""
import pathlib

import numpy as np
import torch

COLUMNS = "name n ci h w co kh kw sh sw pt pl pb pr oph opw dh dw g bias oh ow z kd sd pf pk opd dd oz".split()
DEFAULTS = dict(n=1, ci=1, h=1, w=1, co=1, kh=1, kw=1, sh=1, sw=1, pt=0, pl=0, pb=0, pr=0, oph=0, opw=0, dh=1, dw=1, g=1,
                bias=0, z=1, kd=1, sd=1, pf=0, pk=0, opd=0, dd=1)

GRADIENT_ELEMENTS = 1400  # and MAX_GRADIENTS in test_goldens.c: others would make gradients.bin twice as long

# Short forms: k, s, d, op set both axes; p sets all four sides, ph and pw two each. Where a layer has z, its input planes, they
# set the axis of depth as well.
LAYERS = [
    # the smallest, and one parameter at a time
    ("one", dict()),
    ("one_bias", dict(bias=1)),
    ("identity_size", dict(n=2, ci=3, h=5, w=4, co=2)),
    ("row", dict(ci=2, h=1, w=9, co=3, kh=1, kw=4, sw=2, pw=1)),
    ("column", dict(ci=2, h=9, w=1, co=3, kh=4, kw=1, sh=2, ph=1)),
    ("kernel", dict(ci=2, h=4, w=6, co=3, kh=3, kw=5)),
    ("kernel_even", dict(ci=3, h=5, w=5, co=2, kh=2, kw=4)),
    ("stride", dict(ci=2, h=4, w=5, co=3, k=3, sh=2, sw=3)),
    ("stride_past_kernel", dict(ci=2, h=4, w=4, co=3, k=2, sh=3, sw=5, bias=1)),
    ("stride_is_kernel", dict(ci=5, h=4, w=6, co=4, k=2, s=2, bias=1)),
    ("dilation", dict(ci=2, h=4, w=5, co=3, k=3, dh=2, dw=3)),
    ("dilation_shares_stride", dict(ci=3, h=4, w=5, co=2, k=3, s=2, d=2, bias=1)),
    ("dilation_shares_factor", dict(ci=2, h=4, w=4, co=2, k=3, s=4, d=6, bias=1)),
    ("dilation_coprime", dict(ci=2, h=4, w=5, co=3, k=4, sh=3, sw=2, dh=2, dw=3)),
    ("padding", dict(ci=2, h=5, w=6, co=3, k=3, ph=1, pw=2)),
    ("padding_eats_kernel", dict(ci=2, h=6, w=7, co=2, k=3, ph=2, pw=2)),
    ("padding_past_kernel", dict(ci=2, h=9, w=9, co=2, k=3, ph=3, pw=4)),
    ("padding_to_one_pixel", dict(ci=3, h=5, w=3, co=2, k=3, ph=3, pw=2, bias=1)),
    ("padding_uneven_sides", dict(ci=2, h=5, w=6, co=3, k=4, s=2, pt=0, pl=1, pb=2, pr=3)),
    ("padding_one_side", dict(ci=2, h=4, w=4, co=2, k=3, s=2, pb=1, pr=1)),
    ("padding_top_left", dict(ci=2, h=4, w=4, co=2, k=3, s=2, pt=2, pl=1)),
    ("output_padding", dict(ci=2, h=4, w=5, co=3, k=3, s=2, p=1, op=1)),
    ("output_padding_most_stride", dict(ci=2, h=3, w=4, co=2, k=2, sh=4, sw=3, oph=3, opw=2, bias=1)),
    ("output_padding_most_dilation", dict(ci=2, h=3, w=4, co=2, k=2, d=4, op=3, bias=1)),
    ("output_padding_past_taps", dict(ci=1, h=2, w=2, co=2, k=1, s=5, op=4, bias=1)),
    ("groups_2", dict(n=2, ci=4, h=3, w=4, co=6, k=3, g=2)),
    ("groups_3_uneven", dict(ci=6, h=4, w=3, co=9, kh=2, kw=3, s=2, g=3, bias=1)),
    ("depthwise", dict(ci=8, h=5, w=5, co=8, k=3, s=2, p=1, g=8, bias=1)),
    ("depthwise_multiplied", dict(ci=4, h=4, w=5, co=12, k=3, g=4)),
    ("groups_to_one_output", dict(ci=12, h=4, w=4, co=4, k=3, s=2, g=4, bias=1)),
    ("batch", dict(n=5, ci=3, h=3, w=4, co=2, k=3, s=2, bias=1)),
    # what networks use, cut down in channels and size
    ("dcgan_first", dict(n=2, ci=20, co=7, k=4, bias=1)),
    ("dcgan", dict(n=2, ci=16, h=4, w=4, co=8, k=4, s=2, p=1)),
    ("dcgan_to_rgb", dict(n=2, ci=12, h=5, w=6, co=3, k=4, s=2, p=1, bias=1)),
    ("unet_up", dict(ci=24, h=5, w=7, co=12, k=2, s=2, bias=1)),
    ("pointpillars", dict(ci=16, h=4, w=5, co=8, k=4, s=4)),
    ("fcn_bilinear", dict(ci=5, h=4, w=5, co=5, k=8, s=4, p=2, g=5)),
    ("fsrcnn", dict(ci=14, h=5, w=6, co=1, k=9, s=4, p=4, op=3, bias=1)),
    ("lama_up", dict(ci=12, h=5, w=5, co=6, k=3, s=2, p=1, op=1, bias=1)),
    ("hifigan_up", dict(ci=10, w=9, co=5, kh=1, kw=16, sw=8, pw=4, bias=1)),
    ("kb57", dict(ci=8, h=9, w=10, co=8, k=3)),
    ("kb65", dict(ci=8, h=6, w=8, co=6, kh=3, kw=7)),
    ("kb69", dict(ci=6, h=5, w=9, co=8, kh=3, kw=5)),
    ("kb75", dict(n=2, ci=8, h=4, w=6, co=8, kh=3, kw=5, sh=2, sw=3, ph=1, pw=2, dh=2, g=4)),
    ("kb78", dict(ci=5, h=8, w=9, co=4, kh=3, kw=7, ph=1, pw=3)),
    ("kb81", dict(n=2, ci=6, h=4, w=5, co=4, k=3, s=5, p=1, d=2)),
    ("tensorflow_same", dict(ci=6, h=5, w=5, co=4, k=3, s=2, pt=0, pl=0, pb=1, pr=1, bias=1)),
    # all at once, and sizes one beside a vector's width
    ("everything", dict(n=2, ci=6, h=5, w=4, co=4, kh=3, kw=4, sh=3, sw=2, pt=2, pl=1, pb=0, pr=3, oph=2, opw=1, dh=2, dw=3,
                        g=2, bias=1)),
    ("everything_else", dict(n=3, ci=4, h=3, w=6, co=6, kh=4, kw=2, sh=2, sw=5, pt=1, pl=4, pb=2, pr=0, oph=1, opw=5, dh=1,
                             dw=6, g=2, bias=1)),
    ("width_15", dict(ci=3, h=2, w=15, co=3, k=1, bias=1)),
    ("width_17", dict(ci=3, h=2, w=17, co=5, k=3, p=1)),
    ("width_33", dict(ci=2, h=2, w=33, co=3, k=3, s=2, p=1)),
    ("width_64", dict(ci=2, h=1, w=62, co=2, kh=1, kw=3)),
    ("channels_7_to_13", dict(ci=7, h=4, w=5, co=13, k=3, p=1, bias=1)),
    ("channels_33_to_17", dict(ci=33, h=3, w=4, co=17, k=2, s=2)),
    ("channels_64", dict(ci=64, h=3, w=3, co=32, k=1, bias=1)),
    ("channels_1_to_31", dict(ci=1, h=4, w=4, co=31, k=3, p=1, bias=1)),
    ("long_kernel", dict(ci=2, h=2, w=4, co=2, kh=2, kw=23, pw=5)),
    ("kernel_past_input", dict(ci=3, h=2, w=3, co=2, k=9, p=4)),
    ("tall_stride", dict(ci=2, h=6, w=3, co=2, kh=3, kw=2, sh=7, sw=1, ph=1, bias=1)),
    ("wide_dilation", dict(ci=2, h=3, w=5, co=2, kh=2, kw=3, dw=11, pw=7)),
    ("one_pixel_stride", dict(n=3, ci=5, co=4, k=3, s=4, oph=3, bias=1)),
    # three axes
    ("volume", dict(n=2, ci=3, z=3, h=3, w=4, co=2, k=2, bias=1)),
    ("volume_nnunet", dict(ci=8, z=2, h=3, w=3, co=4, k=2, s=2, bias=1)),
    ("volume_unetr", dict(ci=4, z=3, h=2, w=3, co=3, k=3, s=2, p=1, op=1)),
    ("volume_k4_s2", dict(ci=3, z=3, h=3, w=2, co=2, k=4, s=2, p=1, bias=1)),
    ("volume_1x2x2", dict(n=2, ci=4, z=3, h=3, w=4, co=3, kd=1, kh=2, kw=2, sh=2, sw=2, bias=1)),
    ("volume_3x1x1", dict(n=2, ci=4, z=5, h=3, w=3, co=5, kd=3, pf=1, pk=1)),
    ("volume_uneven", dict(ci=2, z=4, h=3, w=2, co=3, kd=2, kh=3, kw=4, sd=3, sh=1, sw=2, pf=2, pt=0, pl=1, pk=1, pb=2, pr=3,
                           opd=1, oph=0, opw=1, dd=2, dh=1, dw=3, bias=1)),
    ("volume_stride_past_kernel", dict(ci=3, z=3, h=2, w=3, co=2, k=2, sd=4, sh=3, sw=3, opd=3, bias=1)),
    ("volume_dilation_shares_stride", dict(ci=2, z=3, h=2, w=3, co=2, k=3, s=2, d=2, bias=1)),
    ("volume_groups", dict(n=2, ci=6, z=2, h=3, w=2, co=4, k=3, s=2, p=1, g=2, bias=1)),
    ("volume_depthwise", dict(ci=5, z=3, h=3, w=3, co=5, k=3, p=1, g=5)),
    ("volume_padding_eats_kernel", dict(ci=2, z=6, h=4, w=4, co=2, k=3, p=2, pf=3, pk=3)),
    ("volume_kb72", dict(ci=4, z=2, h=3, w=3, co=4, kd=3, kh=5, kw=7, s=2, pf=1, pt=2, pl=3, pk=1, pb=2, pr=3, op=1, g=2)),
    ("volume_of_one_plane", dict(n=2, ci=3, z=1, h=2, w=3, co=4, k=3, s=4, opd=3, bias=1)),
]


def expand(short):
    """The layer with every parameter, short forms resolved."""
    layer = dict(DEFAULTS)
    short = dict(short)
    for key, names, depth in (("k", ["kh", "kw"], ["kd"]), ("s", ["sh", "sw"], ["sd"]), ("d", ["dh", "dw"], ["dd"]),
                              ("op", ["oph", "opw"], ["opd"]), ("p", ["pt", "pl", "pb", "pr"], ["pf", "pk"]),
                              ("ph", ["pt", "pb"], []), ("pw", ["pl", "pr"], [])):
        if key in short:
            layer.update(dict.fromkeys(names + (depth if "z" in short else []), short.pop(key)))
    layer.update(short)
    return layer


def value_bits(stream, count):
    """splitmix64 of stream << 32 | i for every i < count."""
    with np.errstate(over="ignore"):
        z = (np.uint64(stream) << np.uint64(32) | np.arange(count, dtype=np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def exact(stream, shape):
    bits = value_bits(stream, int(np.prod(shape)))
    return torch.from_numpy((((bits >> np.uint64(32)) % np.uint64(65)).astype(np.float64) - 32.0) / 8.0).reshape(shape)


def real(stream, shape):
    bits = value_bits(stream, int(np.prod(shape)))
    return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0).reshape(shape)


def transposed(layer, x, w, b, padding):
    """PyTorch's transposed convolution of as many axes as the tensors have; padding is "none" or "own"."""
    axes = [("f", "d"), ("t", "h"), ("l", "w")][5 - x.dim():]
    function = {4: torch.nn.functional.conv_transpose2d, 5: torch.nn.functional.conv_transpose3d}[x.dim()]
    return function(x, w, b, stride=[layer["s" + axis] for _, axis in axes],
                    padding=[layer["p" + before] if padding == "own" else 0 for before, _ in axes],
                    output_padding=[layer["op" + axis] for _, axis in axes], groups=layer["g"],
                    dilation=[layer["d" + axis] for _, axis in axes])


def padded(layer, x, w, b):
    """PyTorch with its own padding, which is the same on both sides; None where the layer's is not."""
    if layer["pf"] != layer["pk"] or layer["pt"] != layer["pb"] or layer["pl"] != layer["pr"]:
        return None
    return transposed(layer, x, w, b, "own")


def agree(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-13, atol=1e-13)


def convolve(layer, x, w, b):
    """PyTorch without padding, then the crop: padding may differ on each side."""
    y = transposed(layer, x, w, b, "none")
    for axis, (before, after) in enumerate((("pl", "pr"), ("pt", "pb"), ("pf", "pk"))[:x.dim() - 2], 1):
        y = y.narrow(-axis, layer[before], y.shape[-axis] - layer[before] - layer[after])
    cropped = y.contiguous()
    own = padded(layer, x, w, b)
    assert own is None or agree(own, cropped)
    return cropped


def gradients(layer, x, w, dy):
    """The gradients of src, weights and bias, flat and one after another."""
    operands = [t.clone().requires_grad_() for t in (x, w, torch.zeros(layer["co"], dtype=torch.float64))]
    flat = [torch.cat([g.flatten() for g in torch.autograd.grad(y, operands, dy)])
            for y in (convolve(layer, *operands), padded(layer, *operands)) if y is not None]
    assert agree(flat[0], flat[-1])
    return flat[0]


def block_of(results):
    """The bytes of one block: "real", "exact" and "bound" of each element."""
    assert (results["exact"].float().double() == results["exact"]).all()
    block = np.zeros(results["real"].numel(), dtype=[("real", "<f8"), ("exact", "<f4"), ("bound", "<f4")])
    for label, result in results.items():
        block[label] = result.flatten().numpy()
    return block.tobytes()


def main():
    here = pathlib.Path(__file__).resolve().parent
    rows, blocks, gradient_blocks = [",".join(COLUMNS)], [], []
    torch.set_num_threads(1)
    for index, (name, short) in enumerate(LAYERS):
        layer = expand(short)
        deep = "z" in short
        shapes = ((layer["n"], layer["ci"], *[layer["z"]] * deep, layer["h"], layer["w"]),
                  (layer["ci"], layer["co"] // layer["g"], *[layer["kd"]] * deep, layer["kh"], layer["kw"]),
                  (layer["co"],))
        results, backward = {}, {}
        for label, fill in (("exact", exact), ("real", real)):
            x, w, b = (fill(4 * index + i, shape) for i, shape in enumerate(shapes))
            results[label] = convolve(layer, x, w, b if layer["bias"] else None)
            dy = fill(4 * index + 3, results[label].shape)
            backward[label] = gradients(layer, x, w, dy)
        results["bound"] = convolve(layer, x.abs(), w.abs(), b.abs() if layer["bias"] else None)
        backward["bound"] = gradients(layer, x.abs(), w.abs(), dy.abs())
        layer["oh"], layer["ow"] = results["real"].shape[-2:]
        layer["oz"] = results["real"].shape[2] if deep else 1
        rows.append(",".join([name] + [str(layer[column]) for column in COLUMNS[1:]]))
        blocks.append(block_of(results))
        if backward["real"].numel() <= GRADIENT_ELEMENTS:
            gradient_blocks.append(block_of(backward))
    (here / "goldens.csv").write_text("\n".join(rows) + "\n")
    (here / "goldens.bin").write_bytes(b"".join(blocks))
    (here / "gradients.bin").write_bytes(b"".join(gradient_blocks))
    print(f"{len(LAYERS)} layers, {sum(map(len, blocks))} bytes, gradients of {len(gradient_blocks)}, "
          f"{sum(map(len, gradient_blocks))} bytes, PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
