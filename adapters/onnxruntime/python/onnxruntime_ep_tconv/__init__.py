"""tconv's execution provider for ONNX Runtime: models with transposed convolutions run faster on the CPU, unmodified.

    import onnxruntime_ep_tconv

    session = onnxruntime_ep_tconv.session("model.onnx")
    outputs = session.run(None, {"x": x})

The provider takes nodes `ConvTranspose` of one to three dimensions. ONNX Runtime's own CPU provider runs everything
else. ONNX Runtime has to be 1.24 or newer. It comes in several packages, of which this package therefore names none.
"""

from __future__ import annotations

import os
import pathlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["get_ep_name", "get_ep_names", "get_library_path", "register", "session"]

_NAME = "TconvExecutionProvider"
_REGISTRATION = "tconv"
_OLDEST = (1, 24)
_lock = threading.Lock()


def get_library_path() -> str:
    """The path of the provider's shared object, which `onnxruntime.register_execution_provider_library` wants, and the
    call of that name in other languages. The environment variable `TCONV_ONNXRUNTIME_LIBRARY` names another one.

        onnxruntime.register_execution_provider_library("tconv", onnxruntime_ep_tconv.get_library_path())
    """
    named = os.environ.get("TCONV_ONNXRUNTIME_LIBRARY")
    return named or str(pathlib.Path(__file__).parent / "libtconv_onnxruntime.so")


def get_ep_name() -> str:
    """The name of the execution provider: `TconvExecutionProvider`.

    assert onnxruntime_ep_tconv.get_ep_name() == session.get_providers()[0]
    """
    return _NAME


def get_ep_names() -> list[str]:
    """The names of all execution providers in the shared object, of which there is one.

    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name in onnxruntime_ep_tconv.get_ep_names()]
    """
    return [_NAME]


def _devices() -> list[Any]:
    import onnxruntime

    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == _NAME]


def register() -> list[Any]:
    """Registers the provider with ONNX Runtime, once, and returns its devices, which
    `SessionOptions.add_provider_for_devices` takes. Raises ImportError where there is no ONNX Runtime, or one that is
    older than 1.24.

        options = onnxruntime.SessionOptions()
        options.add_provider_for_devices(onnxruntime_ep_tconv.register(), {})
        session = onnxruntime.InferenceSession("model.onnx", options)
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError("onnxruntime_ep_tconv needs ONNX Runtime: pip install onnxruntime") from error
    found = tuple(int(number) for number in onnxruntime.__version__.split(".")[:2])
    if found < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise ImportError(
            f"onnxruntime_ep_tconv needs ONNX Runtime {oldest} or newer; this is {onnxruntime.__version__}"
        )
    with _lock:
        if not _devices():
            onnxruntime.register_execution_provider_library(_REGISTRATION, get_library_path())
        return _devices()


def session(
    model: str | bytes | os.PathLike[str],
    sess_options: onnxruntime.SessionOptions | None = None,
    *,
    threads: int | None = None,
    take_all: bool = False,
    **arguments: Any,
) -> onnxruntime.InferenceSession:
    """An `onnxruntime.InferenceSession` in which tconv runs the transposed convolutions.

    - `model`: a path, or a model's bytes, as `InferenceSession` takes it.
    - `sess_options`: options, to which the provider is added; default: new ones.
    - `threads`: into how many parts the provider divides a layer. ONNX Runtime's threads run the parts, and do not tell
      a provider their number. Default: `sess_options.intra_op_num_threads`; where that is 0, every core of the process.
    - `take_all`: whether the provider takes every node that it can run, also where ONNX Runtime is thought faster.
    - `arguments`: further arguments of `InferenceSession`, but not `providers`, which ONNX Runtime does not take
      together with a provider from a plug-in.

    Raises ImportError where ONNX Runtime does not fit, and whatever `InferenceSession` raises.

        session = onnxruntime_ep_tconv.session("model.onnx")
        outputs = session.run(None, {"x": x})
    """
    devices = register()
    import onnxruntime

    options = onnxruntime.SessionOptions() if sess_options is None else sess_options
    parts = options.intra_op_num_threads if threads is None else threads
    options.add_provider_for_devices(devices, {"threads": str(parts), "take_all": str(int(take_all))})
    return onnxruntime.InferenceSession(
        os.fspath(model) if isinstance(model, os.PathLike) else model, options, **arguments
    )
