"""The version of the package, which is that of the C headers beside it (include/tconv/version.h)."""

VERSION = "0.2.0"
