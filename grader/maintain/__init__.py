"""The maintainer's checks (`checks` lists them), wrong kernels and generated tables: `kata dev`."""
