"""Kernel source -> tile IR, with types, constants and control flow: `lower.lower_kernel`."""
