#!/usr/bin/env python3
"""Makes the table of kernels that the stand-in reads, from the library's objects.

    kernels.py [--capability 90] --output TABLE OBJECT...

A line for each kernel: its mangled name, a digest of its machine code, registers of a thread, threads of a block,
static shared memory, blocks of its cluster (0: none), and the size of each parameter. The digest is of the
instructions and of what the kernel takes, not of names: a kernel that was renamed keeps it. Of several architectures
the last that runs on the compute capability counts. Entries of a fat binary that are compressed are unpacked by the
programs zstd or lz4; where there is none, the table has none of their kernels.

The formats are those that nvcc 13 writes: fat binary (as read in registry.c), ELF, and attributes (EIATTR) in the
sections .nv.info, each a byte of format, a byte of attribute, and a value.
"""

import argparse
import hashlib
import pathlib
import shutil
import struct
import subprocess
import sys

FAT_MAGIC = 0xBA55ED50
MACHINE_CODE = 2  # kind of an entry
LZ4, ZSTD = 1 << 13, 1 << 15  # flags of an entry

SIZED_VALUE = 4  # a format: two bytes of size, then so many bytes; all others have two bytes of value
MAX_THREADS, REQUIRED_THREADS, REGISTERS, CLUSTER = 0x05, 0x10, 0x2F, 0x3D
PARAMETER, LONG_PARAMETER, ALL_PARAMETERS = 0x17, 0x45, 0x19
PARAMETER_SIZE_SHIFT = 18  # of the last word of PARAMETER; that of LONG_PARAMETER is the size
MOST_THREADS = 1024
SYSTEM_SHARED = 1024  # bytes of a kernel's shared memory that are the system's and count towards no limit


class Elf:
    """The sections of an ELF file of 64 bits."""

    def __init__(self, data):
        self.data = data
        (offset,) = struct.unpack_from("<Q", data, 0x28)
        size, count, names = struct.unpack_from("<HHH", data, 0x3A)
        self.headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
        text = self.content(self.headers[names])
        self.sections = {}
        for header in self.headers:
            name = text[header[0] : text.index(b"\0", header[0])].decode()
            self.sections[name] = header

    def content(self, header):
        return b"" if header[1] == 8 else self.data[header[4] : header[4] + header[5]]  # 8: takes no room in the file

    def section(self, name):
        header = self.sections.get(name)
        return self.content(header) if header else b""

    def symbols(self):
        """Names by index."""
        names, table = self.section(".strtab"), self.section(".symtab")
        starts = [struct.unpack_from("<I", table, at)[0] for at in range(0, len(table), 24)]
        return [names[start : names.index(b"\0", start)].decode() for start in starts]


def unpack(data, size, program):
    """The bytes that program makes of compressed ones; None where it is not installed."""
    path = shutil.which(program)
    if path is None:
        return None
    result = subprocess.run([path, "-d", "-c", "-q"], input=data, capture_output=True, check=False)
    return result.stdout if len(result.stdout) == size else None


def lz4_block(data, size):
    """Unpacks a block of LZ4, which has no frame that the program lz4 knows."""
    out, at = bytearray(), 0
    while at < len(data) and len(out) < size:
        token = data[at]
        at += 1
        literals, match = token >> 4, token & 15
        if literals == 15:
            while True:
                literals += data[at]
                at += 1
                if data[at - 1] != 255:
                    break
        out += data[at : at + literals]
        at += literals
        if at >= len(data) or len(out) >= size:
            break
        (distance,) = struct.unpack_from("<H", data, at)
        at += 2
        if match == 15:
            while True:
                match += data[at]
                at += 1
                if data[at - 1] != 255:
                    break
        for _ in range(match + 4):
            out.append(out[-distance])
    return bytes(out[:size])


def cubins(fat, capability):
    """The machine code of the entries that run on a compute capability, the last architecture last."""
    found, at = [], 0
    while at + 16 <= len(fat) and struct.unpack_from("<I", fat, at)[0] == FAT_MAGIC:
        header, size = struct.unpack_from("<HQ", fat, at + 6)
        entry, end = at + header, at + header + size
        while entry < end:
            kind, head, room = struct.unpack_from("<HxxIQ", fat, entry)
            packed, architecture = struct.unpack_from("<I8xI", fat, entry + 16)
            (flags,) = struct.unpack_from("<Q", fat, entry + 40)
            (whole,) = struct.unpack_from("<Q", fat, entry + 56)
            body = fat[entry + head : entry + head + room]
            if kind == MACHINE_CODE and architecture // 10 == capability // 10 and architecture <= capability:
                if flags & ZSTD:
                    body = unpack(body[:packed], whole, "zstd")
                elif flags & LZ4:
                    body = lz4_block(body[:packed], whole)
                if body is not None:
                    found.append((architecture, body))
            entry += head + room
        at = (end + 7) // 8 * 8
    return [body for _, body in sorted(found, key=lambda one: one[0])]


def attributes(info):
    """Pairs of attribute and value."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, value = struct.unpack_from("<BBH", info, at)
        if form == SIZED_VALUE:
            yield attribute, info[at + 4 : at + 4 + value]
            at += 4 + value
        else:
            yield attribute, struct.pack("<H", value)
            at += 4


def kernels(cubin):
    """Name and figures of each kernel."""
    elf = Elf(cubin)
    symbols = elf.symbols()
    registers = {}
    for attribute, value in attributes(elf.section(".nv.info")):
        if attribute == REGISTERS:
            symbol, count = struct.unpack("<II", value)
            registers[symbols[symbol]] = count
    for section in elf.sections:
        if not section.startswith(".text."):
            continue
        name = section[len(".text.") :]
        sizes, threads, cluster, end, whole = {}, MOST_THREADS, 0, 0, 0
        for attribute, value in attributes(elf.section(".nv.info." + name)):
            if attribute in (PARAMETER, LONG_PARAMETER):
                _, ordinal, offset, word = struct.unpack("<IHHI", value)
                sizes[ordinal] = word >> PARAMETER_SIZE_SHIFT if attribute == PARAMETER else word
                end = max(end, offset + sizes[ordinal])
            elif attribute == ALL_PARAMETERS:
                (whole,) = struct.unpack("<H", value)
            elif attribute in (MAX_THREADS, REQUIRED_THREADS):
                x, y, z = struct.unpack("<III", value[:12])
                threads = min(threads, x * y * z)
            elif attribute == CLUSTER:
                x, y, z = struct.unpack("<III", value[:12])
                cluster = x * y * z
        if end != whole:
            sys.exit(f"{name}: parameters of {whole} bytes, of which {end} are described")
        shared = elf.sections.get(".nv.shared." + name)
        figures = [registers[name], threads, max(0, shared[5] - SYSTEM_SHARED) if shared else 0, cluster]
        figures += [sizes[ordinal] for ordinal in sorted(sizes)]
        digest = hashlib.sha256(elf.section(section) + repr(figures).encode()).hexdigest()[:16]
        yield name, digest, figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capability", type=int, default=90)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("objects", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    lines = {}
    for path in arguments.objects:
        data = path.read_bytes()
        if data[:4] != b"\x7fELF":
            sys.exit(f"{path}: is no ELF object")
        for cubin in cubins(Elf(data).section(".nv_fatbin"), arguments.capability):
            for name, digest, figures in kernels(cubin):
                lines[name] = f"{name} {digest} {' '.join(map(str, figures))}\n"
    title = "# name code registers threads shared cluster parameters...\n"
    arguments.output.write_text(title + "".join(sorted(lines.values())))
    print(f"{len(lines)} kernels")


if __name__ == "__main__":
    main()
