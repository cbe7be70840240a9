#include "tools/spillway/replay/spillway_placement.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "allocator/allocator.h"
#include "driver/table.h"
#include "strategies/ladder/ladder.h"
#include "tools/spillway/simulator_libraries.h"

namespace spillway::tools {
namespace {

constexpr DeviceId kDevice{0};
constexpr uint64_t kPageBytes = uint64_t{2} << 20;
// The simulated driver's addresses are laid out for the card with which it starts.
constexpr const char* kLargestCard = "1TiB";
constexpr uint64_t kLargestCardBytes = uint64_t{1} << 40;

// The simulated driver of this process: one card, no values, nothing that the environment says about another.
const driver::Table* load_simulator(std::string* error) {
  SimulatorLibraries libraries;
  if (!find_simulator_libraries(&libraries, error)) return nullptr;
  for (const char* name :
       {"SPILLWAY_SIM_CARD", "SPILLWAY_SIM_CONFIG", "SPILLWAY_SIM_DEVICES", "SPILLWAY_SIM_VALUES",
        "SPILLWAY_SIM_OVERHEADS", "SPILLWAY_SIM_REPORT", "SPILLWAY_SIM_MASKS", "SPILLWAY_SIM_WATCHDOG",
        "SPILLWAY_SIM_MACHINE", "CUDA_VISIBLE_DEVICES"})
    ::unsetenv(name);
  ::setenv("SPILLWAY_SIM_CAPACITY", kLargestCard, 1);
  driver::LoadError failed;
  const driver::Table* table = driver::resolve((libraries.folder + "/libcuda.so.1").c_str(), &failed);
  if (table == nullptr) *error = failed.text;
  if (table != nullptr && table->simulator == nullptr) {
    *error = libraries.folder + "/libcuda.so.1 is not the simulator's";
    return nullptr;
  }
  return table;
}

const driver::Table* simulator(std::string* error) {
  static std::string failed;
  static const driver::Table* const table = load_simulator(&failed);
  if (table == nullptr) *error = failed;
  return table;
}

class SpillwayPlacement final : public Placement {
 public:
  explicit SpillwayPlacement(const driver::Table& table) : table_(table) {}
  SpillwayPlacement(const SpillwayPlacement&) = delete;
  SpillwayPlacement& operator=(const SpillwayPlacement&) = delete;
  ~SpillwayPlacement() override;

  bool start(uint64_t capacity, trace::Trace* trace, std::string* error);
  bool allocate(uint32_t block, uint64_t bytes, uint32_t stream, uint32_t pool) override;
  void free_later(uint32_t block) override { pending_.push_back(block); }
  void free(uint32_t block) override;
  uint64_t reserved() const override { return memory().reserved; }
  uint64_t most_reserved() const override { return memory().peak_reserved; }
  uint64_t largest_free(uint32_t, uint32_t, bool) const override { return largest_extent_; }

 private:
  StreamId stream_of(uint32_t number);
  bool try_allocate(uint32_t block, const spillway::Request& request);
  Memory memory() const {
    Memory memory;
    allocator_->memory(kDevice, &memory);
    return memory;
  }

  const driver::Table& table_;
  CUcontext context_ = nullptr;
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<Ladder> ladder_;
  std::vector<CUstream> streams_;
  std::vector<uint64_t> addresses_;  // by block; 0: not live
  std::vector<uint32_t> pending_;
  uint64_t largest_extent_ = 0;
};

bool SpillwayPlacement::start(uint64_t capacity, trace::Trace* trace, std::string* error) {
  const auto failed = [&](CUresult result) {
    if (result != CUDA_SUCCESS) *error = "the simulated driver: " + driver::describe(table_, result);
    return result != CUDA_SUCCESS;
  };
  if (failed(table_.cuInit(0)) || failed(table_.cuDevicePrimaryCtxRetain(&context_, 0)) ||
      failed(table_.cuCtxPushCurrent(context_)))
    return false;
  SpillwaySimulatorUsage usage{};
  table_.simulator->usage(0, &usage);
  if (failed(table_.simulator->set_capacity(
          0, std::clamp(capacity, kPageBytes, kLargestCardBytes / 2) + usage.charged_bytes)))
    return false;
  allocator_ = std::make_unique<Allocator>(table_);
  allocator_->set_trace(trace);
  ladder_ = std::make_unique<Ladder>(*allocator_);
  ladder_->add(make_wait_for_events());
  ladder_->add(make_stitch());
  ladder_->add(make_release_cache(*allocator_));
  ladder_->add(make_trim_pools(*allocator_));
  allocator_->set_handler(ladder_.get());
  std::string text;
  Status status = Status::kOk;
  if (allocator_->heap(kDevice, &status, &text) != nullptr) return true;
  *error = text;
  return false;
}

SpillwayPlacement::~SpillwayPlacement() {
  if (allocator_ != nullptr) allocator_->set_handler(nullptr);
  ladder_.reset();
  allocator_.reset();
  for (CUstream stream : streams_)
    if (stream != nullptr) table_.cuStreamDestroy(stream);
  if (context_ == nullptr) return;
  CUcontext popped = nullptr;
  table_.cuCtxPopCurrent(&popped);
  table_.cuDevicePrimaryCtxRelease(0);
}

// The first stream is the default one.
StreamId SpillwayPlacement::stream_of(uint32_t number) {
  while (streams_.size() <= number) {
    CUstream made = nullptr;
    if (!streams_.empty()) table_.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
    streams_.push_back(made);
  }
  return StreamId{reinterpret_cast<uint64_t>(streams_[number])};
}

bool SpillwayPlacement::try_allocate(uint32_t block, const spillway::Request& request) {
  uint64_t address = 0;
  FailurePtr failure;
  if (allocator_->allocate(kDevice, request, &address, &failure) != Status::kOk) {
    largest_extent_ = failure == nullptr ? 0 : failure->event.largest_extent_bytes;
    return false;
  }
  if (addresses_.size() <= block) addresses_.resize(block + 1);
  addresses_[block] = address;
  return true;
}

bool SpillwayPlacement::allocate(uint32_t block, uint64_t bytes, uint32_t stream, uint32_t pool) {
  spillway::Request request;
  request.bytes = bytes;
  request.stream = stream_of(stream);
  request.pool = pool;
  if (try_allocate(block, request)) return true;
  if (pending_.empty()) return false;
  for (const uint32_t freed : pending_) free(freed);
  pending_.clear();
  return try_allocate(block, request);
}

void SpillwayPlacement::free(uint32_t block) {
  const uint64_t address = block < addresses_.size() ? std::exchange(addresses_[block], 0) : 0;
  if (address != 0) allocator_->free(address);
}

}  // namespace

std::unique_ptr<Placement> make_spillway_placement(uint64_t capacity, trace::Trace* trace,
                                                   std::string* error) {
  const driver::Table* table = simulator(error);
  if (table == nullptr) return nullptr;
  auto placement = std::make_unique<SpillwayPlacement>(*table);
  if (!placement->start(capacity, trace, error)) return nullptr;
  return placement;
}

}  // namespace spillway::tools
