"""freeze and thaw: weights are packed once, in every way of calling."""

import copy
import gc
import io
import itertools
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402
from torch_frozen import DTYPES, LAYERS, Packings, frozen_layer, reference, same  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv.torch import _compute, _packed  # noqa: E402


@pytest.fixture
def packings():
    return Packings()


@pytest.fixture
def x():
    return torch.randn(2, 8, 5, 6)


# -------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind, arguments, shape", LAYERS, ids=str)
@pytest.mark.parametrize("weight_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_packed_once_and_right(device, dtype, kind, arguments, shape, weight_format, packings):
    layer = frozen_layer(device, dtype, kind, arguments)
    if kind is tt.ConvTranspose2d:
        layer.to(memory_format=weight_format)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(shape, device=device, dtype=torch.float64).to(dtype)
            same(layer(x), reference(layer, x))
    assert int(packings) == 1 and packings.taken() == 3


def test_numbers_are_those_of_packing_in_the_call(device):
    layer = frozen_layer(device, arguments=(64, 32, 4, 2, 1))
    x = torch.randn(2, 64, 5, 6, device=device)
    with torch.no_grad():
        frozen = layer(x)
        assert tt.thaw(layer) == [""]
        same(frozen, layer(x))  # another implementation may serve packed weights, with other last bits


def test_every_shape_has_its_own(device, packings):
    layer = frozen_layer(device)
    with torch.no_grad():
        for _, width in itertools.product(range(2), range(3, 3 + _packed.SHAPES)):
            x = torch.randn(1, 8, 4, width, device=device)
            same(layer(x), reference(layer, x))
        assert int(packings) == _packed.SHAPES
        for width in range(3, 4 + _packed.SHAPES):  # one more: the one used longest ago goes
            layer(torch.randn(1, 8, 4, width, device=device))
    assert int(packings) == _packed.SHAPES + 1
    assert len(layer._tconv_packed._entries) == _packed.SHAPES


def entry_of(layer):
    """The layer that was found last, and the same with packed weights."""
    entry = list(layer._tconv_packed._entries._values.values())[-1]
    return entry.layer, entry.packed


def test_no_workspace_for_packed_weights(device):
    layer = frozen_layer(device, arguments=(256, 128, 4, 2, 1))
    with torch.no_grad():
        layer(torch.randn(1, 256, 4, 4, device=device))
    found, packed = entry_of(layer)
    assert packed.workspace_elements <= found.workspace_elements
    # The rest of the memory has other uses: the products of cuda_gemm_col2im take half of what the weights would.
    assert packed.workspace_elements < layer.weight.numel()


def test_strided_weights_are_packed(device, packings):
    layer = frozen_layer(device)
    layer.weight = nn.Parameter(torch.randn(8, 12, 3, 6, device=device)[:, ::2, :, ::2], requires_grad=False)
    x = torch.randn(2, 8, 5, 6, device=device)
    with torch.no_grad():
        for _ in range(2):
            same(layer(x), reference(layer, x))
    assert int(packings) == 1
    found, packed = entry_of(layer)
    assert found.copy_weight and not packed.copy_weight


# ----------------------------------------------------------------------------------------------- how a call may be made


def test_gradients_are_pytorchs_and_training_goes_on(device, packings):
    layer, theirs = frozen_layer(device).train(), nn.ConvTranspose2d(8, 6, 3, 2, 1, device=device)
    theirs.load_state_dict(layer.state_dict())
    optimizer = torch.optim.SGD([*layer.parameters(), *theirs.parameters()], lr=1e-2)
    x = torch.randn(2, 8, 5, 6, device=device, requires_grad=True)
    for _ in range(3):
        optimizer.zero_grad()
        (layer(x).square().sum() + theirs(x).square().sum()).backward()
        optimizer.step()
        with torch.no_grad():
            same(layer(x), theirs(x))
    torch.testing.assert_close(layer.weight, theirs.weight)
    assert int(packings) == 3  # by the evaluations
    layer.requires_grad_(False)
    y = layer(x)
    assert y.requires_grad and "gradients are wanted" in tt.explain(layer, x).why
    same(torch.autograd.grad(y.sum(), x)[0], torch.autograd.grad(theirs(x).sum(), x)[0])
    assert int(packings) == 3
    layer(x.detach())
    assert "packed once" in tt.explain(layer, x.detach()).why


def test_autocast(device, packings):
    layer = frozen_layer(device)
    x = torch.randn(2, 8, 5, 6, device=device)
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        same(layer(x), reference(layer, x))
        assert "autocast" in tt.explain(layer, x).why
    assert int(packings) == 0 and packings.taken() == 1


def test_compile_export_trace_and_script(device, packings):
    layer = frozen_layer(device)
    x = torch.randn(2, 8, 5, 6, device=device)
    with torch.no_grad():
        made = [
            torch.compile(layer, fullgraph=True, backend="aot_eager"),
            torch.export.export(layer, (x,)).module(),
            torch.jit.trace(layer, x),
            torch.jit.script(layer),
            torch.fx.symbolic_trace(nn.Sequential(layer)),
        ]
        before = int(packings)  # PyTorch may have called the layer itself
        assert tt.conv_transpose2d in {node.target for node in made[-1].graph.nodes}
        for call in made:
            torch.testing.assert_close(call(x), reference(layer, x), rtol=1e-5, atol=1e-5)
        assert int(packings) == before
        layer.weight.mul_(2)
        for call in made[:1] + made[2:]:  # exported programs have parameters of their own
            torch.testing.assert_close(call(x), reference(layer, x), rtol=1e-5, atol=1e-5)


def test_transforms_subclasses_modes_and_fakes(x, packings):
    from torch._subclasses import FakeTensorMode

    layer = frozen_layer()
    with torch.no_grad():
        mapped = torch.func.vmap(layer)(x[None])
        torch.testing.assert_close(mapped[0], reference(layer, x))
        with torch.profiler.profile() as profile:
            layer(x)
        assert "tconv::conv_transpose2d" in {event.key for event in profile.key_averages()}
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert layer(mode.from_tensor(x)).shape == reference(layer, x).shape
        assert int(packings) == 0
        parameters = {name: 2 * p for name, p in layer.named_parameters()}
        same(torch.func.functional_call(layer, parameters, (x,)), F.conv_transpose2d(x, *parameters.values(), 2, 1))
        same(layer(x), reference(layer, x))


def test_mistakes_and_other_dtypes(x):
    layer, theirs = frozen_layer(), nn.ConvTranspose2d(8, 6, 3, 2, 1)

    def outcome(module, argument):
        try:
            with torch.no_grad():
                return module(argument)
        except Exception as error:
            return type(error), str(error)

    for wrong in (x[:, :3], x.double(), x[0, 0], x.numpy()):
        assert isinstance(outcome(theirs, wrong), tuple) and outcome(layer, wrong) == outcome(theirs, wrong)
    layer.to(torch.complex64)
    y = x.to(torch.complex64)
    with torch.no_grad():
        torch.testing.assert_close(layer(y), reference(layer, y))


def test_threads_share_packed_weights(packings):
    layer = frozen_layer()
    inputs = [torch.randn(1, 8, 5, 6 + i) for i in range(4)]
    with torch.no_grad():
        expected = [reference(layer, x) for x in inputs]
    wrong = []

    def work():
        with torch.no_grad():
            for i in list(range(4)) * 25:
                if not torch.allclose(layer(inputs[i]), expected[i], atol=1e-5):
                    wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and 4 <= int(packings) <= 16


def test_number_of_threads_and_reloaded_environment(x, packings):
    layer = frozen_layer()
    before = torch.get_num_threads()
    with torch.no_grad():
        layer(x)
        try:
            torch.set_num_threads(before + 1)
            layer(x)
        finally:
            torch.set_num_threads(before)
        assert int(packings) == 2
        tconv.reload_environment()
        assert not len(layer._tconv_packed._entries)
        same(layer(x), reference(layer, x))
    assert int(packings) == 3


def test_inference_mode(x, packings):
    layer = frozen_layer()
    with torch.inference_mode():
        for _ in range(2):
            torch.testing.assert_close(layer(x), reference(layer, x))
        assert int(packings) == 1
        inference = tt.ConvTranspose2d(8, 6, 3)
        assert "version" in tt.freeze(inference).left[""]
        layer.weight = inference.weight
        torch.testing.assert_close(layer(x), reference(layer, x))
    assert int(packings) == 1


# -------------------------------------------------------------------------------------------------------------- models


def test_freeze_names_what_it_leaves_and_thaw_undoes_it():
    model = nn.Sequential(
        tt.ConvTranspose2d(8, 6, 3),
        nn.ConvTranspose2d(6, 6, 3),
        tt.ConvTranspose3d(6, 6, 3),
        parametrizations.weight_norm(tt.ConvTranspose2d(6, 6, 3)),
        nn.utils.weight_norm(tt.ConvTranspose1d(6, 6, 3)),
        nn.Conv2d(6, 6, 1),
        tt.LazyConvTranspose2d(6, 3),
    )
    answer = tt.freeze(model)
    assert answer.frozen == ["0", "2", "6"] and answer.left.keys() == {"1", "3", "4"}
    assert "replace" in answer.left["1"] and "weight_norm" in answer.left["3"]
    assert "0: frozen" in str(answer) and "4: left, " in str(answer)
    parametrize.remove_parametrizations(model[3], "weight")
    assert tt.freeze(model).frozen == ["0", "2", "3", "6"]
    assert tt.thaw(model) == ["0", "2", "3", "6"] and tt.thaw(model) == []
    assert not any("_tconv_packed" in vars(module) for module in model.modules())


def test_weights_that_fsdp_gathers_are_left():
    distributed = pytest.importorskip("torch.distributed")
    if not (distributed.is_available() and distributed.is_gloo_available()):
        pytest.skip("this PyTorch has no gloo")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        model = nn.Sequential(nn.ConvTranspose2d(8, 6, 3), nn.Sequential(nn.ConvTranspose2d(6, 6, 3)))
        mesh = init_device_mesh("cpu", (1,))
        fully_shard(model[0], mesh=mesh)
        classes = [type(module) for module in model.modules()]
        assert tt.replace(model).swapped == ["0", "1.0"]
        answer = tt.freeze(model)
        assert answer.frozen == ["1.0"] and "FSDP" in answer.left["0"]
        fully_shard(model, mesh=mesh)
        x = torch.randn(2, 8, 5, 6)
        expected = model(x)
        assert tt.freeze(model).left.keys() == {"0", "1.0"}
        tt.restore(model)
        torch.testing.assert_close(model(x), expected)
        assert [type(module) for module in model.modules()][1:] == classes[1:]
    finally:
        distributed.destroy_process_group()


def test_parametrized_after_freeze(x):
    layer = frozen_layer()
    parametrizations.weight_norm(layer)
    with torch.no_grad():
        for _ in range(2):
            same(layer(x), reference(layer, x))
            layer.parametrizations.weight.original0.mul_(2)


def test_thaw_frees_the_memory(x):
    layer = frozen_layer(arguments=(8, 6, 3))
    with torch.no_grad():
        layer(x)
    entries = layer._tconv_packed._entries
    ((_, entry),) = entries._values.items()
    plans = []
    real = entry.packed.plan._destroy
    entry.packed.plan._destroy = lambda handle: (plans.append(handle), real(handle))
    del entry, entries
    tt.thaw(layer)
    gc.collect()
    assert len(plans) == 1


def test_state_dict_copies_and_pickles(x, packings):
    layer = frozen_layer()
    with torch.no_grad():
        expected = layer(x)
        assert layer.state_dict().keys() == {"weight", "bias"}
        assert repr(layer) == repr(nn.ConvTranspose2d(8, 6, 3, 2, 1))
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(file, weights_only=False)]
        for other in copies:
            assert torch.equal(other(x), expected)  # frozen too, with packed weights of its own
            other.weight.zero_()
            same(other(x), reference(other, x))
        shallow = copy.copy(layer)
        assert torch.equal(shallow(x), expected)
        assert torch.equal(layer(x), expected)
    assert int(packings) == 1 + 2 * len(copies)


def test_replace_freeze_restore(x):
    model = nn.Sequential(nn.ConvTranspose2d(8, 6, 3), nn.ReLU(), nn.ConvTranspose2d(6, 4, 2, 2)).eval()
    with torch.no_grad():
        expected = model(x)
        tt.replace(model)
        assert tt.freeze(model).frozen == ["0", "2"]
        for _ in range(2):
            torch.testing.assert_close(model(x), expected)
        tt.restore(model)
        assert tt.thaw(model) == [] and torch.equal(model(x), expected)


# --------------------------------------------------------------------------------------------------------- CUDA alone


@pytest.mark.cuda
def test_device_moves(cuda, packings):
    layer = frozen_layer()
    with torch.no_grad():
        for device in ("cpu", cuda, "cpu"):
            layer.to(device)
            x = torch.randn(2, 8, 5, 6, device=device)
            for _ in range(2):
                same(layer(x), reference(layer, x))
    assert int(packings) == 3


@pytest.mark.cuda
def test_other_streams_wait_for_nothing(cuda, packings):
    layer = frozen_layer(cuda, arguments=(512, 256, 4, 2, 1))
    x = torch.randn(8, 512, 8, 8, device=cuda)
    with torch.no_grad():
        expected = reference(layer, x)
        for _ in range(5):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                result = layer(x)
            torch.cuda.current_stream().wait_stream(stream)
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    assert int(packings) == 1


@pytest.mark.cuda
def test_dropped_while_the_device_computes(cuda):
    layer = frozen_layer(cuda, arguments=(64, 64, 3))
    x = torch.randn(8, 64, 64, 64, device=cuda)
    with torch.no_grad():
        expected = reference(layer, x)
        layer(x)
        torch.cuda.synchronize()
        torch.cuda._sleep(100_000_000)
        result = layer(x)
        tt.thaw(layer)
        other = [torch.full((1 << 20,), float("nan"), device=cuda) for _ in range(8)]
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-3)
    del other


@pytest.mark.cuda
def test_captured_graphs_see_changed_weights(cuda, packings):
    layer = frozen_layer(cuda, arguments=(64, 32, 4, 2, 1))
    x = torch.randn(4, 64, 16, 16, device=cuda)
    with torch.no_grad():
        layer(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = layer(x)
        for _ in range(3):
            x.normal_()
            layer.weight.mul_(1.5)
            graph.replay()
            torch.testing.assert_close(result, reference(layer, x), rtol=1e-3, atol=1e-3)
        tt.thaw(layer)
        graph.replay()
        torch.testing.assert_close(result, reference(layer, x), rtol=1e-3, atol=1e-3)
    assert int(packings) == 1


@pytest.mark.cuda
def test_tf32_has_packed_weights_of_its_own(cuda, packings):
    layer = frozen_layer(cuda, arguments=(64, 64, 3))
    x = torch.randn(2, 64, 32, 32, device=cuda)
    with torch.no_grad():
        strict = layer(x)
        torch._C._set_cudnn_allow_tf32(True)
        rounded = layer(x)
        torch._C._set_cudnn_allow_tf32(False)
        assert torch.equal(layer(x), strict) and not torch.equal(rounded, strict)
    assert int(packings) == 2


def test_no_memory_for_packed_weights(x, monkeypatch):
    """The caller's error on the CPU."""

    def fail(*arguments):
        raise tconv.OutOfMemoryError("TCONV_ERROR_OUT_OF_MEMORY", "", "no memory")

    layer = frozen_layer()
    monkeypatch.setattr(_compute.Plan, "pack", fail)
    with torch.no_grad(), pytest.raises(MemoryError, match="no memory"):
        layer(x)
