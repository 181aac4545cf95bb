"""The command line: `tilewright doctor`, `explain` and `dev`."""
