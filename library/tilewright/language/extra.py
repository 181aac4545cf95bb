"""Where a kernel written for Triton looks for libdevice: `tl.extra.libdevice`."""

from tilewright.language import libdevice

__all__ = ["libdevice"]
