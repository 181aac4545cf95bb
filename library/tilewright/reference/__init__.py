"""The written definition of each operation in NumPy, in files of the same names as `kernels`.

These functions are the specification: the kernels are tested against them, and the documentation of
an operation's mathematics is their docstring. They are also what runs for tensors on the CPU. Each
computes in the precision that `precision.working_dtype` names (f64 for f64, f32 for the narrower
floats) and rounds once to the dtype of its result. NumPy's floating-point warnings are silenced:
what overflows is inf, what is undefined is NaN, as on the device.
"""
