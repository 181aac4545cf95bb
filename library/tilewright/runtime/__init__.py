"""From a kernel call to work on a device: resolution, loading, memory, streams and the launch."""
