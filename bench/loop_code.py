"""The inner loops of the CPU's microkernels, as a compiler made them: found in an object by objdump.

A loop of cpu_phases is named <channels>x<vectors>, one of cpu_pixels dense_<vectors>x<pixels>: the product is the
multiply-adds of one term.
"""

import dataclasses
import math
import os
import pathlib
import re
import subprocess

MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF

# Loops that are shown, by the bits of their registers.
LOOPS = {
    512: ["12x2", "11x2", "10x2", "8x3", "6x4", "4x6", "3x8", "12x1", "8x1", "dense_2x12", "dense_2x8", "dense_1x12"],
    256: ["6x2", "4x3", "3x4", "dense_2x6"],
    128: ["8x2", "4x4", "2x8", "dense_2x8"],
}

FMA = re.compile(r"^(vfn?m(add|sub)\d{3}p[sd]|fml[as])\s")
# Moves between vector registers; vectors on the stack.
MOVE = re.compile(r"^(vmovd?q?[au]\w*\s+%[xyz]mm\d+,\s*%|mov\s+v\d+\.16b)")
STACK = re.compile(r"^(vmov[au]p[sd]\s.*\(%r[sb]p|(ldr|str|ldp|stp)\s+q\d+,.*\[sp)")
REGISTERS = {"%zmm": 512, "%ymm": 256, "%xmm": 128}
# Compares that x86 fuses with the conditional jump behind them.
FUSES = re.compile(r"^(cmp|test|add|sub|and|inc|dec)[bwlq]?\s")
# A jump and the address it goes to; the last operand, behind a register that is compared on AArch64.
JUMP = re.compile(r"^(?:j[a-z]+|b|b\.[a-z]+|cbn?z|tbn?z)\s+(?:.*,\s*)?([0-9a-f]+)$")


class Failure(Exception):
    """What a user is told without a traceback."""


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop of a function: its instructions in order, the last of them the jump to the first."""

    name: str
    label: str  # of the builds that have it
    machine: str
    instructions: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.name} of {self.bits} bits"

    @property
    def fmas(self) -> int:
        return self.count(FMA)

    @property
    def terms(self) -> int:
        """By how many terms it is unrolled."""
        tile = math.prod(int(number) for number in re.findall(r"\d+", self.name))
        if self.fmas % tile:
            raise Failure(f"{self.title} in {self.label}: {self.fmas} multiply-adds are no whole terms of {tile}")
        return self.fmas // tile

    @property
    def bits(self) -> int:
        """Of the registers that are multiplied."""
        text = next(text for text in self.instructions if FMA.match(text))
        return next((bits for name, bits in REGISTERS.items() if name in text), 128)

    @property
    def slots(self) -> int:
        """What the front end hands on: instructions, each with its load, and on x86 a compare with its jump, as one."""
        pairs = zip(self.instructions, self.instructions[1:], strict=False)
        fused = sum(bool(FUSES.match(text) and JUMP.match(jump)) for text, jump in pairs)
        return len(self.instructions) - (fused if self.machine == "x86_64" else 0)

    def count(self, kind: re.Pattern[str]) -> int:
        return sum(bool(kind.match(text)) for text in self.instructions)

    def text(self) -> str:
        """For llvm-mca; where a jump leads is nothing to it."""
        lines = (re.sub(r"[0-9a-f]+$", "0f", text) if JUMP.match(text) else text for text in self.instructions)
        return "\n".join([*lines, "0:", ""])


def run(command: list[str], text: str = "") -> str:
    """What a program prints."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True)
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        raise Failure(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def machine_of(path: pathlib.Path) -> str:
    """What an object's code is for."""
    head = path.read_bytes()[:20]
    machine = MACHINES.get(int.from_bytes(head[18:20], "little"))
    if not head.startswith(b"\x7fELF") or machine is None:
        raise Failure(f"{path} is no object of x86-64 or AArch64")
    return machine


def compiler_of(path: pathlib.Path) -> str:
    """What an object's comment section says that it was compiled by."""
    match = re.search(rb"(GCC: \([^)]*\)|clang version) ([\d.]+)", path.read_bytes())
    return f"{match[1][:5].decode().lower().rstrip(': ')} {match[2].decode()}" if match else "an unnamed compiler"


def instructions(listing: str) -> list[tuple[int, str]]:
    """Addresses and instructions of what objdump printed of a function."""
    found = re.findall(r"^\s+([0-9a-f]+):\s+(\S.*)$", listing, re.MULTILINE)
    return [(int(address, 16), re.sub(r"\s*(<.*>|//.*|#\s.*)", "", text).strip()) for address, text in found]


def disassemble(path: pathlib.Path, machine: str, function: str) -> list[tuple[int, str]]:
    """Addresses and instructions of a function; none if the object does not have it."""
    program = "objdump" if os.uname().machine == machine else f"{machine}-linux-gnu-objdump"
    return instructions(run([program, "-d", "--no-show-raw-insn", f"--disassemble={function}", str(path)]))


def innermost_loop(code: list[tuple[int, str]]) -> tuple[str, ...]:
    """From the target of a jump back to the jump, without another such loop inside; of those the one with the most
    multiply-adds: an unrolled loop, not the one for the terms that are left, and not the one over segments."""
    index = {address: at for at, (address, _) in enumerate(code)}
    spans = []
    for at, (_, text) in enumerate(code):
        match = JUMP.match(text)
        begin = index.get(int(match[1], 16)) if match else None
        if begin is not None and begin <= at:
            spans.append((begin, at))
    inner = [a for a in spans if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in spans)]
    bodies = [tuple(text for _, text in code[begin : end + 1]) for begin, end in inner]
    return max(bodies, key=lambda body: sum(bool(FMA.match(text)) for text in body), default=())


def loops_of(label: str, path: pathlib.Path, names: list[str] | None) -> list[Loop]:
    """The loops of an object that have one of these names, or are those of LOOPS."""
    machine = machine_of(path)
    wanted = names or list(dict.fromkeys(name for of_bits in LOOPS.values() for name in of_bits))
    loops = []
    for name in wanted:
        function = f"{name}_float" if name.startswith("dense_") else f"microkernel_{name}_float"
        loop = Loop(name, label, machine, innermost_loop(disassemble(path, machine, function)))
        if loop.fmas and (names or name in LOOPS[loop.bits]):
            loops.append(loop)
    return loops


def merged(loops: list[Loop]) -> list[Loop]:
    """Loops of one title one after another, and those that are alike in several builds as one."""
    by_title: dict[str, dict[str, list[Loop]]] = {}
    for loop in loops:
        by_title.setdefault(loop.title, {}).setdefault(loop.text(), []).append(loop)
    alike = [like for by_text in by_title.values() for like in by_text.values()]
    return [dataclasses.replace(like[0], label=", ".join(loop.label for loop in like)) for like in alike]
