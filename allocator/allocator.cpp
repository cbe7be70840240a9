#include "allocator/allocator.h"

#include <algorithm>

#include "allocator/accounting/equation.h"
#include "allocator/accounting/incident_totals.h"
#include "allocator/accounting/journal.h"
#include "allocator/heap.h"

namespace spillway {

namespace {

// Without a context on the device, which would stay and take memory of it.
Status memory_of_unused(const driver::Table& table, DeviceId device, uint64_t limit, Memory* out) {
  CUdevice handle = 0;
  size_t total = 0;
  if (table.cuInit(0) != CUDA_SUCCESS) return Status::kDriverFailed;
  if (table.cuDeviceGet(&handle, static_cast<int>(device)) != CUDA_SUCCESS) return Status::kNotFound;
  if (table.cuDeviceTotalMem(&total, handle) != CUDA_SUCCESS) return Status::kDriverFailed;
  *out = {};
  out->device = total;
  out->limit = out->free = limit == 0 ? total : std::min<uint64_t>(limit, total);
  return Status::kOk;
}

}  // namespace

Allocator::Allocator(const driver::Table& table) : context_(std::make_unique<AllocatorContext>(table)) {}

Allocator::~Allocator() {
  for (auto& heap : heaps_) delete heap.load();
}

void Allocator::set_handler(OomHandler* handler) noexcept {
  context_->handler.store(handler);
}

void Allocator::set_trace(trace::Trace* trace) noexcept {
  context_->trace.store(trace);
}

trace::Trace* Allocator::trace() const noexcept {
  return context_->trace.load(std::memory_order_relaxed);
}

void Allocator::set_budget(spillway_budget* budget) noexcept {
  context_->budget = budget;
}

const spillway_budget* Allocator::budget() const noexcept {
  return context_->budget;
}

void Allocator::set_handle_rule(const HandleRule& rule) noexcept {
  context_->handle_rule = rule;
}

void Allocator::set_pressure(void (*call)()) noexcept {
  context_->pressure.store(call);
}

void Allocator::set_collector(void (*collect)(int32_t)) noexcept {
  context_->collector.store(collect);
}

const driver::Table& Allocator::table() const noexcept {
  return context_->table;
}

void Allocator::set_observer(Observer* observer) noexcept {
  std::atomic<Observer*>& told = context_->observer;
  const Locked guard(obprovider_mutex_);
  if (observer != nullptr) told.store(observer, std::memory_order_release);
  for (auto& entry : heaps_) {
    DeviceHeap* heap = entry.load(std::memory_order_acquire);
    if (heap == nullptr) continue;
    if (observer != nullptr)
      heap->state().set_slow(kSlowWatched);
    else
      heap->state().clear_slow(kSlowWatched);
  }
  if (observer == nullptr) told.store(nullptr, std::memory_order_release);
}

DeviceHeap* Allocator::started(DeviceId device) const noexcept {
  const int index = static_cast<int>(device);
  return index < 0 || index >= kMaxDevices ? nullptr : heaps_[index].load(std::memory_order_acquire);
}

DeviceHeap* Allocator::heap(DeviceId device, Status* status, std::string* text) noexcept {
  if (DeviceHeap* heap = started(device)) [[likely]]
    return heap;
  Status ignored = Status::kOk;
  std::string unread;
  if (status == nullptr) status = &ignored;
  if (text == nullptr) text = &unread;
  const int index = static_cast<int>(device);
  if (index < 0 || index >= kMaxDevices) {
    *status = Status::kNotFound;
    *text = "there is no device " + std::to_string(index);
    return nullptr;
  }
  const Locked guard(start_mutex_);
  if (DeviceHeap* heap = started(device)) return heap;
  bool unsupported = false;
  std::unique_ptr<Device> opened = Device::open(context_->table, device, &unsupported, text);
  if (opened == nullptr) {
    *status = unsupported ? Status::kUnavailable : Status::kDriverFailed;
    return nullptr;
  }
  DeviceHeap* heap = std::make_unique<DeviceHeap>(*context_, std::move(opened), order_base_.load()).release();
  heap->set_limit(default_limit_bytes_);
  if (context_->injection.armed()) heap->state().set_slow(kSlowInjection);
  const Locked observed(obprovider_mutex_);
  if (context_->observer.load() != nullptr) heap->state().set_slow(kSlowWatched);
  heaps_[index].store(heap, std::memory_order_release);
  return heap;
}

Status Allocator::allocate(DeviceId device, const Request& request, uint64_t* address,
                           FailurePtr* failure) noexcept {
  *address = 0;
  if (request.bytes == 0) return Status::kOk;
  DeviceHeap* heap = started(device);
  if (heap == nullptr) [[unlikely]] {
    Status status = Status::kOk;
    std::string text;
    heap = this->heap(device, &status, &text);
    if (heap == nullptr) {
      if (failure != nullptr) {
        *failure = std::make_unique<Failure>();
        (*failure)->text = text;
      }
      return status;
    }
  }
  return heap->allocate(request, address, failure);
}

Status Allocator::free(uint64_t address, FreedBlock* freed) noexcept {
  Block* block = context_->page_map.find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->free(block, address, freed);
}

Status Allocator::record_stream(uint64_t address, StreamId stream) noexcept {
  Block* block = context_->page_map.find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->record_stream(block, address, stream);
}

Status Allocator::set_site(uint64_t address, uint64_t site, uint64_t bytes) noexcept {
  Block* block = context_->page_map.find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->set_site(block, address, site, bytes);
}

std::vector<SiteHolding> Allocator::holders(DeviceId device) noexcept {
  DeviceHeap* heap = started(device);
  return heap == nullptr ? std::vector<SiteHolding>{} : heap->holders();
}

Status Allocator::add_block(uint64_t address, uint64_t bytes) noexcept {
  Block* block = context_->page_map.find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->returns().add(block, address, bytes);
}

Status Allocator::touch_block(uint64_t address, FailurePtr* failure) noexcept {
  Block* block = context_->page_map.find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->returns().touch(block, address, failure);
}

Status Allocator::done_block(uint64_t address) noexcept {
  Block* block = context_->page_map.find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->returns().done(block, address);
}

Status Allocator::remove_block(uint64_t address, FailurePtr* failure) noexcept {
  Block* block = context_->page_map.find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->returns().remove(block, address, failure);
}

Status Allocator::share(uint64_t address, SharedBlock* out, std::string* text) noexcept {
  Block* block = context_->page_map.find(address);
  if (block == nullptr) {
    *text = "no live block of Spillway's begins at the address";
    return Status::kNotFound;
  }
  return heaps_[block->device].load(std::memory_order_acquire)->sharing().share(block, address, out, text);
}

int Allocator::shared_descriptor(uint64_t serial) noexcept {
  for (auto& entry : heaps_) {
    DeviceHeap* heap = entry.load(std::memory_order_acquire);
    const int descriptor = heap == nullptr ? -1 : heap->sharing().descriptor(serial);
    if (descriptor >= 0) return descriptor;
  }
  return -1;
}

Status Allocator::map_shared(DeviceId device, std::span<const SharedPage> pages, uint64_t* address,
                             std::string* text) noexcept {
  Status status = Status::kOk;
  DeviceHeap* heap = this->heap(device, &status, text);
  return heap == nullptr ? status : heap->sharing().map(pages, address, text);
}

Status Allocator::unmap_shared(uint64_t address) noexcept {
  for (auto& entry : heaps_) {
    DeviceHeap* heap = entry.load(std::memory_order_acquire);
    if (heap != nullptr && heap->sharing().unmap(address)) return Status::kOk;
  }
  return Status::kNotFound;
}

Status Allocator::grant(DeviceId owner, DeviceId peer, std::string* text) noexcept {
  Status status = Status::kOk;
  DeviceHeap* heap = this->heap(owner, &status, text);
  return heap == nullptr ? status : heap->sharing().grant(peer, text);
}

Status Allocator::allocate_at(DeviceId device, const Request& request, uint64_t address) noexcept {
  if (request.bytes == 0 || address % kUnitBytes != 0) return Status::kInvalid;
  DeviceHeap* heap = started(device);
  return heap == nullptr ? Status::kNotFound : heap->allocate_at(request, address);
}

Status Allocator::find_block(uint64_t address, BlockInfo* out) noexcept {
  for (auto& entry : heaps_) {
    DeviceHeap* heap = entry.load(std::memory_order_acquire);
    if (heap != nullptr && heap->find_block(address, out)) return Status::kOk;
  }
  return Status::kNotFound;
}

Status Allocator::blocks(DeviceId device, std::vector<BlockInfo>* out) noexcept {
  DeviceHeap* heap = started(device);
  if (heap != nullptr) heap->blocks(out);
  return heap == nullptr ? Status::kNotFound : Status::kOk;
}

uint64_t Allocator::empty_cache(DeviceId device, uint64_t pool, uint64_t most_bytes) noexcept {
  DeviceHeap* heap = started(device);
  return heap == nullptr || most_bytes == 0 ? 0 : heap->give_back(most_bytes, pool, Round::kDown);
}

Status Allocator::set_pool(DeviceId device, uint64_t pool, uint32_t flags) noexcept {
  if (pool == 0 || pool == kEveryPool) return Status::kInvalid;
  Status status = Status::kOk;
  DeviceHeap* heap = this->heap(device, &status, nullptr);
  return heap == nullptr ? status : heap->set_pool(pool, flags);
}

void Allocator::limit_all(uint64_t bytes) noexcept {
  const Locked guard(start_mutex_);
  default_limit_bytes_ = bytes;
  for (auto& entry : heaps_)
    if (DeviceHeap* heap = entry.load(std::memory_order_acquire)) heap->set_limit(bytes);
}

uint64_t Allocator::default_limit() noexcept {
  const Locked guard(start_mutex_);
  return default_limit_bytes_;
}

Status Allocator::limit(DeviceId device, uint64_t bytes) noexcept {
  Status status = Status::kOk;
  DeviceHeap* heap = this->heap(device, &status, nullptr);
  if (heap != nullptr) heap->set_limit(bytes);
  return status;
}

Status Allocator::memory(DeviceId device, Memory* out, std::optional<uint64_t> driver_free) noexcept {
  DeviceHeap* heap = started(device);
  if (heap == nullptr) return memory_of_unused(context_->table, device, default_limit(), out);
  *out = memory_of(heap->state(), driver_free);
  return Status::kOk;
}

Status Allocator::reset_peaks(DeviceId device) noexcept {
  DeviceHeap* heap = started(device);
  if (heap != nullptr) heap->reset_peaks();
  return heap == nullptr ? Status::kNotFound : Status::kOk;
}

DeviceUsage Allocator::usage(DeviceId device) noexcept {
  DeviceHeap* heap = started(device);
  return heap == nullptr ? DeviceUsage{} : heap->usage();
}

Status Allocator::reset_totals(DeviceId device) noexcept {
  DeviceHeap* heap = started(device);
  if (heap != nullptr) heap->reset_totals();
  return heap == nullptr ? Status::kNotFound : Status::kOk;
}

uint64_t Allocator::fail_request(uint64_t n, bool persistent) noexcept {
  const Locked guard(start_mutex_);  // the setting and the heaps' flags change together
  const uint64_t failed = context_->injection.set(n, persistent);
  for (auto& entry : heaps_) {
    DeviceHeap* heap = entry.load(std::memory_order_acquire);
    if (heap == nullptr) continue;
    if (n != 0)
      heap->state().set_slow(kSlowInjection);
    else
      heap->state().clear_slow(kSlowInjection);
  }
  return failed;
}

uint64_t Allocator::requests() const noexcept {
  uint64_t sum = 0;
  for (const auto& entry : heaps_)
    if (const DeviceHeap* heap = entry.load(std::memory_order_acquire))
      sum += heap->state().requests.load(std::memory_order_relaxed);
  return sum;
}

bool Allocator::check_invariants(std::string* broken) noexcept {
  for (auto& entry : heaps_) {
    DeviceHeap* heap = entry.load(std::memory_order_acquire);
    if (heap != nullptr && !spillway::check_invariants(heap->state(), broken)) return false;
  }
  return true;
}

void Allocator::sample_memory() noexcept {
  for (auto& entry : heaps_)
    if (DeviceHeap* heap = entry.load(std::memory_order_acquire); heap != nullptr && !heap->state().forked())
      journal::memory(heap->state());
}

uint64_t Allocator::begin_incident() noexcept {
  return context_->incidents.fetch_add(1) + 1;
}

void Allocator::end_incident(Status status, uint64_t bytes, uint64_t us) noexcept {
  if (spillway_incident_totals* totals = context_->incident_totals.load())
    count_incident(*totals, status, bytes, us);
}

void Allocator::count_incidents(spillway_incident_totals* totals) noexcept {
  context_->incident_totals.store(totals);
}

uint64_t Allocator::next_order() noexcept {
  const Locked guard(start_mutex_);
  uint64_t highest = order_base_.load();
  const auto each_started = [&](const auto& visit) {
    for (auto& entry : heaps_)
      if (DeviceHeap* heap = entry.load(); heap != nullptr && !heap->state().forked()) visit(heap->state());
  };
  each_started([&](HeapState& heap) { highest = std::max(highest, journal::next_order(heap)); });
  ++highest;
  order_base_.store(highest);
  each_started([&](HeapState& heap) {
    const Locked order(heap.lock);
    heap.order = std::max(heap.order, highest);
  });
  return highest;
}

}  // namespace spillway
