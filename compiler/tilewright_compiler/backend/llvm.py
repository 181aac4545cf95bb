"""MLIR text to PTX text, in this process. The one door to `mlir`.

It runs in a worker process (`backend.worker`), because LLVM answers an operation that it cannot
select with abort(). `serve` is the worker's whole life.

A compilation waits for this process to be ready, so it imports the bindings' native modules alone:
their Python brings NumPy and a class for each operation of each dialect, 0.1 s that nothing here
needs.
"""

from __future__ import annotations

import json
import os
import sys

from mlir._mlir_libs._mlir import globals as bindings
from mlir._mlir_libs._mlir import ir
from mlir._mlir_libs._mlir.passmanager import PassManager
from mlir._mlir_libs._mlirDialectsGPU import ObjectAttr  # type: ignore[import-untyped]

from tilewright_compiler.backend.messages import Request, frame, read_message

# Reading an operation would import the Python classes of its dialect.
bindings.dialect_search_modules = []

# Order matters: nvvm predicates are lost without convert-nvvm-to-llvm, and convert-gpu-to-nvvm
# must not run, because it turns llvm-dialect math into libdevice calls.
PIPELINE = (
    "builtin.module(convert-scf-to-cf,convert-nvvm-to-llvm,convert-cf-to-llvm,convert-arith-to-llvm,"
    "canonicalize,cse,reconcile-unrealized-casts)"
)
TRANSLATE = "builtin.module(gpu-module-to-binary{format=isa})"

# All functions of libdevice start like this.
_LIBDEVICE_NAME = "@__nv_"

# MLIR puts the whole operation tree in its messages.
MAX_MESSAGE = 2000


class TranslateError(Exception):
    """MLIR or LLVM refused the text; the message is theirs, cut to a readable length."""


def translate(request: Request) -> str:
    """Return the PTX of a module with one `gpu.module`; raises TranslateError."""
    # `with`: a context left entered at interpreter exit aborts on the GIL. Dialects are loaded as
    # the text names them, and a thread pool would be made for nothing.
    with ir.Context(load_on_create_dialects=[]) as context, ir.Location.unknown():
        context.enable_multithreading(False)
        try:
            module = ir.Module.parse(request.text)
            _attach_target(module, request)
            PassManager.parse(PIPELINE).run(module.operation)
            PassManager.parse(TRANSLATE).run(module.operation)
        except (ir.MLIRError, ValueError, RuntimeError) as error:
            raise TranslateError(str(error)[:MAX_MESSAGE]) from error
        for operation in module.body.operations:
            if operation.operation.name == "gpu.binary":
                objects = ir.ArrayAttr(operation.operation.attributes["objects"])
                ptx: bytes = ObjectAttr(objects[0]).object
                return ptx.rstrip(b"\0").decode()
    msg = "the translated module holds no gpu.binary"
    raise TranslateError(msg)


def _attach_target(module: ir.Module, request: Request) -> None:
    # The path of libdevice is this machine's: it is attached here so that the text is the same
    # everywhere. To read it takes 2 ms, which most kernels need not wait for.
    link = f", link = [{json.dumps(request.libdevice)}]" if _LIBDEVICE_NAME in request.text else ""
    target = (
        f'#nvvm.target<O = {request.level}, chip = "{request.chip}", '
        f'features = "{request.features}"{link}>'
    )
    for operation in module.body.operations:
        if operation.operation.name == "gpu.module":
            operation.operation.attributes["targets"] = ir.ArrayAttr.get(
                [ir.Attribute.parse(target)]
            )


def serve() -> None:
    """Answer requests from standard input until it closes."""
    # Whatever LLVM prints must not enter the stream of replies: it goes to standard error.
    with os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)
        while (message := read_message(sys.stdin.buffer)) is not None:
            try:
                reply = {"ptx": translate(Request(**message))}
            except TranslateError as error:
                reply = {"error": str(error)}
            try:
                replies.write(frame(reply))
                replies.flush()
            except BrokenPipeError:
                return
