"""DistributedDataParallel: the gradients of several processes are those of one with the whole batch. gloo on the CPU;
NCCL where there are two GPUs."""

import os
import socket
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch import nn  # noqa: E402

import tconv.torch as tt  # noqa: E402

PROCESSES = 2
BATCH = 4  # of a process
STEPS = 3


def make_model(device):
    torch.manual_seed(0)
    planes = nn.Sequential(nn.ConvTranspose2d(4, 6, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(6, 3, 3, groups=3))
    volumes = nn.Sequential(nn.Unflatten(1, (3, 1)), nn.ConvTranspose3d(3, 4, (2, 1, 3)))
    planes.to(memory_format=torch.channels_last), volumes.to(memory_format=torch.channels_last_3d)
    model = nn.Sequential(planes, volumes)
    tt.replace(model)
    return model.to(device)


def batch():
    return torch.randn(PROCESSES * BATCH, 4, 5, 6, generator=torch.Generator().manual_seed(1))


def train(model, x):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return [t.detach().cpu() for p in model.parameters() for t in (p, p.grad)]


def process(rank, backend, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    warnings.simplefilter("error", UserWarning)  # strides of a gradient that are not its parameter's, for one
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
        torch.backends.cudnn.allow_tf32 = False
    dist.init_process_group(backend, rank=rank, world_size=PROCESSES, device_id=device if backend == "nccl" else None)
    model = nn.parallel.DistributedDataParallel(make_model(device), device_ids=[rank] if backend == "nccl" else None)
    mine = batch()[rank * BATCH : (rank + 1) * BATCH].to(device)
    results.put((rank, [t.numpy() for t in train(model, mine)]))
    results.close()
    results.join_thread()
    del model  # it holds the group
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # threads of gloo's or of its store may outlive their owner, and then the interpreter's end is SIGABRT


@pytest.mark.parametrize("backend", ["gloo", pytest.param("nccl", marks=pytest.mark.cuda)])
def test_gradients_are_those_of_one_process(backend):
    if backend == "nccl" and torch.cuda.device_count() < PROCESSES:
        pytest.skip("this needs two GPUs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = mp.get_context("spawn")
    results = context.Queue()
    running = [
        context.Process(target=process, args=(rank, backend, port, results), daemon=True) for rank in range(PROCESSES)
    ]
    for one in running:
        one.start()
    answers = dict(results.get(timeout=120) for _ in running)
    for one in running:
        one.join(60)
        assert one.exitcode == 0
    device = "cuda" if backend == "nccl" else "cpu"
    expected = train(make_model(device), batch().to(device))
    for rank in range(PROCESSES):
        for got, one in zip(answers[rank], expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(got), one, rtol=1e-4, atol=1e-6)
