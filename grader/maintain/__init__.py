"""The maintainer's checks, wrong kernels and generated files: `kata dev`."""
