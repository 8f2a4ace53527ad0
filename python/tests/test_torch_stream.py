"""Steps of streams and the streaming module, against one call of PyTorch's in float64."""

import copy

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch_values import DTYPES, TOLERANCE  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _stream_operator  # noqa: E402

LAYERS = {  # width, stride, dilation, groups
    "causal codec": (16, 8, 1, 1),
    "depthwise": (4, 2, 1, 8),
    "no tail": (4, 4, 1, 2),
    "shorter than the stride": (3, 5, 1, 1),
    "longer than four strides": (9, 2, 1, 4),
    "dilated": (3, 2, 3, 2),
    "odd tail": (7, 4, 1, 1),
}


def cuts(length):
    """Chunks of random lengths that make up a length."""
    ends = sorted({*torch.randint(1, length, (length // 3,)).tolist(), length})
    return list(zip([0, *ends], ends, strict=False))


def parameters(name, device, dtype=torch.float64):
    width, stride, dilation, groups = LAYERS[name]
    weight = torch.randn(8, 3, width, device=device, dtype=torch.float64).to(dtype)
    bias = torch.randn(3 * groups, device=device, dtype=torch.float64).to(dtype)
    sizes = dict(stride=stride, dilation=dilation, groups=groups)
    return weight, bias, sizes, max(0, dilation * (width - 1) + 1 - stride)


def causal(x, weight, bias, stride, dilation, groups):
    """The one call in float64, cut to stride columns for each input."""
    more = max(0, stride - dilation * (weight.shape[2] - 1) - 1)
    x, weight, bias = x.double(), weight.double(), None if bias is None else bias.double()
    return F.conv_transpose1d(x, weight, bias, stride, 0, more, groups, dilation)[..., : stride * x.shape[2]]


def zeros(weight, groups, tail, batch, dtype=None):
    of_sums = torch.float64 if weight.dtype is torch.float64 else torch.float32
    return torch.zeros(batch, weight.shape[1] * groups, tail, dtype=dtype or of_sums, device=weight.device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_random_chunks_give_what_one_call_gives(name, dtype, device):
    weight, bias, sizes, tail = parameters(name, device, dtype)
    for batch, length, offset in ((1, 5, bias), (3, 29, None)):
        state = zeros(weight, sizes["groups"], tail, batch)
        x = torch.randn(batch, 8, length, device=device).to(dtype)
        parts = [tt.conv_transpose1d_step(x[..., a:b], weight, offset, state, **sizes) for a, b in cuts(length)]
        y, tolerance = torch.cat(parts, -1), TOLERANCE[dtype]
        assert y.dtype == dtype
        torch.testing.assert_close(y.double(), causal(x, weight, offset, **sizes), rtol=tolerance, atol=10 * tolerance)


def test_a_state_of_the_layers_own_type_is_rounded_in_each_step(device):
    weight, bias, sizes, tail = parameters("causal codec", device, torch.bfloat16)
    state = zeros(weight, 1, tail, 1, torch.bfloat16)
    x = torch.randn(1, 8, 6, device=device).bfloat16()
    y = torch.cat([tt.conv_transpose1d_step(part, weight, bias, state, **sizes) for part in x.split(1, 2)], -1)
    torch.testing.assert_close(y.double(), causal(x, weight, bias, **sizes), rtol=0.1, atol=0.5)
    assert state.dtype == torch.bfloat16 and state.any()


def test_bits_do_not_depend_on_chunks():
    """On the CPU, where all implementations promise it; each power of two has a plan of its own."""
    weight, bias, sizes, tail = parameters("causal codec", "cpu", torch.float32)
    x = torch.randn(2, 8, 40)
    expected = tt.conv_transpose1d_step(x, weight, bias, zeros(weight, 1, tail, 2), **sizes)
    for _ in range(5):
        state = zeros(weight, 1, tail, 2)
        parts = [tt.conv_transpose1d_step(x[..., a:b], weight, bias, state, **sizes) for a, b in cuts(40)]
        assert torch.equal(torch.cat(parts, -1), expected)


def integers(*shape, device="cpu"):
    return torch.randint(-4, 5, shape, device=device).float()


def test_masks_and_slots(device):
    weight, bias, sizes, tail = parameters("odd tail", device)
    weight, bias = integers(*weight.shape, device=device), integers(*bias.shape, device=device)
    x = integers(4, 8, 10, device=device)
    y = causal(x, weight, bias, **sizes).float()
    state = zeros(weight, 1, tail, 6).fill_(7)

    def step(rows, first, last, **masks):
        masks = {name: torch.tensor(mask, device=device) for name, mask in masks.items()}
        slots = torch.tensor([5 - row for row in rows], dtype=torch.int32, device=device)
        return tt.conv_transpose1d_step(x[rows, :, first:last], weight, bias, state, slots=slots, **sizes, **masks)

    assert torch.equal(step([0, 2, 3], 0, 4, reset=[True] * 3), y[[0, 2, 3], :, :16])
    before = state.clone()
    assert torch.equal(step([3, 1], 4, 6, reset=[False, True], active=[True, False])[0], y[3, :, 16:24])
    changed = (state != before).flatten(1).any(1)
    assert changed.tolist() == [False, False, True, False, False, False]
    assert torch.equal(step([2, 0], 4, 10), y[[2, 0], :, 16:])
    uint8 = dict(reset=torch.ones(1, dtype=torch.uint8, device=device))
    got = tt.conv_transpose1d_step(x[[1]], weight, bias, state, **sizes, **uint8)
    assert torch.equal(got, y[[1]])


def test_streams_without_slots_may_be_fewer_than_the_states(device):
    weight, bias, sizes, tail = parameters("odd tail", device, torch.float32)
    state = zeros(weight, 1, tail, 3)
    tt.conv_transpose1d_step(torch.randn(2, 8, 1, device=device), weight, bias, state, **sizes)
    assert state[:2].any() and not state[2].any()


def test_inputs_may_lie_in_any_way(device):
    weight, bias, sizes, tail = parameters("odd tail", device, torch.float32)
    x = torch.randn(2, 6, 8, device=device)
    one, other = zeros(weight, 1, tail, 2), zeros(weight, 1, tail, 2)
    expected = tt.conv_transpose1d_step(x.transpose(1, 2).contiguous(), weight, bias, one, **sizes)
    turned = weight.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert torch.equal(tt.conv_transpose1d_step(x.transpose(1, 2), turned, bias, other, **sizes), expected)
    assert torch.equal(one, other)


def test_a_new_length_is_not_planned():
    weight, bias, sizes, tail = parameters("odd tail", "cpu", torch.float32)
    state = zeros(weight, 1, tail, 2)
    forget_plans()
    for length in (5, 6, 7, 8):
        tt.conv_transpose1d_step(torch.randn(2, 8, length), weight, bias, state, **sizes)
    assert len(_stream_operator.plans) == 1
    tconv.reload_environment()
    assert len(_stream_operator.plans) == 0 and len(_stream_operator.steps) == 0


def test_gradients_are_refused_and_what_has_them_is_named(device):
    weight, bias, sizes, tail = parameters("odd tail", device, torch.float32)
    x, state = torch.randn(1, 8, 2, device=device), zeros(weight, 1, tail, 1)
    for i in range(3):
        tensors = [x, weight, bias]
        tensors[i] = tensors[i].clone().requires_grad_()
        with pytest.raises(RuntimeError, match=r"tconv\.torch\.conv_transpose1d,"):
            tt.conv_transpose1d_step(*tensors, state, **sizes)
        with torch.no_grad():
            tt.conv_transpose1d_step(*tensors, state, **sizes)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="no gradients"):
        dual = torch.autograd.forward_ad.make_dual(x, x)
        tt.conv_transpose1d_step(dual, weight, bias, state, **sizes)


BAD = {
    "x without batch": (dict(x=torch.ones(8, 2)), "x"),
    "x without inputs": (dict(x=torch.ones(2, 8, 0)), "x"),
    "x that is none": (dict(x=[1.0]), "x"),
    "x of integers": (dict(x=torch.ones(2, 8, 2, dtype=torch.int32)), "x"),
    "x that is sparse": (dict(x=torch.ones(2, 8, 2).to_sparse()), "x"),
    "channels": (dict(x=torch.ones(2, 7, 2)), "weight"),
    "dtype of weight": (dict(weight=torch.ones(8, 3, 7, dtype=torch.float16)), "weight"),
    "device of weight": (dict(weight=torch.ones(8, 3, 7, device="meta")), "weight"),
    "bias": (dict(bias=torch.ones(4)), "bias"),
    "tail of the state": (dict(state=torch.zeros(2, 3, 4)), "state"),
    "slots of the state": (dict(state=torch.zeros(1, 3, 3)), "state"),
    "dtype of the state": (dict(state=torch.zeros(2, 3, 3, dtype=torch.float64)), "state"),
    "order of the state": (dict(state=torch.zeros(2, 3, 3).transpose(1, 2)), "state"),
    "reset of integers": (dict(reset=torch.ones(2, dtype=torch.int32)), "reset"),
    "few resets": (dict(reset=torch.ones(1, dtype=torch.bool)), "reset"),
    "active that is none": (dict(active=[True, True]), "active"),
    "slots of 64 bits": (dict(slots=torch.arange(2)), "slots"),
    "slot twice": (dict(slots=torch.tensor([1, 1], dtype=torch.int32)), "slots[1]"),
    "stride": (dict(stride=0), "stride_w"),
    "stride that is no integer": (dict(stride=[4]), "stride"),
    "groups": (dict(groups=3), "groups"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused_by_field_and_change_nothing(name):
    bad, field = BAD[name]
    good = dict(x=torch.ones(2, 8, 2), weight=torch.ones(8, 3, 7), bias=torch.ones(3), state=torch.ones(2, 3, 3))
    tt.conv_transpose1d_step(**good, stride=4)
    before = good["state"].clone()
    with pytest.raises(tconv.TconvError) as error:
        tt.conv_transpose1d_step(**{**good, "stride": 4, **bad})
    assert error.value.field == field, error.value
    assert torch.equal(good["state"], before)


# ---------------------------------------------------------------------------------------------------------- the module


def made(name, device="cpu", trim="right", **more):
    width, stride, dilation, groups = LAYERS[name]
    sizes = dict(stride=stride, dilation=dilation, groups=groups, device=device, dtype=torch.float64)
    return tt.StreamingConvTranspose1d(8, 8, width, trim=trim, **sizes, **more).requires_grad_(False)


@pytest.mark.parametrize("trim", ["right", "both"])
@pytest.mark.parametrize("name", LAYERS)
def test_all_chunks_and_the_flush_are_the_one_call(name, trim, device):
    layer = made(name, device, trim)
    x = torch.randn(2, 8, 17, dtype=torch.float64, device=device)
    more = max(0, -layer._total())
    raw = F.conv_transpose1d(x, layer.weight, layer.bias, layer.stride, 0, more, layer.groups, layer.dilation)
    total = max(0, layer._total())
    left = (total + 1) // 2 if trim == "both" else 0
    expected = raw[..., left : left + layer.stride[0] * 17]
    torch.testing.assert_close(layer(x), expected)
    with layer.streaming(batch=2):
        for _ in range(2):  # a flush begins streams anew
            y = torch.cat([*(layer(x[..., a:b]) for a, b in cuts(17)), layer.flush()], -1)
            torch.testing.assert_close(y, expected)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("sizes", [dict(), dict(padding=2), dict(padding=3, output_padding=1), dict(padding=1)])
def test_without_a_trim_it_is_pytorchs_layer(sizes, device):
    """HiFi-GAN's and DAC's own paddings."""
    layer = made("odd tail", device, None, **sizes)
    theirs = nn.ConvTranspose1d(8, 8, 7, 4, **sizes, dtype=torch.float64, device=device)
    theirs.load_state_dict(layer.state_dict())
    x = torch.randn(2, 8, 11, dtype=torch.float64, device=device)
    expected = theirs(x).detach()
    torch.testing.assert_close(layer(x), expected)
    with layer.streaming(batch=2):
        y = torch.cat([*(layer(x[..., a:b]) for a, b in cuts(11)), layer.flush()], -1)
    torch.testing.assert_close(y, expected)


def test_a_stream_that_ends_before_its_first_column():
    layer = made("dilated", trim="both")  # three columns are cut off on the left, a step has two
    x = torch.randn(1, 8, 1, dtype=torch.float64)
    with layer.streaming(batch=1):
        first = layer(x)
        assert first.shape[-1] == 0 and layer.to_drop == 1
        torch.testing.assert_close(torch.cat([first, layer.flush()], -1), layer_of(layer)(x))


def layer_of(layer):
    """The same layer, not streaming."""
    other = tt.StreamingConvTranspose1d(
        8,
        8,
        layer.kernel_size,
        layer.stride,
        0,
        0,
        layer.groups,
        True,
        layer.dilation,
        dtype=torch.float64,
        trim=layer.trim,
    )
    other.load_state_dict(layer.state_dict())
    return other.requires_grad_(False)


@pytest.mark.parametrize("trim", ["right", "both"])
def test_a_state_is_saved_and_restored(trim, device):
    layer = made("odd tail", device, trim)
    x = torch.randn(2, 8, 9, dtype=torch.float64, device=device)
    expected = layer(x)
    with layer.streaming(batch=2):
        first = layer(x[..., :5])
        saved = layer.state.clone()
    assert layer.state is None
    with layer.streaming(batch=2):
        state = layer.state
        layer.state = saved
        assert layer.state is state
        rest = torch.cat([layer(x[..., 5:]), layer.flush()], -1)
    torch.testing.assert_close(torch.cat([first, rest], -1), expected)


def test_resets_of_some_and_of_all(device):
    layer = made("odd tail", device)
    x = torch.randn(2, 8, 4, dtype=torch.float64, device=device)
    expected = layer(x)
    with layer.streaming(batch=2):
        layer(x)
        kept = layer.state[0].clone()
        layer.reset(torch.tensor([False, True], device=device))
        assert torch.equal(layer.state[0], kept)
        torch.testing.assert_close(layer(x)[1], expected[1])
        layer.reset()
        torch.testing.assert_close(layer(x), expected)
        torch.testing.assert_close(layer(x, reset=torch.ones(2, dtype=torch.bool, device=device)), expected)
        resting = layer(x, active=torch.zeros(2, dtype=torch.bool, device=device))
        assert resting.shape == expected.shape
    both = made("odd tail", device, "both")
    with both.streaming(batch=2):
        both(x)
        for call in (both.reset, lambda mask: both(x, reset=mask)):
            with pytest.raises(ValueError, match="trim=None"):
                call(torch.tensor([False, True], device=device))
        both.reset()
        whole = layer_of(both).to(device)(x)
        torch.testing.assert_close(torch.cat([both(x), both.flush()], -1), whole)


def test_parameters_are_pytorchs():
    layer = tt.StreamingConvTranspose1d(8, 6, 4, stride=2)
    theirs = nn.ConvTranspose1d(8, 6, 4, stride=2)
    theirs.load_state_dict(layer.state_dict())
    with torch.no_grad(), layer.streaming(batch=1):
        layer(torch.ones(1, 8, 1))
        assert list(layer.state_dict()) == ["weight", "bias"]
    layer(torch.ones(1, 8, 3)).sum().backward()
    theirs(torch.ones(1, 8, 3))[..., :6].sum().backward()
    torch.testing.assert_close(layer.weight.grad, theirs.weight.grad)
    assert "trim='right'" in repr(layer) and copy.deepcopy(layer).trim == "right"


def test_mistakes_of_the_module():
    layer = made("odd tail")
    x = torch.ones(1, 8, 2, dtype=torch.float64)
    for call in (layer.flush, layer.reset, lambda: layer(x, active=torch.ones(1, dtype=torch.bool))):
        with pytest.raises(RuntimeError, match="not streaming"):
            call()
    with pytest.raises(RuntimeError, match="not streaming"):
        layer.state = torch.zeros(1)
    with layer.streaming(batch=1):
        with pytest.raises(RuntimeError, match="nested"), layer.streaming(batch=1):
            pass
        with pytest.raises(ValueError, match="state is"):
            layer.state = torch.zeros(1, 8, 3)
        with pytest.raises(tconv.TconvError, match=r"state\.shape"):
            layer(torch.ones(2, 8, 2, dtype=torch.float64))
    for arguments in (dict(trim="left"), dict(padding=1), dict(trim="both", output_padding=1)):
        with pytest.raises(ValueError, match="trim"):
            tt.StreamingConvTranspose1d(8, 6, 4, stride=2, **arguments)
    for arguments in (dict(kernel_size=3, stride=5), dict(kernel_size=7, stride=4, padding=0, output_padding=1)):
        with (
            pytest.raises(ValueError, match="trim='right'"),
            tt.StreamingConvTranspose1d(8, 6, trim=None, **arguments).streaming(1),
        ):
            pass


def test_graphs_follow_masks(cuda):
    """A captured step reads masks and inputs when it is replayed."""
    layer = made("odd tail", cuda)
    x = torch.randn(2, 8, 3, dtype=torch.float64, device=cuda)
    mask = torch.zeros(2, dtype=torch.bool, device=cuda)
    expected = layer(x)
    with layer.streaming(batch=2):
        layer(x, reset=mask)  # plans
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = layer(x, reset=mask)
        for reset in ([True, True], [True, False]):
            mask.copy_(torch.tensor(reset))
            graph.replay()
            torch.testing.assert_close(y[0], expected[0])
        assert not torch.allclose(y[1], expected[1])
