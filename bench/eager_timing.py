"""Times of models as they are called from Python, on the GPU or the CPU: what kernelbench/run.py and end_to_end.py
share."""

import itertools
import os
import statistics
import time

# Read by PyTorch when it is imported: cuDNN's choice for a layer is remembered for one layer, so that it is made anew.
os.environ.setdefault("TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT", "1")

import torch

# Runs before those that count: compilation, cuDNN's choice, clocks.
WARM_UP = 3


def displace_cudnn_choice(device):
    """Makes cuDNN forget the choice for the layer that ran last, which it would keep whatever the flags."""
    if device == "cuda":
        torch.nn.functional.conv_transpose2d(
            torch.ones(1, 1, 2, 2, device=device), torch.ones(1, 1, 2, 2, device=device)
        )


def median_ms(run, device, runs):
    """The median time of a run. On the GPU each is timed by events, all in one queue."""
    for _ in range(WARM_UP):
        run()
    if device == "cpu":
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(runs + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events))


def machine_name(device):
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, cuDNN {torch.backends.cudnn.version()}"
    return f"CPU, {torch.get_num_threads()} threads"
