"""What llvm-mca says of a loop on a processor, and where its model of the processor has to be helped."""

import collections
import dataclasses
import json
import re
import subprocess
import typing

from loop_code import REGISTERS, Failure, Loop, run

PROBE = 16  # instructions of a loop that asks which ports a kind of instruction takes
BUSY = 0.02  # of the cycles: a port with less is not what the probed instruction is for
BINDS = 1.03  # cycles over a resource's own, up to which it is what binds
BROADCAST = re.compile(r"^vbroadcasts[sd]\s+[^,]*\(")

WHY_SKYLAKE = """The model gives loads of 64 bytes and moves between registers an operation on ports that multiply and
add, which the processor does not: the loop is taken as one of 32 bytes. Cascade Lake has the same model."""
WHY_ICELAKE = """The model has one port for multiply-adds of 64 bytes, as notebooks do, and servers have two: the loop
is taken as one of 32 bytes."""
WHY_SAPPHIRE = """The model has one port for multiply-adds of 64 bytes, and the processor two: the loop is taken as one
of 32 bytes. The model loads three vectors of any size in a cycle, the processor two of 64 bytes: for loops of one
vector see icelake-server. Where a weight is a multiply-add's operand in memory, the model has the sum wait 6 cycles
for the one before and not 4, which is what 8x1 waits for. Emerald Rapids has the same model."""
WHY_ZEN4 = """The model takes a broadcast from memory to 64 bytes for three operations on one port of the multiply-adds,
and one to 32 bytes for one on that port or another: broadcasts are taken as the latter. Which of both ports one gets is
by turns, so that *simulated* depends on the order of the instructions by chance. The model loads two vectors of 64
bytes in a cycle, the processor one."""


def narrow_broadcasts(loop: Loop) -> Loop:
    """Broadcasts from memory to 64-byte vectors as those to 32 bytes."""
    texts = (text.replace("%zmm", "%ymm") if BROADCAST.match(text) else text for text in loop.instructions)
    return dataclasses.replace(loop, instructions=tuple(texts))


def narrow_all(loop: Loop) -> Loop:
    """Vectors of 64 bytes as those of 32, which have two ports for multiply-adds."""
    texts = (text.replace("%zmm", "%ymm").replace("{1to16}", "{1to8}") for text in loop.instructions)
    return dataclasses.replace(loop, instructions=tuple(texts))


def as_it_is(loop: Loop) -> Loop:
    return loop


@dataclasses.dataclass(frozen=True)
class Processor:
    """Published rates in a cycle: multiply-adds by the bits of a vector, what the front end hands on (Loop.slots)."""

    name: str
    model: str  # how the resources of its own model in llvm-mca begin
    machine: str
    fmas: dict[int, int]
    width: int
    edit: typing.Callable[[Loop], Loop] = as_it_is  # a loop as the model is right about it
    why: str = ""


PROCESSORS = [
    Processor("skylake-avx512", "SKX", "x86_64", {512: 2, 256: 2}, 4, narrow_all, WHY_SKYLAKE),
    Processor("icelake-server", "ICX", "x86_64", {512: 2, 256: 2}, 5, narrow_all, WHY_ICELAKE),
    Processor("sapphirerapids", "SPR", "x86_64", {512: 2, 256: 2}, 6, narrow_all, WHY_SAPPHIRE),
    Processor("znver3", "Zn3", "x86_64", {256: 2}, 6),
    Processor("znver4", "Zn4", "x86_64", {512: 1, 256: 2}, 6, narrow_broadcasts, WHY_ZEN4),
    Processor("znver5", "Zn5", "x86_64", {512: 2, 256: 2}, 8),
    Processor("neoverse-v1", "V1", "aarch64", {128: 4}, 8),
]


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Cycles of an iteration: all of it, the same if operations shared their ports evenly (Block RThroughput), what
    they take at the dispatch, and how long each resource is busy."""

    cycles: float
    even: float
    dispatch: float
    pressure: dict[str, float]

    def busy(self) -> set[str]:
        return {name for name, cycles in self.pressure.items() if cycles > BUSY * self.cycles}


class Mca:
    """A program llvm-mca, what it simulates, and what its models are like."""

    def __init__(self, program: str, iterations: int) -> None:
        self.program, self.iterations = program, iterations
        version = re.search(r"LLVM version (\S+)", run([program, "--version"]))
        self.version = version[1] if version else "of unknown version"
        self.ports: dict[tuple[str, int], dict[str, str]] = {}

    def simulate(self, processor: Processor, loop: Loop) -> Simulation:
        command = [self.program, f"-mtriple={processor.machine}", f"-mcpu={processor.name}"]
        parsed = json.loads(run([*command, f"-iterations={self.iterations}", "-json"], loop.text()))
        region, names = parsed["CodeRegions"][0], parsed["TargetInfo"]["Resources"]
        summary, count = region["SummaryView"], len(region["Instructions"])
        pressure: dict[str, float] = collections.defaultdict(float)
        for use in region["ResourcePressureView"]["ResourcePressureInfo"]:
            if use["InstructionIndex"] == count:  # the line of the sums
                name = names[use["ResourceIndex"]]  # units of one resource have one name
                pressure[name] = max(pressure[name], use["ResourceUsage"])
        cycles = summary["TotalCycles"] / summary["Iterations"]
        dispatch = summary["TotaluOps"] / summary["Iterations"] / summary["DispatchWidth"]
        return Simulation(cycles, summary["BlockRThroughput"], dispatch, dict(pressure))

    def missing(self, processor: Processor) -> str | None:
        """Why llvm-mca says nothing of a processor, or None."""
        command = [self.program, f"-mtriple={processor.machine}", f"-mcpu={processor.name}", "-json"]
        done = subprocess.run(command, input="nop\n", capture_output=True, text=True)
        if "not a recognized processor" in done.stderr:
            return "not known"
        if done.returncode:
            return done.stderr.strip().removeprefix("error: ")
        model = next(iter(json.loads(done.stdout)["TargetInfo"]["Resources"]), "")
        return None if model.startswith(processor.model) else f"known by another processor's model ({model} and so on)"

    def ports_of(self, processor: Processor, bits: int) -> dict[str, str]:
        """What the ports of multiply-adds and of loads are for, by loops of nothing else."""
        key = processor.name, bits
        if key not in self.ports:
            probes = (processor.edit(probe(processor, bits, load)) for load in (False, True))
            fma, load = (self.simulate(processor, loop).busy() for loop in probes)
            self.ports[key] = {**dict.fromkeys(load, "load ports"), **dict.fromkeys(fma, "FMA ports")}
        return self.ports[key]


def probe(processor: Processor, bits: int, load: bool) -> Loop:
    """Loads, or multiply-adds, that do not wait for each other."""
    if processor.machine == "aarch64":
        text = "ldr q{}, [x0]" if load else "fmla v{}.4s, v30.4s, v31.s[0]"
    else:
        name = next(name for name, size in REGISTERS.items() if size == bits)
        text = f"vmovups (%rdi), {name}{{}}" if load else f"vfmadd231ps {name}15, {name}14, {name}{{}}"
    return Loop("probe", "", processor.machine, tuple(text.format(at % (PROBE - 2)) for at in range(PROBE)))


def known(names: list[str]) -> list[Processor]:
    """The processors with these names."""
    by_name = {processor.name: processor for processor in PROCESSORS}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise Failure(f"no rates of {', '.join(unknown)}; there are {', '.join(by_name)}")
    return [by_name[name] for name in names]


@dataclasses.dataclass(frozen=True)
class Bound:
    """What is said of a loop on a processor, in cycles of one iteration."""

    loop: Loop
    processor: Processor
    fma: float
    front: float
    even: float
    simulated: float
    binds: str

    @property
    def share(self) -> float:
        """Of the peak of multiply-adds, as simulated."""
        return self.fma / max(self.fma, self.front, self.simulated)

    @property
    def even_share(self) -> float:
        """The same, if operations share their ports evenly and wait for nothing."""
        return self.fma / max(self.fma, self.front, self.even)


def bound(mca: Mca, loop: Loop, processor: Processor) -> Bound:
    """The figures of a loop on a processor that has its instructions."""
    simulation = mca.simulate(processor, processor.edit(loop))
    fma, front = loop.fmas / processor.fmas[loop.bits], loop.slots / processor.width
    binds = what_binds(simulation, front, mca.ports_of(processor, loop.bits))
    return Bound(loop, processor, fma, front, simulation.even, simulation.cycles, binds)


def what_binds(simulation: Simulation, front: float, ports: dict[str, str]) -> str:
    """The resource that is busy for as long as the iteration takes."""
    if front > simulation.cycles:
        return f"front end {front:.1f}"
    name, busy = max(simulation.pressure.items(), key=lambda item: item[1])
    busiest = max([(busy, ports.get(name, name)), (simulation.dispatch, "dispatch")])
    text = f"{busiest[1]} {busiest[0]:.1f}"
    return f"waiting ({text})" if simulation.cycles > busiest[0] * BINDS else text
