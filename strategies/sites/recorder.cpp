#include "strategies/sites/recorder.h"

#include <array>
#include <chrono>
#include <ctime>
#include <new>

#include "allocator/accounting/record.h"

namespace spillway {
namespace {

constexpr size_t kMostFrames = 48;
constexpr size_t kMostStacks = 1 << 16;  // a program that makes ever new ones must not fill the host

uint64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

Sampler::Clocks clocks() noexcept {
  timespec process{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &process);
  constexpr uint64_t kNsPerSecond = 1'000'000'000;
  return {now_ns(),
          static_cast<uint64_t>(process.tv_sec) * kNsPerSecond + static_cast<uint64_t>(process.tv_nsec)};
}

uint64_t hash_of(std::span<const PythonFrame> frames) {
  uint64_t hash = frames.size();
  // A code object may have gone, and another one may lie at its address: its names tell it apart.
  for (const PythonFrame& frame : frames)
    for (const uint64_t part :
         {reinterpret_cast<uint64_t>(frame.code), frame.instruction, signature_of(frame)}) {
      hash ^= part + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
      hash *= 0xff51afd7ed558ccdu;
    }
  return hash;
}

// Of a module's call PyTorch puts two frames of its own between any two of the program's.
bool says_nothing(std::string_view frame) {
  return frame.ends_with(" _call_impl") || frame.ends_with(" _wrapped_call_impl");
}

}  // namespace

SiteRecorder::SiteRecorder(Allocator& allocator, trace::Trace& trace, uint64_t interval_bytes)
    : allocator_(allocator), trace_(trace), sampler_(interval_bytes) {
  prepare_python_stacks();
}

void SiteRecorder::allocated(uint64_t address, uint64_t bytes) noexcept {
  const uint64_t stands_for = sampler_.take(bytes);
  if (stands_for == 0) return;
  const uint64_t start = now_ns();
  try {
    allocator_.set_site(address, site_here(), stands_for);  // 0 too: blocks of its size have no place
  } catch (const std::bad_alloc&) {
    return;  // the report lacks one block
  }
  sampler_.spent(now_ns() - start, clocks);
}

void SiteRecorder::failed(DeviceId device, uint64_t incident) noexcept {
  trace::Record record;
  record.kind = trace::Kind::kOomSite;
  record.value = static_cast<uint32_t>(incident);
  try {
    record.detail = site_here();
  } catch (const std::bad_alloc&) {
    return;
  }
  if (record.detail != 0) write_record(allocator_, device, record);
}

uint64_t SiteRecorder::site_here() {
  std::array<PythonFrame, kMostFrames> frames;
  const size_t count = python_stack(frames);
  if (!python_stacks_ready()) prepare_python_stacks();
  if (count == 0) return label_here();
  return site_of(std::span(frames).first(count));
}

uint64_t SiteRecorder::label_here() {
  char text[128] = "";
  if (const auto label = label_.load()) label(text, sizeof text);
  return text[0] == '\0' ? 0 : trace_.intern(text);
}

uint64_t SiteRecorder::site_of(std::span<const PythonFrame> frames) {
  const uint64_t hash = hash_of(frames);
  {
    const Locked lock(mutex_);
    if (const auto known = sites_.find(hash); known != sites_.end()) return known->second;
  }
  std::string text;
  for (const PythonFrame& frame : frames) {
    const std::string line = text_of(frame);
    if (!says_nothing(line)) text += (text.empty() ? "" : "\n") + line;
  }
  const uint64_t site = trace_.intern(text);
  const Locked lock(mutex_);
  if (sites_.size() < kMostStacks) sites_.emplace(hash, site);
  return site;
}

}  // namespace spillway
