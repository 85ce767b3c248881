#include "phases.h"

#include <algorithm>

#include "cluster.h"

namespace sim {

namespace {

constexpr size_t PLACES = 3;  // that are listed

using Steps = std::vector<const PhaseStep*>;

struct Place {
    std::string line;
    u32 rank;
    Steps steps;
};

// The steps of the phase that count by `count`, those of one line and one block together.
template <class Count>
std::vector<Place> places_of(const Block& owner, const Phase& phase, Count count) {
    std::vector<Place> places;
    for (const PhaseStep& step : phase.steps) {
        if (!count(step)) continue;
        const std::string line = owner.line_words(step.pc);
        const auto same = [&](const Place& place) { return place.rank == step.rank && place.line == line; };
        const auto found = std::find_if(places.begin(), places.end(), same);
        if (found == places.end())
            places.push_back({line, step.rank, {&step}});
        else
            found->steps.push_back(&step);
    }
    return places;
}

// "128 on line 112 by thread (0,0,0)" for each place. `preposition`: of the line.
template <class Count>
std::string listed(const Block& owner, const Phase& phase, const char* preposition, bool names_threads, Count count) {
    const std::vector<Place> places = places_of(owner, phase, count);
    std::string words;
    for (size_t i = 0; i < places.size() && i < PLACES; ++i) {
        s64 sum = 0;
        for (const PhaseStep* step : places[i].steps) sum += s64(count(*step));
        words += (i ? ", " : "") + std::to_string(sum) + preposition + places[i].line;
        if (names_threads)
            words += " by " + threads_of(owner, places[i].steps);
        else if (owner.cluster->blocks.size() > 1)
            words += " by block rank " + std::to_string(places[i].rank);
    }
    if (places.size() > PLACES) words += ", and more on " + plural(places.size() - PLACES, "other line");
    return words;
}

}  // namespace

PhaseStep& Phase::step(u32 pc, u32 rank, u32 warp, Mask lanes) {
    for (size_t i = steps.size(); i-- > 0;) {
        PhaseStep& each = steps[i];
        if (each.pc != pc || each.warp != warp || each.rank != rank) continue;
        each.lanes |= lanes;
        return each;
    }
    PhaseStep fresh;
    fresh.pc = pc;
    fresh.rank = rank;
    fresh.warp = warp;
    fresh.lanes = lanes;
    steps.push_back(fresh);
    return steps.back();
}

const PhaseStep* Phase::arrival_of(u32 rank, u32 warp, Mask lanes) const {
    for (const PhaseStep& each : steps)
        if (each.arrivals && each.rank == rank && each.warp == warp && (each.lanes & lanes)) return &each;
    return nullptr;
}

u64 Phase::arrivals() const {
    u64 sum = 0;
    for (const PhaseStep& each : steps) sum += each.arrivals;
    return sum;
}

void Phases::begin(u64 number, u32 expected) {
    now_ = number;
    Phase& phase = now();
    phase.number = number;
    phase.expected = expected;
    phase.steps.clear();
}

std::string threads_of(const Block& owner, const Steps& steps) {
    std::vector<u32> threads;
    for (const PhaseStep* step : steps)
        for (u32 l = 0; l < LANES; ++l)
            if (step->lanes >> l & 1) threads.push_back(step->warp * LANES + l);
    std::sort(threads.begin(), threads.end());
    threads.erase(std::unique(threads.begin(), threads.end()), threads.end());
    const std::string of = owner.cluster->blocks.size() > 1 ? " of block rank " + std::to_string(steps[0]->rank) : "";
    if (threads.size() == 1) return owner.thread(threads[0]) + of;
    const bool in_a_row = threads.back() - threads.front() + 1 == threads.size();
    const size_t noun = std::string("thread ").size();
    return plural(threads.size(), "thread") + (in_a_row ? ", " : " from ") +
           owner.thread(threads.front()).substr(noun) + " to " + owner.thread(threads.back()).substr(noun) + of;
}

std::string words_of(const Block& owner, const Phase& phase) {
    std::string words = listed(owner, phase, " on ", true, [](const PhaseStep& step) { return step.arrivals; });
    const std::string announced =
        listed(owner, phase, " on ", false, [](const PhaseStep& step) { return step.announced; });
    const std::string came = listed(owner, phase, " of ", false, [](const PhaseStep& step) { return step.came; });
    if (!announced.empty()) words += (words.empty() ? "" : "; ") + ("bytes announced: " + announced);
    if (!came.empty()) words += (words.empty() ? "" : "; ") + ("bytes that came: " + came);
    return words;
}

}  // namespace sim
