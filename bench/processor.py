"""What processor this is: a short name for files, and what a report says of it.

A processor is a dict: slug, microarchitecture, vendor, family, model, stepping, name, isa, flags, l1d_bytes, l2_bytes,
l3_bytes, cpus (those that this process may use) and threads_per_core. What could not be found is None; machines in a
cloud often hide the name, so that family and model tell more.
"""

import os
import pathlib
import subprocess

EVERY = range(256)
# Vendor, family, models, steppings, and the names of the first row that fits.
X86 = [
    ("GenuineIntel", 6, {60, 63, 69, 70}, EVERY, "haswell", "Haswell"),
    ("GenuineIntel", 6, {61, 71, 79, 86}, EVERY, "broadwell", "Broadwell"),
    ("GenuineIntel", 6, {78, 94, 142, 158, 165, 166}, EVERY, "skylake", "Skylake"),
    ("GenuineIntel", 6, {85}, range(5), "skylake-avx512", "Skylake with AVX-512"),
    ("GenuineIntel", 6, {85}, range(5, 8), "cascade-lake", "Cascade Lake"),
    ("GenuineIntel", 6, {85}, range(8, 16), "cooper-lake", "Cooper Lake"),
    ("GenuineIntel", 6, {106, 108}, EVERY, "ice-lake-server", "Ice Lake server"),
    ("GenuineIntel", 6, {125, 126}, EVERY, "ice-lake", "Ice Lake"),
    ("GenuineIntel", 6, {140, 141}, EVERY, "tiger-lake", "Tiger Lake"),
    ("GenuineIntel", 6, {151, 154}, EVERY, "alder-lake", "Alder Lake"),
    ("GenuineIntel", 6, {183, 186, 191}, EVERY, "raptor-lake", "Raptor Lake"),
    ("GenuineIntel", 6, {143}, EVERY, "sapphire-rapids", "Sapphire Rapids"),
    ("GenuineIntel", 6, {207}, EVERY, "emerald-rapids", "Emerald Rapids"),
    ("GenuineIntel", 6, {173, 174}, EVERY, "granite-rapids", "Granite Rapids"),
    ("GenuineIntel", 6, {175}, EVERY, "sierra-forest", "Sierra Forest"),
    ("AuthenticAMD", 23, {*range(0x30), *range(0x50, 0x60)}, EVERY, "zen", "Zen"),
    ("AuthenticAMD", 23, EVERY, EVERY, "zen2", "Zen 2"),
    ("AuthenticAMD", 25, {*range(0x10, 0x20), *range(0x60, 0xB0)}, EVERY, "zen4", "Zen 4"),
    ("AuthenticAMD", 25, {*range(0x10), *range(0x20, 0x60)}, EVERY, "zen3", "Zen 3"),
    ("AuthenticAMD", 26, {*range(0x30), *range(0x40, 0x50), *range(0x60, 0x80)}, EVERY, "zen5", "Zen 5"),
]
# Implementer and part.
AARCH64 = {
    ("0x41", "0xd08"): ("cortex-a72", "Cortex-A72"),
    ("0x41", "0xd0c"): ("neoverse-n1", "Neoverse N1"),
    ("0x41", "0xd40"): ("neoverse-v1", "Neoverse V1"),
    ("0x41", "0xd49"): ("neoverse-n2", "Neoverse N2"),
    ("0x41", "0xd4f"): ("neoverse-v2", "Neoverse V2"),
    ("0x41", "0xd83"): ("neoverse-v3ae", "Neoverse V3AE"),
    ("0x41", "0xd84"): ("neoverse-v3", "Neoverse V3"),
    ("0x41", "0xd8e"): ("neoverse-n3", "Neoverse N3"),
}
VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}
# The first of which all flags are there is the instruction set; then those worth a word.
ISAS = [
    ("AVX-512", {"avx512f", "avx512dq", "avx512bw", "avx512vl"}),
    ("AVX2", {"avx2", "fma"}),
    ("SSE2", {"sse2"}),
    ("SVE", {"sve"}),
    ("NEON", {"asimd"}),
]
NOTABLE = [
    "f16c", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16",
    "asimdhp", "bf16", "sve", "sve2", "svebf16", "sme",
]  # fmt: skip
CACHES = {
    "l1d_bytes": (1, "LEVEL1_DCACHE_SIZE"),
    "l2_bytes": (2, "LEVEL2_CACHE_SIZE"),
    "l3_bytes": (3, "LEVEL3_CACHE_SIZE"),
}
KIB, MIB = 1 << 10, 1 << 20


def first_processor(text):
    """The fields of the first processor of /proc/cpuinfo."""
    fields = {}
    for line in text.split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields


def number(fields, name):
    value = fields.get(name, "")
    return int(value) if value.isdecimal() else None


def named(fields):
    """Slug and name of the microarchitecture; of what is not in the tables, the numbers."""
    vendor, family, model = fields.get("vendor_id"), number(fields, "cpu family"), number(fields, "model")
    stepping = number(fields, "stepping") or 0
    for row_vendor, row_family, models, steppings, slug, name in X86:
        if (vendor, family) == (row_vendor, row_family) and model in models and stepping in steppings:
            return slug, name
    if vendor:
        return f"{VENDORS.get(vendor, vendor.lower())}-{family}-{model}", f"family {family}, model {model}"
    part = fields.get("CPU implementer", "unknown"), fields.get("CPU part", "unknown")
    return AARCH64.get(part, (f"arm-{part[0]}-{part[1]}", f"implementer {part[0]}, part {part[1]}"))


def described(text):
    """What /proc/cpuinfo says."""
    fields = first_processor(text)
    slug, name = named(fields)
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    siblings, cores = number(fields, "siblings"), number(fields, "cpu cores")
    return {
        "slug": slug,
        "microarchitecture": name,
        "vendor": fields.get("vendor_id") or fields.get("CPU implementer"),
        "family": number(fields, "cpu family"),
        "model": number(fields, "model"),
        "stepping": number(fields, "stepping"),
        "name": fields.get("model name"),
        "isa": next((isa for isa, needed in ISAS if needed <= flags), None),
        "flags": [flag for flag in NOTABLE if flag in flags],
        "threads_per_core": siblings // cores if siblings and cores else None,
    }


def sizes_of_caches(root="/sys/devices/system/cpu/cpu0/cache"):
    """Bytes of the first core's, from the kernel, and where it does not say, from the C library."""
    found = {}
    for index in sorted(pathlib.Path(root).glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction" and size.endswith("K"):
            found[int(level)] = int(size[:-1]) * KIB
    return {name: found.get(level) or from_c_library(variable) for name, (level, variable) in CACHES.items()}


def from_c_library(variable):
    try:
        text = subprocess.run(["getconf", variable], capture_output=True, text=True).stdout.strip()
    except OSError:
        return None
    return int(text) or None if text.isdecimal() else None


def identify():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    return {**described(text), **sizes_of_caches(), "cpus": len(os.sched_getaffinity(0))}


def size_text(size):
    return f"{size / MIB:g} MiB" if size >= MIB else f"{size / KIB:g} KiB"


def sentence(processor):
    """All that is known, for the heading of a report."""
    found = processor.get
    which = [found("microarchitecture")]
    if found("family"):
        which.append(f"family {found('family')}, model {found('model')}, stepping {found('stepping')}")
    isa = " with ".join(filter(None, [found("isa"), ", ".join(found("flags") or [])]))
    caches = [
        f"{label} {size_text(found(key))}"
        for label, key in (("L1d", "l1d_bytes"), ("L2", "l2_bytes"), ("L3", "l3_bytes"))
        if found(key)
    ]
    cpus = f"{found('cpus')} CPUs for the process" if found("cpus") else ""
    threads = f"{found('threads_per_core')} to a core" if found("cpus") and (found("threads_per_core") or 1) > 1 else ""
    parts = [f"{found('name') or 'A processor without a name'} ({'; '.join(which)})", isa, *caches, cpus, threads]
    return ", ".join(filter(None, parts))
