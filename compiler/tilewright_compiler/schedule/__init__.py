"""How tile IR becomes hardware work: layouts, shared memory. Gives scheduled tile IR."""
