"""Exceptions on their way through the shim. PyTorch's C interface keeps an exception's text alone: the thread keeps the
exception, and who calls the operator from Python gets it. As PyTorch's own errors, a RuntimeError of this text is what
others get, as programs in TorchScript and C++."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from . import _native


class _Thread(threading.local):
    def __init__(self) -> None:
        self.raised: BaseException | None = None


_thread = _Thread()
_NO_TEXT = "an operator failed; stderr may tell why"  # native/torch_interface.c


def _text(error: BaseException) -> str:
    text = str(error)
    return text if type(error) is RuntimeError and text else f"{type(error).__name__}: {text}"


def _cause(error: BaseException) -> BaseException:
    """The exception that an error from the shim has the text of, or the error."""
    kept, text = _thread.raised, str(error)
    return kept if kept is not None and (_text(kept)[:200] in text or _NO_TEXT in text) else error


def take_cause(error: BaseException) -> BaseException:
    """The exception that an error from the shim has the text of, or the error. It is no longer kept then."""
    cause, _thread.raised = _cause(error), None
    return cause


def keeping(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel for the shim to call."""

    def called(*arguments: Any) -> Any:
        try:
            return kernel(*arguments)
        except BaseException as error:
            _thread.raised = _cause(error)
            _native.say(_text(_thread.raised))
            raise

    return called


def raising(operator: Any) -> Any:
    """An operator that raises what was kept. PyTorch may hash an operator by what it calls: none must be in use."""
    call = operator._op

    def called(*arguments: Any, **more: Any) -> Any:
        try:
            return call(*arguments, **more)
        except RuntimeError as error:
            cause = take_cause(error)
            if cause is error:
                raise
            raise cause from None

    operator._op = called
    return operator
