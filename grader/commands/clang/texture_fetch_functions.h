// Empty: clang before 16 includes this header of CUDA 11. Newer toolkits do not have it, and clang would stop there.
