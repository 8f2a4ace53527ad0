"""How the machine of compare_gpu.py is timed, and what it reaches: the copy and matrix products that floors are made of.

A GPU runs everything as CUDA graphs, so that neither side pays for its calls from Python and both pay the same for a launch.
CpuMachine has the same calls: it runs one call after another.
"""

import math
import statistics
import time

import torch

# Of the bytes of the caches, so many are read and written before a buffer comes round again.
CACHE_MULTIPLE = 4
MOST_SETS = 64
# A graph holds at least so much work, or the resolution of events (half a microsecond) would show.
GRAPH_MS = 0.5
MOST_RUNS = 256
# A burst: replays that wake the clocks, then those that are timed.
WAKE_MS, BURST_MS, MOST_REPLAYS = 3.0, 6.0, 20
# The GPU waits so long before a burst's first replay, while the others are queued behind it.
QUEUE_CYCLES = 400_000
SUSTAINED_REPLAYS = 25
COPY_BYTES, COPIES = 2**32, 30
GEMM_SIZE = 8192
CPU_COPY_BYTES, CPU_GEMM_SIZE = 2**28, 2048


def clamp(value, least, most):
    return max(least, min(most, math.ceil(value)))


def sets_for(size, cache_bytes):
    """How many sets of buffers of `size` bytes make the caches forget one before it is used again."""
    return clamp(CACHE_MULTIPLE * cache_bytes / size + 1, 1, MOST_SETS) if size < CACHE_MULTIPLE * cache_bytes else 1


class Replay:
    """Several runs in one CUDA graph."""

    def __init__(self, graph, runs, stream, estimate_ms):
        self.graph, self.runs, self.stream, self.estimate_ms = graph, runs, stream, estimate_ms

    def launch(self):
        self.graph.replay()

    def burst(self):
        """Milliseconds of a run, for each of several replays, the GPU's clocks awake."""
        wake = clamp(WAKE_MS / self.estimate_ms, 1, MOST_REPLAYS)
        return self._timed(wake, clamp(BURST_MS / self.estimate_ms, 2, MOST_REPLAYS))

    def sustained(self, seconds):
        """The same after so many seconds back to back."""
        chunk = clamp(20 / self.estimate_ms, 1, 1000)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(chunk):
                self.launch()
            self.stream.synchronize()
        return self._timed(1, SUSTAINED_REPLAYS)

    def _timed(self, before, count):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        torch.cuda._sleep(QUEUE_CYCLES)
        for _ in range(before):
            self.launch()
        for event in events[:-1]:
            event.record(self.stream)
            self.launch()
        events[-1].record(self.stream)
        self.stream.synchronize()
        return [a.elapsed_time(b) / self.runs for a, b in zip(events, events[1:])]


class GpuMachine:
    device = "cuda"

    def __init__(self):
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        properties = torch.cuda.get_device_properties(0)
        self.name, self.cache_bytes = properties.name, properties.L2_cache_size

    @property
    def stream_handle(self):
        return self.stream.cuda_stream

    def synchronize(self):
        torch.cuda.synchronize()

    def forget(self):
        torch.cuda.empty_cache()

    def capture(self, run, sets):
        """run(i) works on the i-th of `sets` sets of buffers."""
        run(0)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record(self.stream)
        run(0)
        events[1].record(self.stream)
        self.stream.synchronize()
        run_ms = max(events[0].elapsed_time(events[1]), 1e-3)
        runs = clamp(max(sets, GRAPH_MS / run_ms), 1, MOST_RUNS)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            for i in range(runs):
                run(i % sets)
        replay = Replay(graph, runs, self.stream, runs * run_ms)
        replay.launch()
        replay.estimate_ms = max(1e-3, runs * replay._timed(1, 1)[0])
        return replay

    def copy_rate(self):
        """Bytes read and written in a second by the median of several large copies. No graph: a copy there is left to the
        copy engines, which take half as long again."""
        a = torch.zeros(COPY_BYTES // 4, device=self.device)
        b = torch.empty_like(a)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(COPIES)]
        b.copy_(a)
        for event in events:
            event.record(self.stream)
            b.copy_(a)
        self.stream.synchronize()
        return 2e3 * COPY_BYTES / statistics.median(x.elapsed_time(y) for x, y in zip(events, events[1:]))

    def gemm_rates(self, dtype, allow_tf32, idle, seconds):
        """FLOP in a second of a matrix product: burst, sustained."""
        torch.backends.cuda.matmul.allow_tf32 = allow_tf32
        a, b = (torch.rand(GEMM_SIZE, GEMM_SIZE, device=self.device).sub_(0.5).to(dtype) for _ in range(2))
        c = torch.empty_like(a)
        replay = self.capture(lambda _: torch.mm(a, b, out=c), 1)
        time.sleep(idle)
        burst = statistics.median(replay.burst())
        return tuple(2e3 * GEMM_SIZE**3 / ms for ms in (burst, statistics.median(replay.sustained(seconds))))


class LoopReplay:
    """Runs one after another on the CPU, one for each set of buffers."""

    def __init__(self, run, sets):
        self.run, self.runs = run, sets
        self.launch()
        self.estimate_ms = max(1e-3, sets * self._timed(1)[0])

    def launch(self):
        for i in range(self.runs):
            self.run(i)

    def burst(self):
        return self._timed(clamp(BURST_MS / self.estimate_ms, 2, MOST_REPLAYS))

    def sustained(self, seconds):
        return self._timed(clamp(1e3 * seconds / self.estimate_ms, 2, SUSTAINED_REPLAYS))

    def _timed(self, count):
        times = []
        for _ in range(count):
            start = time.perf_counter()
            self.launch()
            times.append(1e3 * (time.perf_counter() - start) / self.runs)
        return times


class CpuMachine:
    device, stream_handle, name = "cpu", None, "CPU"
    cache_bytes = 2**25  # what is read again at once would lie in the cores' own caches

    def synchronize(self):
        pass

    def forget(self):
        pass

    def capture(self, run, sets):
        return LoopReplay(run, sets)

    def copy_rate(self):
        a = torch.zeros(CPU_COPY_BYTES // 4)
        b = torch.empty_like(a)
        times = LoopReplay(lambda _: b.copy_(a), 1).sustained(1)
        return 2e3 * CPU_COPY_BYTES / statistics.median(times)

    def gemm_rates(self, dtype, allow_tf32, idle, seconds):
        a, b = (torch.rand(CPU_GEMM_SIZE, CPU_GEMM_SIZE).sub_(0.5).to(dtype) for _ in range(2))
        c = torch.empty_like(a)
        replay = LoopReplay(lambda _: torch.mm(a, b, out=c), 1)
        return tuple(2e3 * CPU_GEMM_SIZE**3 / min(times) for times in (replay.burst(), replay.sustained(seconds)))
