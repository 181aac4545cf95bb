"""From MLIR text to PTX (LLVM, in a worker process) to a checked cubin (ptxas)."""
