"""Runs tile IR on the CPU in NumPy: the meaning of every operation, in executable form."""
