// standard: what most sources include of the C++ library
//
// engine.py compiles it once in advance and puts it before every source; each source includes what it uses all the
// same, so that it compiles without.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>
