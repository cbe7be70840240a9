#include "strategies/core/tags.h"

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
    const Locked guard(mutex_);
    thread_phase = phases_.emplace(name).first->c_str();
  }
  process_phase.name.store(thread_phase);
  process_phase.owner.store(self);
}

void Tags::pin(uint64_t address, uint64_t bytes) {
  const Locked guard(mutex_);
  Pin& pin = pins_[address];
  if (bytes > pin.bytes) pin.bytes = bytes;
  ++pin.count;
}

bool Tags::unpin(uint64_t address) {
  const Locked guard(mutex_);
  const auto found = pins_.find(address);
  if (found == pins_.end()) return false;
  if (--found->second.count == 0) pins_.erase(found);
  return true;
}

Pins Tags::pins() {
  const Locked guard(mutex_);
  Pins pins;
  for (const auto& [address, pin] : pins_) pins.add(address, pin.bytes);
  return pins;
}

void Tags::begin_step(const Step& step) {
  const Locked guard(mutex_);
  step_ = step;
}

Tags::Step Tags::current_step() {
  const Locked guard(mutex_);
  return step_;
}

}  // namespace spillway
