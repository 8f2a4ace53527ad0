"""python -m tconv: what is installed here. python -m tconv verify: whether it computes what it should."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys

from . import _library, _verify
from ._version import VERSION


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tconv", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="command")
    commands.add_parser("info", help="versions, library, backends and why one is missing (the default)")
    verify = commands.add_parser(
        "verify",
        help="compare small random layers, forward and gradients, with NumPy; exit status 1 where one is wrong",
    )
    verify.add_argument("--jax", action="store_true", help="compare tconv.jax with lax instead")
    verify.add_argument("--layers", type=int, help="how many of each operation (default 60, with --jax 12)")
    verify.add_argument("--seed", type=int, default=0, help="of the random numbers (default 0)")
    options = parser.parse_args(arguments)
    if options.command == "verify":
        layers = options.layers if options.layers is not None else 12 if options.jax else 60
        if layers < 1:
            parser.error(f"--layers {layers}: must be at least 1")
        return _verify_jax(layers, options.seed) if options.jax else _verify.verify(layers, options.seed)
    print_info()
    return 0


def _verify_jax(layers: int, seed: int) -> int:
    try:
        from .jax import _verify
    except ImportError as error:
        print(f"not tried: {error}")
        return 1
    return _verify.verify(layers, seed)


def print_info() -> None:
    print(f"tconv {VERSION}")
    print(f"library: {_library.path()}, version {_library.version()}")
    others = [f"{name} {version}" for name in ("numpy", "torch", "jax") if (version := _installed(name))]
    print(f"python: {platform.python_version()}, {', '.join(others)}")
    print(_library.system_info(_library.TEXT_PLAIN).rstrip())


def _installed(package: str) -> str:
    """The version of a package, which is not imported for it; "" where there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _run() -> int:
    """main, whose reader may stop reading."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes when it ends
        return 1
    return status


if __name__ == "__main__":
    sys.exit(_run())
