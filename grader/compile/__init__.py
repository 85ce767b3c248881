"""A `.cu` file -> a library, its PTX and its machine code, or a sentence that says why there is none; finds nvcc
(`toolchain`), knows when a build is stale (`dependencies`).
"""
