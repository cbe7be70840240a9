#include "libtorch/allocator/history/observers.h"

#include <bit>

#include "libtorch/allocator/core.h"

namespace spillway::libtorch {
namespace {

using Action = native::TraceEntry::Action;

thread_local const Context* context_of_call = nullptr;
const Context kNoContext;

Action action_of(uint32_t change) {
  switch (change) {
    case SPILLWAY_CHANGE_ALLOCATED:
      return Action::ALLOC;
    case SPILLWAY_CHANGE_FREE_REQUESTED:
      return Action::FREE_REQUESTED;
    case SPILLWAY_CHANGE_FREED:
      return Action::FREE_COMPLETED;
    case SPILLWAY_CHANGE_MAPPED:
      return Action::SEGMENT_MAP;
    default:
      return Action::SEGMENT_UNMAP;
  }
}

// Since 2.10.
template <class Entry>
void describe(Entry& entry, const std::string& metadata) {
  if constexpr (requires { entry.user_metadata_; }) entry.user_metadata_ = metadata;
}

}  // namespace

Listeners::Call::Call(Context context) : context_(std::move(context)), outer_(context_of_call) {
  context_of_call = &context_;
}

Listeners::Call::~Call() {
  context_of_call = outer_;
}

const Context& Listeners::Call::context() {
  return context_of_call == nullptr ? kNoContext : *context_of_call;
}

void Listeners::attach(native::AllocatorTraceTracker tracker) {
  const Locked lock(mutex_);
  trackers_.push_back(std::move(tracker));
  update();
}

void Listeners::record(const History::Settings& settings) {
  const Locked lock(mutex_);
  history_.set(settings);
  update();
}

// After the history ended, the blocks whose stacks it gathered keep them until they are freed: so long the
// core goes on telling.
void Listeners::update() {
  const bool wanted = !trackers_.empty() || history_.enabled();
  wanted_.store(wanted);
  const bool watch = wanted || history_.remembers();
  if (watch != watching_) core().table->watch(watch ? &hear : nullptr);
  watching_ = watch;
}

void Listeners::saw(uint32_t change, const spillway_block_info& block, c10::cuda::MempoolId_t pool) {
  Context context = Call::context();
  const bool pages = change == SPILLWAY_CHANGE_MAPPED || change == SPILLWAY_CHANGE_UNMAPPED;
  const bool freed = change == SPILLWAY_CHANGE_FREE_REQUESTED || change == SPILLWAY_CHANGE_FREED;
  if (freed && context == nullptr) context = history_.block_context(block.address);
  tell(action_of(change), static_cast<c10::DeviceIndex>(block.device), block.address,
       pages ? block.bytes : block.requested_bytes, std::bit_cast<cudaStream_t>(block.stream), pool, context);
  if (change == SPILLWAY_CHANGE_ALLOCATED) history_.remember_block(block.address, context);
  if (change == SPILLWAY_CHANGE_MAPPED) history_.remember_pages(block.address, block.bytes, context);
  if (change == SPILLWAY_CHANGE_FREED) history_.forget_block(block.address);
  if (change == SPILLWAY_CHANGE_UNMAPPED) history_.forget_pages(block.address, block.bytes);
  if (wanted() || change == SPILLWAY_CHANGE_ALLOCATED || change == SPILLWAY_CHANGE_MAPPED) return;
  const Locked lock(mutex_);
  update();
}

void Listeners::tell(Action action, c10::DeviceIndex device, uint64_t address, size_t bytes,
                     cudaStream_t stream, c10::cuda::MempoolId_t pool, const Context& context) {
  if (!wanted()) return;
  native::TraceEntry entry(action, device, address, bytes, stream, pool, c10::getApproximateTime(),
                           history_.traces_carry_contexts() ? context : nullptr, History::compile_context());
  describe(entry, History::user_metadata());
  tell(entry);
}

void Listeners::annotate(c10::DeviceIndex device, const spillway_block_info& block,
                         c10::cuda::MempoolId_t pool, const std::string& metadata) {
  const std::optional<Action> action = annotation<Action>();
  if (!wanted() || !action) return;
  native::TraceEntry entry(*action, device, block.address, block.requested_bytes,
                           std::bit_cast<cudaStream_t>(block.stream), pool, c10::getApproximateTime(),
                           nullptr, History::compile_context());
  describe(entry, metadata);
  tell(entry);
}

void Listeners::tell(const native::TraceEntry& entry) {
  const Locked lock(mutex_);
  for (const native::AllocatorTraceTracker& tracker : trackers_) tracker(entry);
  history_.add(entry);
}

}  // namespace spillway::libtorch
