#include "allocator/allocator.h"

#include <algorithm>

#include "allocator/accounting/budget.h"
#include "allocator/accounting/incident_totals.h"
#include "allocator/heap.h"
#include "allocator/tiers/page_file.h"
#include "allocator/tiling/page_map.h"

namespace spillway {

Allocator::Allocator(const driver::Table& table) : table_(table), page_map_(std::make_unique<PageMap>()) {}

Allocator::~Allocator() {
  for (auto& heap : heaps_) delete heap.load();
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
  std::unique_ptr<Device> opened = Device::open(table_, device, &unsupported, text);
  if (opened == nullptr) {
    *status = unsupported ? Status::kUnavailable : Status::kDriverFailed;
    return nullptr;
  }
  DeviceHeap* heap = std::make_unique<DeviceHeap>(*this, std::move(opened), order_base_.load()).release();
  heap->set_limit(default_limit_bytes_);
  {
    const Locked injection(injection_.mutex);
    if (injection_.next != 0) heap->set_slow(kSlowInjection);
  }
  const Locked observed(observer_mutex_);
  if (observer() != nullptr) heap->set_slow(kSlowWatched);
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
  Block* block = page_map_->find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->free(block, address, freed);
}

Status Allocator::record_stream(uint64_t address, StreamId stream) noexcept {
  Block* block = page_map_->find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->record_stream(block, address, stream);
}

void Allocator::touch(uint64_t address) noexcept {
  if (Block* block = page_map_->find(address))
    heaps_[block->device].load(std::memory_order_acquire)->touch(block, address);
}

void Allocator::tell_pressure() noexcept {
  if (const auto call = pressure_.exchange(nullptr)) call();
}

void Allocator::set_page_file(std::unique_ptr<PageFile> file) noexcept {
  page_file_ = std::move(file);
}

Status Allocator::set_site(uint64_t address, uint64_t site, uint64_t bytes) noexcept {
  Block* block = page_map_->find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->set_site(block, address, site, bytes);
}

std::vector<SiteHolding> Allocator::holders(DeviceId device) noexcept {
  DeviceHeap* heap = started(device);
  return heap == nullptr ? std::vector<SiteHolding>{} : heap->holders();
}

Status Allocator::add_block(uint64_t address, uint64_t bytes) noexcept {
  Block* block = page_map_->find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->add_block(block, address, bytes);
}

Status Allocator::touch_block(uint64_t address, FailurePtr* failure) noexcept {
  Block* block = page_map_->find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->touch_block(block, address, failure);
}

Status Allocator::done_block(uint64_t address) noexcept {
  Block* block = page_map_->find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->done_block(block, address);
}

Status Allocator::remove_block(uint64_t address, FailurePtr* failure) noexcept {
  Block* block = page_map_->find(address);
  if (block == nullptr) return Status::kNotFound;
  return heaps_[block->device].load(std::memory_order_acquire)->remove_block(block, address, failure);
}

Status Allocator::share(uint64_t address, SharedBlock* out, std::string* text) noexcept {
  Block* block = page_map_->find(address);
  if (block == nullptr) {
    *text = "no live block of Spillway's begins at the address";
    return Status::kNotFound;
  }
  return heaps_[block->device].load(std::memory_order_acquire)->share(block, address, out, text);
}

int Allocator::shared_descriptor(uint64_t serial) noexcept {
  for (auto& entry : heaps_) {
    DeviceHeap* heap = entry.load(std::memory_order_acquire);
    const int descriptor = heap == nullptr ? -1 : heap->shared_descriptor(serial);
    if (descriptor >= 0) return descriptor;
  }
  return -1;
}

Status Allocator::map_shared(DeviceId device, std::span<const SharedPage> pages, uint64_t* address,
                             std::string* text) noexcept {
  Status status = Status::kOk;
  DeviceHeap* heap = this->heap(device, &status, text);
  return heap == nullptr ? status : heap->map_shared(pages, address, text);
}

Status Allocator::unmap_shared(uint64_t address) noexcept {
  for (auto& entry : heaps_) {
    DeviceHeap* heap = entry.load(std::memory_order_acquire);
    if (heap != nullptr && heap->unmap_shared(address)) return Status::kOk;
  }
  return Status::kNotFound;
}

Status Allocator::grant(DeviceId owner, DeviceId peer, std::string* text) noexcept {
  Status status = Status::kOk;
  DeviceHeap* heap = this->heap(owner, &status, text);
  return heap == nullptr ? status : heap->grant(peer, text);
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
  return heap == nullptr || most_bytes == 0 ? 0 : heap->give_back(most_bytes, pool);
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

void Allocator::count_guest(DeviceId device, uint64_t bytes) noexcept {
  guests_[static_cast<size_t>(device)].fetch_add(bytes);
  if (budget_ != nullptr) budget::add(*budget_, static_cast<size_t>(device), bytes);
}

uint64_t Allocator::guest_bytes(DeviceId device) const noexcept {
  const int index = static_cast<int>(device);
  return index < 0 || index >= kMaxDevices ? 0 : guests_[index].load();
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

Status Allocator::memory(DeviceId device, Memory* out) noexcept {
  Status status = Status::kOk;
  DeviceHeap* heap = this->heap(device, &status, nullptr);
  if (heap != nullptr) *out = heap->memory();
  return status;
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
  const Locked guard(injection_.mutex);
  const uint64_t failed = injection_.failed;
  injection_.next = n;
  injection_.persistent = persistent;
  injection_.seen = injection_.failed = 0;
  for (auto& entry : heaps_) {
    DeviceHeap* heap = entry.load(std::memory_order_acquire);
    if (heap == nullptr) continue;
    if (n != 0)
      heap->set_slow(kSlowInjection);
    else
      heap->clear_slow(kSlowInjection);
  }
  return failed;
}

bool Allocator::inject(bool* persistent) noexcept {
  const Locked guard(injection_.mutex);
  if (injection_.next == 0) return false;
  ++injection_.seen;
  const bool fail =
      injection_.persistent ? injection_.seen >= injection_.next : injection_.seen == injection_.next;
  *persistent = fail && injection_.persistent;
  injection_.failed += fail ? 1 : 0;
  return fail;
}

uint64_t Allocator::requests() const noexcept {
  uint64_t sum = 0;
  for (const auto& entry : heaps_)
    if (const DeviceHeap* heap = entry.load(std::memory_order_acquire)) sum += heap->requests();
  return sum;
}

bool Allocator::check_invariants(std::string* broken) noexcept {
  for (auto& entry : heaps_) {
    DeviceHeap* heap = entry.load(std::memory_order_acquire);
    if (heap != nullptr && !heap->check_invariants(broken)) return false;
  }
  return true;
}

void Allocator::sample_memory() noexcept {
  for (auto& entry : heaps_)
    if (DeviceHeap* heap = entry.load(std::memory_order_acquire); heap != nullptr && !heap->forked())
      heap->sample_memory();
}

void Allocator::end_incident(Status status, uint64_t bytes, uint64_t us) noexcept {
  if (spillway_incident_totals* totals = totals_.load()) count_incident(*totals, status, bytes, us);
}

uint64_t Allocator::next_order() noexcept {
  const Locked guard(start_mutex_);
  uint64_t highest = order_base_.load();
  for (auto& entry : heaps_)
    if (DeviceHeap* heap = entry.load(); heap != nullptr && !heap->forked())
      highest = std::max(highest, heap->order());
  ++highest;
  order_base_.store(highest);
  for (auto& entry : heaps_)
    if (DeviceHeap* heap = entry.load(); heap != nullptr && !heap->forked()) heap->raise_order(highest);
  return highest;
}

}  // namespace spillway
