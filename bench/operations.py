"""The operations of a layer as the comparisons run them: which tensors each reads and writes, how tconv and PyTorch are
called for it, its answer in float64, and the bytes that it cannot do without. A row of OPERATIONS for each.

Activations are src and dst, or their gradients: a contender may have several sets of those that an operation reads.
What it writes is a tuple of tensors: one, or the gradients of weights and bias, the latter where the layer has a bias.
"""

import torch
import torch.nn.functional as F

# Images of a gradient of weights are summed in float64 by as many as have so many elements.
CHUNK_ELEMENTS = 2**26


def pytorch_arguments(row):
    return (row["sh"], row["sw"]), (row["ph"], row["pw"]), (row["oph"], row["opw"]), row["g"], (row["dh"], row["dw"])


def pytorch_gradients(row, diff_dst, src, weights, mask, groups):
    """(diff_src, diff_weights, diff_bias); mask says which of them are computed, the others are None."""
    strides, padding, output_padding, _, dilation = pytorch_arguments(row)
    bias_sizes = [diff_dst.shape[1]]
    return torch.ops.aten.convolution_backward(
        diff_dst, src, weights, bias_sizes, strides, padding, dilation, True, output_padding, groups, mask
    )


def reached(inputs, outputs, kernel, stride, dilation, padding):
    """Which outputs of an axis a tap reaches, as a mask."""
    mask = torch.zeros(outputs, dtype=torch.bool)
    for at in (dilation * k - padding for k in range(kernel)):  # of the first input
        mask[at if at >= 0 else at % stride : max(0, at + stride * (inputs - 1) + 1) : stride] = True
    return mask


def reached_bytes(case, layout, dtype):
    """The bytes of dst that a gradient must read: of rows that a tap reaches, the lines of memory with such columns."""
    row, (images, channels, height, width) = case.row, case.output_shape
    rows = reached(row["H"], height, row["kh"], row["sh"], row["dh"], row["ph"])
    columns = reached(row["W"], width, row["kw"], row["sw"], row["dw"], row["pw"]).nonzero()[:, 0]
    planes, size = (1, channels) if layout == "nhwc" else (channels, 1)
    size, line = size * case.element_bytes(dtype), case.line_bytes
    first, last = columns * size // line, ((columns + 1) * size - 1) // line
    first[1:] = torch.maximum(first[1:], last[:-1] + 1)  # the line of two columns counts once
    lines = (last - first + 1).sum().item()
    return images * planes * rows.sum().item() * min(width * size, lines * line)


def address(tensor):
    return None if tensor is None else tensor.data_ptr()


class Forward:
    name, code = "forward", 0
    packs = True  # the weights are read, and may be packed before
    picks = "outputs"  # whose channels are set against float64

    @staticmethod
    def weights_of(layout):
        """How the weights lie that tconv is given, or writes."""
        return "nchw"

    def activations(self, case, layout, dtype):
        return (case.src(layout, dtype),)

    def empty(self, case, layout, dtype):
        return (case.empty(case.output_shape, layout, dtype),)

    def bind(self, plan, reads, weights, bias, writes, workspace, stream=None):
        return plan.bind(address(reads[0]), weights, address(bias), address(writes[0]), workspace, stream)

    def pytorch(self, case, layout, dtype):
        """The call on one set of activations, which are its arguments; its result is a tuple."""
        weights, bias, arguments = case.weights(dtype, layout), case.bias(dtype), pytorch_arguments(case.row)
        return lambda src: (F.conv_transpose2d(src, weights, bias, *arguments),)

    def expected(self, case, dtype):
        src, weights, bias = case.src("nchw", dtype)[case.checked_images], case.weights(dtype), case.bias(dtype)
        strides, padding, output_padding, _, dilation = pytorch_arguments(case.row)
        sums = [
            F.conv_transpose2d(
                src[:, part.inputs].double(),
                part.of(weights).double(),
                None if bias is None else bias[part.outputs].double(),
                strides,
                padding,
                output_padding,
                part.groups,
                dilation,
            )
            for part in case.parts
        ]
        return (torch.cat(sums, 1),)

    def checked(self, case, written):
        return (case.picked(written[0][case.checked_images], 1, "outputs"),)

    def bytes(self, case, layout, dtype):
        """What is read and written, once each."""
        return case.element_bytes(dtype) * case.elements("src", "weights", "dst")


class BackwardData:
    name, code = "backward_data", 1
    packs = True
    picks = "inputs"

    @staticmethod
    def weights_of(layout):
        """As PyTorch is given them: kernels may read them as they lie."""
        return layout

    def activations(self, case, layout, dtype):
        return (case.diff_dst(layout, dtype),)

    def empty(self, case, layout, dtype):
        return (case.empty(case.src_shape, layout, dtype),)

    def bind(self, plan, reads, weights, bias, writes, workspace, stream=None):
        return plan.bind(address(writes[0]), weights, None, address(reads[0]), workspace, stream)

    def pytorch(self, case, layout, dtype):
        src, weights, groups = case.src(layout, dtype), case.weights(dtype, layout), case.row["g"]
        mask = (True, False, False)
        return lambda diff_dst: pytorch_gradients(case.row, diff_dst, src, weights, mask, groups)[:1]

    def expected(self, case, dtype):
        diff_dst, weights = case.diff_dst("nchw", dtype)[case.checked_images], case.weights(dtype)
        src = case.src("nchw", dtype)[case.checked_images]
        mask = (True, False, False)
        sums = [
            pytorch_gradients(
                case.row,
                diff_dst[:, part.outputs].double(),
                src[:, part.inputs].double(),
                part.of(weights).double(),
                mask,
                part.groups,
            )[0]
            for part in case.parts
        ]
        return (torch.cat(sums, 1),)

    def checked(self, case, written):
        return (case.picked(written[0][case.checked_images], 1, "inputs"),)

    def bytes(self, case, layout, dtype):
        return reached_bytes(case, layout, dtype) + case.element_bytes(dtype) * case.elements("src", "weights")


class BackwardWeights:
    name, code = "backward_weights", 2
    packs = False
    picks = "inputs"

    @staticmethod
    def weights_of(layout):
        """As those of the layer in PyTorch: tconv.torch has their gradient lie as they do."""
        return layout

    def activations(self, case, layout, dtype):
        return case.src(layout, dtype), case.diff_dst(layout, dtype)

    def empty(self, case, layout, dtype):
        weights, bias = case.weights(dtype, self.weights_of(layout)), case.bias(dtype)
        return (torch.empty_like(weights), *(() if bias is None else (torch.empty_like(bias),)))

    def bind(self, plan, reads, weights, bias, writes, workspace, stream=None):
        src, diff_dst = map(address, reads)
        diff_weights, diff_bias = [*map(address, writes), None][:2]
        return plan.bind(src, diff_weights, diff_bias, diff_dst, workspace, stream)

    def pytorch(self, case, layout, dtype):
        weights, groups, has_bias = case.weights(dtype, layout), case.row["g"], case.bias(dtype) is not None
        mask, end = (False, True, has_bias), 3 if has_bias else 2
        return lambda src, diff_dst: pytorch_gradients(case.row, diff_dst, src, weights, mask, groups)[1:end]

    def expected(self, case, dtype):
        """Of all images, some at a time."""
        src, diff_dst = case.src("nchw", dtype), case.diff_dst("nchw", dtype)
        weights, bias = case.weights(dtype), case.bias(dtype)
        images = max(1, CHUNK_ELEMENTS // max(src[0].numel(), diff_dst[0].numel()))
        sums = []
        for part in case.parts:
            total = part.of(weights).double().zero_()
            for x, y in zip(src.split(images), diff_dst.split(images), strict=True):
                x, y = x[:, part.inputs].double(), y[:, part.outputs].double()
                total += pytorch_gradients(case.row, y, x, total, (False, True, False), part.groups)[1]
            sums.append(total)
        if bias is None:
            return (torch.cat(sums),)
        return torch.cat(sums), sum(y.double().sum((0, 2, 3)) for y in diff_dst.split(images))

    def checked(self, case, written):
        return (case.picked(written[0], 0, "inputs"), *written[1:])

    def bytes(self, case, layout, dtype):
        """For the gradient of bias every element of dst's gradient counts."""
        if case.bias(dtype) is not None:
            return case.element_bytes(dtype) * case.elements("src", "weights", "dst")
        return reached_bytes(case, layout, dtype) + case.element_bytes(dtype) * case.elements("src", "weights")


OPERATIONS = {op.name: op for op in (Forward(), BackwardData(), BackwardWeights())}
BIAS = ("as", "with", "without")


def add_options(parser):
    """What both comparisons are asked for alike."""
    parser.add_argument(
        "--op", choices=OPERATIONS, default=Forward.name, help="what is computed of each layer; default %(default)s"
    )
    parser.add_argument(
        "--bias", choices=BIAS, default="as", help="layers as they are, all with a bias, or all without"
    )


def with_bias(rows, asked):
    return rows if asked == "as" else [{**row, "bias": int(asked == "with")} for row in rows]
