"""Small hand-written kernels as MLIR text, for tests of the stages below emission."""

from __future__ import annotations

from tilewright.abi.signature import KernelSignature
from tilewright.errors import SourceLocation
from tilewright_compiler.ir.stages import MlirText

_KERNEL = """module attributes {{gpu.container_module}} {{
  gpu.module @kernels {{
    {declarations}
    llvm.func @k(%p: !llvm.ptr<1>, %n: i64) attributes {{gpu.kernel, nvvm.kernel, \
nvvm.reqntid = array<i32: 128, 1, 1>}} {{
      %x = llvm.load %p {{alignment = 4 : i64}} : !llvm.ptr<1> -> f32
      {body}
      llvm.store %y, %p {{alignment = 4 : i64}} : f32, !llvm.ptr<1>
      llvm.return
    }}
  }}
}}
"""

HERE = SourceLocation(__file__, 1, 0, 3, "k")


def kernel(body: str = "%y = llvm.fneg %x : f32", declarations: str = "") -> MlirText:
    """Return a kernel `k(p, n)` that replaces the float at p; `body` computes %y from %x."""
    text = _KERNEL.format(body=body, declarations=declarations)
    return MlirText(text, "k", 128, 0, ("p",), KernelSignature(()), HERE)


# LLVM has no instruction for this on NVPTX, and ends its process over it.
FATAL_BODY = "%y = llvm.intr.log2(%x) : (f32) -> f32"
