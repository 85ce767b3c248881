// births: where values that are not finite first come from
//
// A launch that is asked for them runs a copy of its program in which arithmetic on floating-point registers and mma
// stand behind a function that looks at operands and result. wmma, wgmma, atomics and conversions of integers are not
// watched. Any other launch pays nothing.
//
// In a program that multiplies matrices, four lanes share a row of an accumulator, and must compute the same of it.
// Where one of them makes a nan and another a number, both are noted.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "finding.h"
#include "program.h"

namespace sim {

struct Warp;

// An instruction whose result was nan though no operand was, or infinite though all were finite.
struct Birth {
    u64 launch, block, step;  // when: blocks one after the other, which run side by side
    Site site;
    std::string form;
    f64 result;
    std::vector<f64> operands;  // none for a product of matrices
    struct Other {              // a lane that makes a number there
        int lane = -1;          // -1: not known
        std::vector<f64> operands;
        Site site;
    } other;
};

class Births {
 public:
    void clear();
    void begin_launch() { ++launch_; }
    void note(
        const Warp& warp, const std::string& form, int lane, f64 result, std::vector<f64> operands,
        Birth::Other other = {});
    std::string json() const;  // the first of each instruction, as a list in the order of time

 private:
    using Key = std::tuple<u64, u32, bool>;  // of a launch, an instruction; whether it is a nan

    std::mutex mutex_;
    std::map<Key, Birth> first_;
    u64 launch_ = 0, step_ = 0;
};

// The same program, which notes births: it outlives neither the plain one nor its launch.
std::shared_ptr<const Program> with_births(const Program& plain);

}  // namespace sim
