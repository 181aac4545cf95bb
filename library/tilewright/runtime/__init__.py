"""From a resolved kernel to work on a device: resolution, loading, memory, streams and the launch."""
