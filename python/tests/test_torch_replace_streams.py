"""replace on streaming layers as moshi has them: stand-ins with the same attributes and behaviour, of both versions."""

import copy
import dataclasses
import io
import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

import tconv.torch as tt  # noqa: E402
from tconv.torch import _replace_streams  # noqa: E402

# ----------------------------------------------------------------------------------------------------- the stand-ins


@dataclasses.dataclass
class State:
    """Of the newer version: sums without bias, and which streams take part."""

    partial: torch.Tensor
    exec_mask: torch.Tensor

    def reset(self, mask):
        self.partial[mask] = 0
        self.exec_mask[mask] = True


class Norm(nn.Module):
    def __init__(self, *sizes, **more):
        super().__init__()
        self.convtr = nn.ConvTranspose1d(*sizes, **more)

    def forward(self, x):
        return self.convtr(x)


class Streaming(nn.Module):
    """What both versions have of the class they are derived from."""

    _streaming_state = None

    def start(self, batch):
        self._streaming_state = self._init_streaming_state(batch)

    def stop(self):
        self._streaming_state = None


class StreamingLayer(Streaming):
    def __init__(self, inputs, outputs, width, stride, groups=1, bias=True):
        super().__init__()
        self.convtr = Norm(inputs, outputs, width, stride, groups=groups, bias=bias)

    def _sizes(self):
        layer = self.convtr.convtr
        return layer.kernel_size[0] - layer.stride[0], layer.stride[0], layer.bias

    def _init_streaming_state(self, batch):
        weight, (tail, _, _) = self.convtr.convtr.weight, self._sizes()
        shape = batch, self.convtr.convtr.out_channels, tail
        mask = torch.ones(batch, dtype=torch.bool, device=weight.device)
        return State(torch.zeros(shape, dtype=weight.dtype, device=weight.device), mask)

    def forward(self, x):
        (tail, stride, bias), state = self._sizes(), self._streaming_state
        sums, done = self.convtr(x), stride * x.shape[-1]
        if state is None or not tail:
            return sums[..., :done]
        sums[..., :tail] += state.partial
        rest = sums[..., done:] - (0 if bias is None else bias[:, None])
        state.partial[state.exec_mask] = rest[state.exec_mask]
        return sums[..., :done]


class OldState:
    partial = None

    def reset(self):
        self.partial = None


class RawLayer(nn.ConvTranspose1d, Streaming):
    """Of the older version: the state holds the bias, and all streams begin at once."""

    def _init_streaming_state(self, batch):
        return OldState()

    def forward(self, x):
        state = self._streaming_state
        if state is None:
            return super().forward(x)
        if x.shape[-1] == 0:
            return x.new_empty((x.shape[0], self.out_channels, 0))
        sums, done = super().forward(x), self.stride[0] * x.shape[-1]
        if state.partial is not None:
            bias = 0 if self.bias is None else self.bias[:, None]
            sums[..., : state.partial.shape[-1]] += state.partial - bias
        state.partial = sums[..., done:]
        return sums[..., :done]


class OuterLayer(Streaming):
    """Which wraps the older one, and streams by it."""

    def __init__(self):
        super().__init__()
        self.convtr = Norm(8, 6, 7, 4)
        self.convtr.convtr = RawLayer(8, 6, 7, 4)

    def _init_streaming_state(self, batch):
        return object()

    def forward(self, x):
        return self.convtr(x)


class TrimsLeft(StreamingLayer):
    """Looks the same, and gives later columns."""

    def forward(self, x):
        y = super().forward(x)
        return torch.roll(y, 1, -1)


class KeepsBias(StreamingLayer):
    """Looks the same, and adds the bias twice where chunks meet."""

    def forward(self, x):
        y, state = super().forward(x), self._streaming_state
        if state is not None:
            state.partial += self.convtr.convtr.bias[:, None]
        return y


# --------------------------------------------------------------------------------------------------------- the tests

SIZES = {  # width, stride, groups
    "mimi": (16, 8, 1),
    "odd": (7, 4, 2),
    "depthwise": (4, 2, 8),
    "no tail": (4, 4, 1),
    "long": (15, 2, 1),
}
CLOSE = {
    torch.float64: dict(rtol=1e-12, atol=1e-12),
    torch.float32: dict(rtol=1e-5, atol=1e-5),
    torch.bfloat16: dict(rtol=0.02, atol=0.02),
}


def pair_of(make, device, dtype=torch.float32):
    """A layer that replace has taken, and one that it has not seen."""
    torch.manual_seed(3)
    theirs = make().to(device, dtype).requires_grad_(False)
    ours = copy.deepcopy(theirs)
    assert "" in tt.replace(ours).swapped
    return ours, theirs


def random_chunks(length):
    while length:
        chunk = int(torch.randint(1, 1 + min(length, 6), ()))
        yield chunk
        length -= chunk


@pytest.fixture
def steps(monkeypatch):
    """How many steps were tconv's."""
    taken = []
    monkeypatch.setattr(
        _replace_streams, "step", lambda *arguments, real=_replace_streams.step: (taken.append(1), real(*arguments))[1]
    )
    return taken


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", SIZES)
def test_steps_masks_and_resets_are_moshis(name, bias, dtype, device, steps):
    width, stride, groups = SIZES[name]
    ours, theirs = pair_of(lambda: StreamingLayer(8, 8, width, stride, groups, bias), device, dtype)
    steps.clear()
    for layer in (ours, theirs):
        layer.start(3)
    taken = 0
    for i, length in enumerate(random_chunks(40)):
        mask = torch.rand(3, device=device) < 0.7 if i % 2 else torch.ones(3, dtype=torch.bool, device=device)
        for layer in (ours, theirs):
            layer._streaming_state.exec_mask[:] = mask
            if i % 4 == 3:
                layer._streaming_state.reset(torch.tensor([False, True, False], device=device))
        mask = theirs._streaming_state.exec_mask
        x = torch.randn(3, 8, length, device=device).to(dtype)
        y, expected = ours(x), theirs(x)
        taken += 1
        torch.testing.assert_close(y[mask], expected[mask], **CLOSE[dtype])
        torch.testing.assert_close(ours._streaming_state.partial, theirs._streaming_state.partial, **CLOSE[dtype])
    assert len(steps) == taken
    for layer in (ours, theirs):
        layer.stop()
    x = torch.randn(3, 8, 5, device=device).to(dtype)
    torch.testing.assert_close(ours(x), theirs(x), **CLOSE[dtype])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", SIZES)
def test_the_older_version(name, bias, device, steps):
    width, stride, groups = SIZES[name]
    ours, theirs = pair_of(lambda: RawLayer(8, 8, width, stride, groups=groups, bias=bias), device)
    for layer in (ours, theirs):
        layer.start(2)
    for _ in range(2):
        steps.clear()
        chunks = [0, *random_chunks(20)]
        for length in chunks:
            x = torch.randn(2, 8, length, device=device)
            torch.testing.assert_close(ours(x), theirs(x), **CLOSE[torch.float32])
            if length:
                mine, partial = ours._streaming_state.partial, theirs._streaming_state.partial
                torch.testing.assert_close(mine, partial, **CLOSE[torch.float32])
        assert len(steps) == len(chunks) - 1
        for layer in (ours, theirs):
            layer._streaming_state.reset()
    for layer in (ours, theirs):
        layer.stop()
    torch.testing.assert_close(ours(x), theirs(x), **CLOSE[torch.float32])


@pytest.mark.parametrize("make", [lambda: StreamingLayer(8, 6, 7, 4), lambda: RawLayer(8, 6, 7, 4)])
def test_replace_and_restore_in_the_middle_of_a_stream(make, device, steps):
    torch.manual_seed(3)
    layer = make().to(device).requires_grad_(False)
    theirs, kind = copy.deepcopy(layer), type(layer)
    x = torch.randn(2, 8, 9, device=device)
    for each in (layer, theirs):
        each.start(2)
    state = layer._streaming_state
    parts = [layer(x[..., :2])]
    assert "" in tt.replace(layer).swapped and tt.replace(layer).already[0] == ""
    assert type(layer).__name__ == kind.__name__ and isinstance(layer, kind) and layer._streaming_state is state
    steps.clear()
    parts += [layer(x[..., 2:3]), layer(x[..., 3:7])]
    assert len(steps) == 2
    assert "" in tt.restore(layer).restored and type(layer) is kind
    parts.append(layer(x[..., 7:]))
    assert len(steps) == 2
    torch.testing.assert_close(torch.cat(parts, -1), theirs(x), **CLOSE[torch.float32])


def test_the_outer_layer_of_the_older_version_streams_by_the_inner(steps):
    layer = OuterLayer().requires_grad_(False)
    theirs = copy.deepcopy(layer)
    assert tt.replace(layer).swapped == ["convtr.convtr"]
    steps.clear()
    for each in (layer, theirs):
        each.start(1)
        each.convtr.convtr.start(1)
    for length in (1, 3):
        x = torch.randn(1, 8, length)
        torch.testing.assert_close(layer(x), theirs(x), **CLOSE[torch.float32])
    assert len(steps) == 2


def test_everything_in_the_layer_stays(steps):
    layer = StreamingLayer(8, 6, 7, 4)
    layer.requires_grad_(False)
    pickled = copy.deepcopy(layer)
    assert tt.replace(pickled).swapped == ["", "convtr.convtr"]
    pickled = torch.load(saved(pickled), weights_only=False)
    pickled.load_state_dict(layer.state_dict())
    parametrizations.weight_norm(layer.convtr.convtr)
    layer.requires_grad_(False)
    names, parameters, theirs = list(layer.state_dict()), list(layer.parameters()), copy.deepcopy(layer)
    assert tt.replace(layer).swapped == ["", "convtr.convtr"]
    assert list(layer.state_dict()) == names and all(map(torch.equal, layer.parameters(), parameters))
    for again in (layer, copy.deepcopy(layer), pickled):
        steps.clear()
        for each in (again, theirs):
            each.start(1)
        x = torch.randn(1, 8, 2)
        torch.testing.assert_close(again(x), theirs(x), **CLOSE[torch.float32])
        assert len(steps) == 1


def saved(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return file


def test_what_is_no_step_is_the_layers_own(steps):
    """Gradients, hooks on what is inside, and autocast."""
    ours, theirs = pair_of(lambda: StreamingLayer(8, 6, 7, 4), "cpu")
    steps.clear()
    x = torch.randn(1, 8, 2)
    seen = []

    def both():
        for layer in (ours, theirs):
            layer.start(1)
        return ours(x), theirs(x)

    weight = ours.convtr.convtr.weight
    for layer in (ours, theirs):
        layer.convtr.convtr.weight.requires_grad_()
    y, expected = both()
    torch.testing.assert_close(y, expected, **CLOSE[torch.float32])
    y.sum().backward()
    assert weight.grad is not None and not steps
    with torch.no_grad():
        both()
        assert len(steps) == 1
        with torch.autocast("cpu", torch.bfloat16):
            y, expected = both()
        assert y.dtype == torch.bfloat16 and len(steps) == 1
        torch.testing.assert_close(y, expected, rtol=0.02, atol=0.02)
        handle = ours.convtr.convtr.register_forward_hook(lambda *arguments: seen.append(1))
        both()
        handle.remove()
        assert len(steps) == 1 and seen == [1]
        ours.start(2)
        with pytest.raises((RuntimeError, IndexError)):
            ours(torch.randn(3, 8, 2))


def test_what_computes_something_else_is_left_with_the_reason():
    padded = StreamingLayer(8, 6, 7, 4)
    padded.convtr.convtr.padding = (1,)
    patched = StreamingLayer(8, 6, 7, 4)
    patched.forward = patched.forward
    broken = StreamingLayer(8, 6, 7, 4)
    broken._init_streaming_state = lambda batch: math.nan
    cases = {
        "does not compute": [TrimsLeft(8, 6, 7, 4), KeepsBias(8, 6, 7, 4)],
        "padding": [padded],
        "forward of its own": [patched],
        "could not be tried": [broken],
        "meta": [StreamingLayer(8, 6, 7, 4).to("meta")],
        "stride": [StreamingLayer(8, 6, 3, 4)],
    }
    for reason, layers in cases.items():
        for layer in layers:
            kind, replaced = type(layer), tt.replace(layer)
            assert reason in replaced.left[""], replaced
            assert type(layer) is kind and replaced.swapped == ["convtr.convtr"]


def test_trying_leaves_streams_and_random_numbers_alone():
    layer = StreamingLayer(8, 6, 7, 4).requires_grad_(False)
    layer.start(1)
    layer(torch.randn(1, 8, 1))
    partial, numbers = layer._streaming_state.partial.clone(), torch.get_rng_state()
    tt.replace(layer)
    assert torch.equal(layer._streaming_state.partial, partial) and torch.equal(torch.get_rng_state(), numbers)


def test_compiled(device, compiled_anew):
    ours, theirs = pair_of(lambda: StreamingLayer(8, 6, 7, 4), device)
    program = torch.compile(lambda x: ours(2 * x), backend="aot_eager", fullgraph=True)
    for layer in (ours, theirs):
        layer.start(2)
    with torch.no_grad():
        for length in (1, 2, 2):
            x = torch.randn(2, 8, length, device=device)
            torch.testing.assert_close(program(x), theirs(2 * x), **CLOSE[torch.float32])


def test_our_own_streaming_module_is_none_of_them():
    layer = tt.StreamingConvTranspose1d(8, 6, 7, 4)
    assert _replace_streams.streamed_base(layer) is None
