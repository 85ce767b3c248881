"""A kata on an NVIDIA GPU: the driver, timing, and the probe that follows what a launcher asks of the runtime."""
