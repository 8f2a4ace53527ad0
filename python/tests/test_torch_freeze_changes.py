"""Frozen weights that change: it is seen, and they are packed again."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_frozen import Packings, frozen_layer, reference, same  # noqa: E402

import tconv.torch as tt  # noqa: E402


@pytest.fixture
def packings():
    return Packings()


@pytest.fixture
def x():
    return torch.randn(2, 8, 5, 6)


def in_place(layer):
    with torch.no_grad():
        layer.weight.mul_(2)


def by_an_optimizer(layer):
    layer.weight.grad = torch.ones_like(layer.weight)
    torch.optim.Adam([layer.weight]).step()


def by_a_fused_optimizer(layer):
    layer.weight.grad = torch.ones_like(layer.weight)
    torch.optim.AdamW([layer.weight], fused=True).step()


def by_a_compiled_fused_optimizer(layer):
    layer.weight.grad = torch.ones_like(layer.weight)
    torch.compile(torch.optim.SGD([layer.weight], lr=0.1, fused=True).step, backend="eager")()


def under_inference_mode(layer):
    with torch.inference_mode():
        layer.weight.add_(1)


def by_a_view(layer):
    layer.weight.detach()[0].zero_()


def by_load_state_dict(layer):
    layer.load_state_dict({name: t + 1 for name, t in layer.state_dict().items()})


def by_assigning_a_state_dict(layer):
    layer.load_state_dict({name: t + 1 for name, t in layer.state_dict().items()}, assign=True)


def another_parameter(layer):
    layer.weight = nn.Parameter(layer.weight.detach() * 3)


def data_assigned(layer):
    layer.weight.data = layer.weight.data * 3


def turned_in_the_same_memory(layer):
    layer.weight.data = layer.weight.data.transpose(2, 3)


def to_another_dtype_and_back(layer):
    layer.double()
    in_place(layer)
    layer.float()


def to_channels_last(layer):
    layer.to(memory_format=torch.channels_last)
    in_place(layer)


def swapped(layer):
    torch.utils.swap_tensors(layer.weight, nn.Parameter(layer.weight.detach() * 3))


CHANGES = [
    in_place, by_an_optimizer, by_a_fused_optimizer, by_a_compiled_fused_optimizer, under_inference_mode, by_a_view,
    by_load_state_dict,
    by_assigning_a_state_dict, another_parameter, data_assigned,
    turned_in_the_same_memory, to_another_dtype_and_back, to_channels_last, swapped,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changed_weights_are_seen(device, change, packings):
    layer = frozen_layer(device, arguments=(8, 6, 3))
    x = torch.randn(2, 8, 5, 6, device=device)
    with torch.no_grad():
        before = layer(x)
    change(layer)
    with torch.no_grad():
        for _ in range(2):
            after = layer(x)
            same(after, reference(layer, x))
    assert not torch.allclose(before, after) and int(packings) == 2


def test_another_part_of_the_same_memory(device):
    layer = frozen_layer(device, arguments=(8, 6, 3))
    both = torch.randn(2, *layer.weight.shape, device=device)
    x = torch.randn(2, 8, 5, 6, device=device)
    for part in (0, 1, 0):
        layer.weight.data = both[part]
        with torch.no_grad():
            same(layer(x), reference(layer, x))


def test_other_memory_at_the_same_address(x):
    """As an allocator gives out what was freed last."""
    layer = frozen_layer(arguments=(8, 6, 3))
    memory = bytearray(4 * layer.weight.numel())
    for value in (1.0, 2.0):
        layer.weight.data = torch.frombuffer(memory, dtype=torch.float32).view(layer.weight.shape)
        layer.weight.data.fill_(value)
        with torch.no_grad():
            same(layer(x), reference(layer, x))


def test_what_pytorch_does_not_count_needs_freeze_again(device, packings):
    """The documented rule: the first of these would be the wrong one to rely on."""
    layer = frozen_layer(device)
    x = torch.randn(2, 8, 5, 6, device=device)
    with torch.no_grad():
        before = layer(x)
        layer.weight.data.mul_(2)
        assert torch.equal(layer(x), before)
        tt.freeze(layer)
        same(layer(x), reference(layer, x))
    assert int(packings) == 2


def test_arguments_and_bias_changed_later(x):
    layer = frozen_layer()
    with torch.no_grad():
        layer(x)
        layer.bias.add_(1)
        same(layer(x), reference(layer, x))
        layer.stride, layer.dilation = (3, 1), (1, 2)
        same(layer(x), reference(layer, x))
        layer.bias = None
        same(layer(x), reference(layer, x))


def test_weights_are_not_kept_alive(x):
    layer = frozen_layer()
    with torch.no_grad():
        layer(x)
    from torch.multiprocessing.reductions import StorageWeakRef

    storage = StorageWeakRef(layer.weight.untyped_storage())
    layer.weight = nn.Parameter(torch.randn(8, 6, 3, 3))
    assert storage.expired()
