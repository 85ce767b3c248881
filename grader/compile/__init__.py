"""A `.cu` file -> a library, its PTX and its machine code, or a sentence that says why not; finds nvcc
(`toolchain`), knows when a build is stale (`dependencies`).
"""
