"""Whether a file is a library that this package can use. When the package is imported the file is read, not loaded:
that is left to the first call (_library.py). What only loading tells is found out then."""

from __future__ import annotations

import ctypes as c
import mmap
import pathlib
import re
from collections.abc import Iterable

from ._version import VERSION

_SERIES = VERSION.rpartition(".")[0]  # whose libraries have one another's functions
_ADVICE = f"install the tconv package again, or name a libtconv {_SERIES} of your own in TCONV_LIBRARY"
_ELF = b"\x7fELF"
_HEADER_BYTES = 20
# Of the header: word size and byte order, and the machine.
_MACHINE = (slice(4, 6), slice(18, 20))


def check(path: str, functions: Iterable[str]) -> None:
    """Raises ImportError where the file is missing, is for another machine, or is no libtconv of this version. A name
    without a directory is the loader's to find: nothing is known of it yet."""
    if "/" not in path:
        return
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            _check_machine(path, content[:_HEADER_BYTES])
            for name in functions:
                if content.find(name.encode() + b"\0") < 0:
                    raise ImportError(f"{path} is no libtconv {_SERIES}: it has no {name}; {_ADVICE}")
            if not re.search(rb"%s\.\d+\0" % re.escape(_SERIES.encode()), content):
                raise ImportError(f"{path} is not of version {_SERIES}, as this package is; {_ADVICE}")
    except (OSError, ValueError) as error:  # the latter of a file without bytes
        raise ImportError(f"{path} cannot be read: {error}; {_ADVICE}") from error


def load(path: str) -> c.CDLL:
    try:
        loaded = c.CDLL(path)
        loaded.tconv_version.restype = c.c_char_p
        version = loaded.tconv_version().decode()
    except OSError as error:  # its text has the file, which may be a library that this one needs
        raise ImportError(f"{path} cannot be loaded: {error}; {_ADVICE}") from error
    except AttributeError as error:
        raise ImportError(f"{path} is no libtconv: {error}; {_ADVICE}") from error
    if version.rpartition(".")[0] != _SERIES:
        raise ImportError(f"{path} is libtconv {version}, and this package is tconv {VERSION}; {_ADVICE}")
    return loaded


def _check_machine(path: str, header: bytes) -> None:
    """By comparison with the interpreter that runs."""
    if header[:4] != _ELF:
        raise ImportError(f"{path} is no shared object; {_ADVICE}")
    try:
        with pathlib.Path("/proc/self/exe").open("rb") as file:
            own = file.read(_HEADER_BYTES)
    except OSError:
        return
    if any(own[part] != header[part] for part in _MACHINE):
        raise ImportError(f"{path} is a shared object for another machine than this Python; {_ADVICE}")
