"""What surrounds a call of tconv.torch: the dispatcher, compilation, autocast, transforms, hooks, threads."""

import itertools
import threading

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch_values import ARGUMENTS, OP, B, W, X, as_pairs, outcome, pair_of_modules, same, tensors  # noqa: E402

import tconv  # noqa: E402
import tconv.torch as tt  # noqa: E402
from tconv._plan import forget_plans  # noqa: E402
from tconv.torch import _compute, _functional  # noqa: E402


def test_opcheck(device):
    for arguments, unbatched, channels_last in itertools.product(ARGUMENTS, (False, True), (False, True)):
        inputs = tensors(device, x=(4, 5, 6) if unbatched else (2, 4, 5, 6), groups=arguments.get("groups", 1))
        if channels_last:
            inputs[1] = inputs[1].contiguous(memory_format=torch.channels_last)
        for t in inputs:
            t.requires_grad_()
        torch.library.opcheck(torch.ops.tconv.conv_transpose2d.default, tuple(inputs), as_pairs(arguments))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_graph_breaks(device, dynamic, backend, calls):
    class Model(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x.relu()).sigmoid() + F.silu(tt.conv_transpose2d(x, self.layer.weight, None, 2))

    module, _ = pair_of_modules(device, stride=2)
    model = Model(module)
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=backend)
    for size in (5, 7) if dynamic else (5,):
        x = torch.randn(2, 4, size, 6, device=device, requires_grad=True)
        expected, before = model(x), len(calls)
        result = compiled(x)
        assert len(calls) == before + 2
        torch.testing.assert_close(result, expected)
        ours, theirs = (torch.autograd.grad(y.square().sum(), [x, module.weight]) for y in (result, expected))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_compiled_channels_last_keeps_strides(device):
    module, theirs = pair_of_modules(device)
    x = torch.randn(2, 4, 5, 6, device=device).contiguous(memory_format=torch.channels_last)
    same(torch.compile(module, fullgraph=True, backend="aot_eager")(x), theirs(x))


def test_export(device):
    module, theirs = pair_of_modules(device)
    x = torch.randn(2, 4, 5, 6, device=device)
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: batch},))
    assert any("tconv.conv_transpose2d" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(torch.cat([x, x])), theirs(torch.cat([x, x])))


def test_fake_and_meta_tensors():
    from torch._subclasses import FakeTensorMode

    module, theirs = pair_of_modules("meta")
    x = torch.randn(2, 4, 5, 6, device="meta")
    assert module(x).shape == theirs(x).shape and module(x).is_meta
    assert OP(x, module.weight).shape == (2, 3, 7, 8)
    lying = X.contiguous(memory_format=torch.channels_last)
    with FakeTensorMode() as mode:
        x, weight = mode.from_tensor(lying), mode.from_tensor(W)
        ours, reference = tt.conv_transpose2d(x, weight), F.conv_transpose2d(x, weight)
    assert ours.stride() == reference.stride()
    ours = tt.conv_transpose2d(x, weight)  # fake tensors outside their mode
    assert type(ours) is type(reference)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(device, dtype, calls):
    module, theirs = pair_of_modules(device)
    x = torch.randn(2, 4, 5, 6, device=device)
    with torch.autocast(device, dtype):
        ours, reference = module(x), theirs(x)
        same(ours, reference)
        assert tt.conv_transpose2d(X.double().to(device), W.double().to(device)).dtype == torch.float64
        with torch.autocast(device, enabled=False):
            assert module(x).dtype == torch.float32
    ours.float().sum().backward()
    reference.float().sum().backward()
    assert module.weight.grad.dtype == torch.float32
    torch.testing.assert_close(module.weight.grad, theirs.weight.grad, rtol=0.05, atol=0.5)
    assert len(calls) == 3


def test_autocast_casts_a_weight_once(device):
    """As PyTorch does until the block ends."""
    module, _ = pair_of_modules(device)
    x = torch.randn(2, 4, 5, 6, device=device)
    with torch.autocast(device, torch.bfloat16):
        casts = [module(x).grad_fn.next_functions[1][0] for _ in range(2)]
    assert casts[0] is casts[1] and "ToCopy" in casts[0].name()


def test_autocast_needs_no_dispatcher(device, monkeypatch):
    def through(*arguments):
        raise AssertionError("an eager call went through the dispatcher")

    monkeypatch.setattr(_functional, "_through_the_dispatcher", through)
    x, weight, bias = tensors(device)
    weight.requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        same(tt.conv_transpose2d(x, weight, bias), F.conv_transpose2d(x, weight, bias))
        long = [t.long() for t in (x, weight.detach(), bias)]  # PyTorch's, which does not cast these
        arguments = dict(zip(("input", "weight", "bias"), long, strict=True))
        ours, theirs = outcome(tt.conv_transpose2d, arguments), outcome(F.conv_transpose2d, arguments)
        assert ours == theirs if isinstance(theirs, tuple) else torch.equal(ours, theirs)


def test_deterministic_algorithms_do_not_complain(device):
    module, _ = pair_of_modules(device)
    torch.use_deterministic_algorithms(True)
    try:
        x = torch.randn(2, 4, 5, 6, device=device, requires_grad=True)
        assert torch.equal(module(x), module(x))
        module(x).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_transforms_and_forward_derivatives():
    x, weight, bias = tensors(dtype=torch.float64)
    many = torch.stack([x, 2 * x])
    for f in (tt.conv_transpose2d, F.conv_transpose2d):
        mapped = torch.func.vmap(f, (0, None, None))(many, weight, bias)
        torch.testing.assert_close(mapped[1], F.conv_transpose2d(2 * x, weight, bias))
        gradient = torch.func.grad(lambda w, f=f: f(x, w).square().sum())(weight)
        torch.testing.assert_close(gradient, torch.func.grad(lambda w: F.conv_transpose2d(x, w).square().sum())(weight))
        _, tangent = torch.func.jvp(lambda x, f=f: f(x, weight), (x,), (x,))
        torch.testing.assert_close(tangent, F.conv_transpose2d(x, weight))


def test_checkpoint_and_hooks():
    from torch.utils.checkpoint import checkpoint

    module, theirs = pair_of_modules("cpu")
    seen = []
    module.register_forward_hook(lambda *arguments: seen.append("forward"))
    module.weight.register_hook(lambda grad: seen.append("weight"))
    x = torch.randn(2, 4, 5, 6, requires_grad=True)
    checkpoint(module, x, use_reentrant=False).sum().backward()
    assert seen[0] == "forward" and seen[-1] == "weight"
    theirs(x).sum().backward()
    torch.testing.assert_close(module.weight.grad, theirs.weight.grad)


def test_profiler_names_the_operator():
    with torch.profiler.profile() as profile:
        tt.conv_transpose2d(X, W)
    assert "tconv::conv_transpose2d" in {event.key for event in profile.key_averages()}


def test_tracing_and_scripting():
    module, theirs = pair_of_modules("cpu")
    torch.testing.assert_close(torch.jit.script(module)(X), theirs(X))
    torch.testing.assert_close(torch.jit.trace(module, X)(X), theirs(X))
    graph = torch.fx.symbolic_trace(nn.Sequential(module))
    torch.testing.assert_close(graph(X), theirs(X))
    assert tt.conv_transpose2d in {node.target for node in graph.graph.nodes}


def test_number_of_threads_is_pytorchs(calls):
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            tt.conv_transpose2d(X, W)
    finally:
        torch.set_num_threads(before)
    assert len({id(layer) for layer in calls}) == 2


def test_threads_share_the_cache():
    forget_plans()
    inputs = [torch.randn(1, 4, 5, 6 + i) for i in range(4)]
    expected = [F.conv_transpose2d(x, W) for x in inputs]
    wrong = []

    def work():
        for i in list(range(4)) * 50:
            if not torch.allclose(tt.conv_transpose2d(inputs[i], W), expected[i], atol=1e-5):
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(_compute.layers) == 4


def test_unaligned_memory_is_computed_by_pytorch():
    memory = bytearray(1 + 4 * X.numel())
    x = torch.frombuffer(memory, dtype=torch.float32, offset=1, count=X.numel()).view(X.shape).copy_(X)
    assert x.data_ptr() % 4
    torch.testing.assert_close(tt.conv_transpose2d(x, W, B), F.conv_transpose2d(X, W, B))
    torch.testing.assert_close(tt.conv_transpose2d(x[0], W, B), F.conv_transpose2d(X[0], W, B))


def test_refused_by_tconv_is_computed_by_pytorch(monkeypatch):
    def refuse(*arguments):
        raise tconv.UnavailableError("TCONV_ERROR_UNAVAILABLE", "backend", "not here")

    forget_plans()
    monkeypatch.setattr(_compute, "Plan", refuse)
    same(tt.conv_transpose2d(X, W, B), F.conv_transpose2d(X, W, B))
    forget_plans()
