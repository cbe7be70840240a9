#include "strategies/tags.h"

namespace spillway {
namespace {
struct ProcessPhase {
  std::atomic<const char*> name{""};
  std::atomic<const void*> owner{nullptr};  // names the thread that set it
};
ProcessPhase process_phase;
thread_local const char* thread_phase = nullptr;
}  // namespace

const char* Tags::phase() {
  return thread_phase != nullptr ? thread_phase : process_phase.name.load();
}

void Tags::set_phase(const char* name) {
  const auto* self = static_cast<const void*>(&thread_phase);
  if (name == nullptr) {
    thread_phase = nullptr;
    if (process_phase.owner.load() == self) process_phase.name.store("");
    return;
  }
  {
    std::lock_guard guard(mutex_);
    thread_phase = phases_.emplace(name).first->c_str();
  }
  process_phase.name.store(thread_phase);
  process_phase.owner.store(self);
}

Tags::Answer Tags::add_block(uint64_t address, uint64_t bytes) {
  std::lock_guard guard(mutex_);
  return blocks_.emplace(address, Block{bytes, 0}).second ? Answer::kOk : Answer::kTwice;
}

Tags::Answer Tags::touch_block(uint64_t address) {
  std::lock_guard guard(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return Answer::kUnknown;
  ++found->second.uses;
  return Answer::kOk;
}

Tags::Answer Tags::done_block(uint64_t address) {
  std::lock_guard guard(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return Answer::kUnknown;
  if (found->second.uses == 0) return Answer::kUnbalanced;
  --found->second.uses;
  return Answer::kOk;
}

Tags::Answer Tags::remove_block(uint64_t address) {
  std::lock_guard guard(mutex_);
  return blocks_.erase(address) != 0 ? Answer::kOk : Answer::kUnknown;
}

void Tags::pin(uint64_t address, uint64_t bytes) {
  std::lock_guard guard(mutex_);
  Pin& pin = pins_[address];
  if (bytes > pin.bytes) pin.bytes = bytes;
  ++pin.count;
}

Tags::Answer Tags::unpin(uint64_t address) {
  std::lock_guard guard(mutex_);
  const auto found = pins_.find(address);
  if (found == pins_.end()) return Answer::kUnknown;
  if (--found->second.count == 0) pins_.erase(found);
  return Answer::kOk;
}

bool Tags::is_pinned(uint64_t address, uint64_t bytes) {
  std::lock_guard guard(mutex_);
  const auto overlaps = [&](uint64_t begin, uint64_t size) {
    return begin < address + bytes && address < begin + size;
  };
  for (const auto& [begin, pin] : pins_)
    if (overlaps(begin, pin.bytes)) return true;
  for (const auto& [begin, block] : blocks_)
    if (block.uses != 0 && overlaps(begin, block.bytes)) return true;
  return false;
}

void Tags::begin_step(const Step& step) {
  std::lock_guard guard(mutex_);
  step_ = step;
}

Tags::Step Tags::current_step() {
  std::lock_guard guard(mutex_);
  return step_;
}

}  // namespace spillway
