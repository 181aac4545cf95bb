"""From scheduled tile IR to MLIR text. Imports no MLIR: the text is the interface."""
