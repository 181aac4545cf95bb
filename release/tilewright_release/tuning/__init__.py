"""`tilewright tune`: which configuration is fastest on a device, timed and kept as data."""
