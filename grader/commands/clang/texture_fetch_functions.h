// Empty: clang before 16 includes this header of CUDA 11, which newer toolkits do not have, and stops where it is missing.
