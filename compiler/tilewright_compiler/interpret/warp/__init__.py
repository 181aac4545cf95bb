"""What the warps of a program do with scheduled tile IR, lane by lane and register by register."""
