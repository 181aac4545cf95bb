"""Tensor operations: from arrays of any shape and strides to launches of the kernel library."""
