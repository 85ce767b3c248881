// The stores that tell the cache what to keep, for every type. nvcc declares them; clang lacks some of them, and types
// of others. An editor needs the declarations alone.
#pragma once

template <typename T>
__device__ void __stwb(T* address, T value);
template <typename T>
__device__ void __stcg(T* address, T value);
template <typename T>
__device__ void __stcs(T* address, T value);
template <typename T>
__device__ void __stwt(T* address, T value);
