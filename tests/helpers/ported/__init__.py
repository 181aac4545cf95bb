"""Kernels that are public for Triton, written anew in the tile language from what they compute.

A file a kind; each kernel takes row-major arrays, and sizes that are no multiple of its tiles.
"""
