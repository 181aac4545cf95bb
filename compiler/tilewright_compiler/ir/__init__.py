"""The tile IR and what the stages after it hand on."""
