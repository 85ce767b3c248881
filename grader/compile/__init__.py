"""A `.cu` file -> a library, its PTX and its machine code, or a sentence that says why not; finds nvcc
(`toolchain`), has its flags and keeps builds (`build`), knows when one is stale (`dependencies`).
"""
