"""Exercises beside the katas, made of what the repository has: bugs to find, slow kernels, estimates on paper."""
