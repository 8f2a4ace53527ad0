"""What failed calls raise: the library's issue as an exception."""

from __future__ import annotations


class TconvError(Exception):
    """A call that the library refused. str() is the issue's message.

    Attributes:
        status: the name of the status, "TCONV_ERROR_INVALID_ARGUMENT" and so on.
        field: the field, argument or variable at fault, "stride_h" or "TCONV_BACKEND"; "" where there is none.
        message: the field, its value and the rule that it breaks.

    Examples::

        >>> import numpy as np
        >>> import tconv
        >>> one = np.ones((1, 1, 1, 1), np.float32)
        >>> try:
        ...     tconv.conv_transpose2d(one, one, groups=2)
        ... except tconv.TconvError as error:
        ...     print(error.field)
        groups
    """

    def __init__(self, status: str, field: str, message: str) -> None:
        super().__init__(status, field, message)
        self.status = status
        self.field = field
        self.message = message

    def __str__(self) -> str:
        return self.message


class InvalidArgumentError(TconvError, ValueError):
    """A field breaks a rule."""


class DtypeError(InvalidArgumentError, TypeError):
    """An array of a dtype that tconv does not have, or arrays whose dtypes differ."""


class SizeOverflowError(TconvError, OverflowError):
    """A tensor of 2**63 bytes or more."""


class OutOfMemoryError(TconvError, MemoryError):
    """The allocator, or the device's, returned nothing."""


class UnavailableError(TconvError, RuntimeError):
    """The backend is not built, or has no driver, no device or no code for the device."""


class UnsupportedError(TconvError, NotImplementedError):
    """A valid layer that the implementation asked for does not do."""


class EnvironmentVariableError(TconvError, ValueError):
    """An environment variable has a value that it does not accept."""


class CudaError(TconvError, RuntimeError):
    """CUDA reported an error."""


# By tconv_status, whose values never change.
BY_STATUS: dict[int, type[TconvError]] = {
    1: InvalidArgumentError,
    2: SizeOverflowError,
    3: OutOfMemoryError,
    4: UnavailableError,
    5: UnsupportedError,
    6: EnvironmentVariableError,
    7: CudaError,
}


def invalid(field: str, message: str) -> InvalidArgumentError:
    """A mistake that is found here, before the library could see it."""
    return InvalidArgumentError("TCONV_ERROR_INVALID_ARGUMENT", field, message)


def wrong_dtype(field: str, message: str) -> DtypeError:
    return DtypeError("TCONV_ERROR_INVALID_ARGUMENT", field, message)


def out_of_memory(field: str, message: str) -> OutOfMemoryError:
    return OutOfMemoryError("TCONV_ERROR_OUT_OF_MEMORY", field, message)
