#include "strategies/sites/sampler.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace spillway {
namespace {

constexpr uint64_t kLookAfter = 256;  // stacks

// The interval that the thread's countdown was drawn from; 0: none was drawn yet.
thread_local uint64_t drawn_from = 0;

std::minstd_rand& generator() {
  static std::atomic<uint32_t> seeds{1};
  thread_local std::minstd_rand own(uint64_t{seeds.fetch_add(1, std::memory_order_relaxed)} * 2654435761u);
  return own;
}

uint64_t passed_since(std::atomic<uint64_t>* since, uint64_t now) {
  return now - std::min(since->exchange(now, std::memory_order_relaxed), now);
}

}  // namespace

constinit thread_local int64_t Sampler::left_ = 0;

void Sampler::draw() noexcept {
  drawn_from = interval_.load(std::memory_order_relaxed);
  left_ = static_cast<int64_t>(
      std::exponential_distribution<double>(1.0 / static_cast<double>(drawn_from))(generator()));
}

uint64_t Sampler::take(uint64_t bytes) noexcept {
  if (base_ == 0) {
    left_ = 0;
    return bytes;
  }
  if (drawn_from == 0) {
    draw();
    if (!due(bytes)) return 0;
  }
  const double intervals = static_cast<double>(bytes) / static_cast<double>(drawn_from);
  draw();
  return static_cast<uint64_t>(static_cast<double>(bytes) / -std::expm1(-intervals));
}

void Sampler::spent(uint64_t ns, Clocks (*now)() noexcept) noexcept {
  if (base_ == 0) return;
  const uint64_t sum = spent_ns_.fetch_add(ns, std::memory_order_relaxed) + ns;
  const uint64_t stacks = stacks_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (stacks % kLookAfter != 0) return;
  const auto [wall, process] = now();
  const uint64_t passed = std::min(passed_since(&wall_since_, wall), passed_since(&process_since_, process));
  spent_ns_.store(0, std::memory_order_relaxed);
  const double allowed = kMostShare * static_cast<double>(passed);
  const uint64_t interval = interval_.load(std::memory_order_relaxed);
  if (static_cast<double>(sum) > allowed)
    interval_.store(std::min(interval * 2, kMostInterval), std::memory_order_relaxed);
  else if (static_cast<double>(sum) * 4 < allowed)
    interval_.store(std::max(interval / 2, base_), std::memory_order_relaxed);
}

}  // namespace spillway
