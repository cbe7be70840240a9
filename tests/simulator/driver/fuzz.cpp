// Random typed operations on the virtual memory calls, each result compared with a simple model of what the
// driver does: granules in maps, no cleverness. A failing run prints its operations.
#include <map>
#include <optional>
#include <random>
#include <sstream>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;

enum class Kind { kReserve, kUnreserve, kCreate, kRelease, kRetain, kMap, kUnmap, kAccess, kAlloc, kFree };
constexpr int kKinds = 10;

struct Operation {
  Kind kind;
  uint64_t which = 0;  // picks a known range, page or allocation
  uint64_t granules = 1;
  int64_t at = 0;       // granules from the start of the range
  bool broken = false;  // an argument is made wrong
};

std::string print(const Operation& op) {
  static const char* const kNames[] = {"reserve", "unreserve", "create", "release", "retain",
                                       "map",     "unmap",     "access", "alloc",   "free"};
  std::ostringstream out;
  out << kNames[static_cast<int>(op.kind)] << " which " << op.which << " granules " << op.granules << " at "
      << op.at << (op.broken ? " broken" : "");
  return out.str();
}

// What the driver has, as the documentation tells it.
struct Model {
  struct PageState {
    uint64_t granules;
    unsigned references, mappings = 0;
  };
  struct MappingState {
    uint64_t granules;
    CUmemGenericAllocationHandle page;
    bool readable = false;
  };
  uint64_t capacity_granules;
  std::map<CUdeviceptr, uint64_t> ranges;  // granules
  std::map<CUmemGenericAllocationHandle, PageState> pages;
  std::map<CUdeviceptr, MappingState> mappings;
  std::map<CUdeviceptr, uint64_t> allocations;

  uint64_t used() const {
    uint64_t granules = 0;
    for (const auto& [handle, page] : pages) granules += page.granules;
    for (const auto& [address, size] : allocations) granules += size;
    return granules;
  }
  void drop(CUmemGenericAllocationHandle handle) {
    const auto& page = pages.at(handle);
    if (page.references == 0 && page.mappings == 0) pages.erase(handle);
  }
  bool mapped(CUdeviceptr address) const {
    for (const auto& [start, mapping] : mappings)
      if (address >= start && address < start + mapping.granules * kPage) return true;
    return false;
  }
  bool any_mapped(CUdeviceptr address, uint64_t granules) const {
    for (uint64_t i = 0; i < granules; ++i)
      if (mapped(address + i * kPage)) return true;
    return false;
  }
  // True if the range is made of whole mappings, one after the other.
  bool whole(CUdeviceptr address, uint64_t granules) const {
    const CUdeviceptr end = address + granules * kPage;
    while (address < end) {
      const auto mapping = mappings.find(address);
      if (mapping == mappings.end()) return false;
      address += mapping->second.granules * kPage;
    }
    return address == end && granules > 0;
  }
};

class Comparison {
 public:
  Comparison(const Table& table, uint64_t seed) : table_(table), random_(seed) {
    size_t free = 0, total = 0;
    EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    model_.capacity_granules = total / kPage;
  }

  void steps(int count) {
    for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
      const Operation op = next();
      log_ << print(op) << "\n";
      apply(op);
      check_accounts();
      if (testing::Test::HasFailure()) std::fprintf(stderr, "the operations:\n%s", log_.str().c_str());
    }
  }

 private:
  uint64_t pick(uint64_t below) { return random_() % below; }
  Operation next() {
    return {.kind = static_cast<Kind>(pick(kKinds)),
            .which = pick(1000),
            .granules = pick(6) + 1,
            .at = static_cast<int64_t>(pick(8)) - 1,
            .broken = pick(12) == 0};
  }
  template <typename Map>
  std::optional<typename Map::key_type> known(const Map& map, uint64_t which) const {
    if (map.empty()) return std::nullopt;
    return std::next(map.begin(), static_cast<long>(which % map.size()))->first;
  }
  // Unknown things are asked for by a number that was never given out.
  CUmemGenericAllocationHandle page(const Operation& op) const {
    return op.broken ? 3 : known(model_.pages, op.which).value_or(3);
  }

  void apply(const Operation& op) {
    switch (op.kind) {
      case Kind::kReserve:
        return reserve(op);
      case Kind::kUnreserve:
        return unreserve(op);
      case Kind::kCreate:
        return create(op);
      case Kind::kRelease:
        return release(op);
      case Kind::kRetain:
        return retain(op);
      case Kind::kMap:
        return map(op);
      case Kind::kUnmap:
        return unmap(op);
      case Kind::kAccess:
        return access(op);
      case Kind::kAlloc:
        return alloc(op);
      case Kind::kFree:
        return free(op);
    }
  }

  void reserve(const Operation& op) {
    CUdeviceptr address = 0;
    const uint64_t granules = op.granules * 2;
    const CUresult result = table_.cuMemAddressReserve(&address, granules * kPage + op.broken, 0, 0, 0);
    ASSERT_EQ(result, op.broken ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    if (op.broken) return;
    for (const auto& [start, size] : model_.ranges)
      ASSERT_TRUE(address + granules * kPage <= start || address >= start + size * kPage) << "ranges overlap";
    model_.ranges[address] = granules;
  }
  void unreserve(const Operation& op) {
    const auto range = known(model_.ranges, op.which);
    if (!range) return;
    const uint64_t granules = model_.ranges[*range] + op.broken;
    const bool right = !op.broken && !model_.any_mapped(*range, granules);
    ASSERT_EQ(table_.cuMemAddressFree(*range, granules * kPage),
              right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    if (right) model_.ranges.erase(*range);
  }
  void create(const Operation& op) {
    const CUmemAllocationProp prop = device_page();
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = table_.cuMemCreate(&handle, op.granules * kPage + op.broken, &prop, 0);
    const bool room = model_.used() + op.granules <= model_.capacity_granules;
    ASSERT_EQ(result, op.broken ? CUDA_ERROR_INVALID_VALUE : room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    if (result == CUDA_SUCCESS) model_.pages[handle] = {op.granules, 1};
  }
  void release(const Operation& op) {
    const auto handle = page(op);
    const auto found = model_.pages.find(handle);
    const bool right = found != model_.pages.end() && found->second.references > 0;
    ASSERT_EQ(table_.cuMemRelease(handle), right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    if (!right) {
      ++violations_;
      return;
    }
    --found->second.references;
    model_.drop(handle);
  }
  void retain(const Operation& op) {
    const auto mapping = known(model_.mappings, op.which);
    if (!mapping) return;
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(table_.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(*mapping + 5)),
              CUDA_SUCCESS);
    ASSERT_EQ(handle, model_.mappings[*mapping].page);
    ++model_.pages[handle].references;
  }
  void map(const Operation& op) {
    const auto range = known(model_.ranges, op.which);
    if (!range) return;
    const auto handle = page(op);
    const auto found = model_.pages.find(handle);
    const CUdeviceptr address = *range + static_cast<uint64_t>(op.at) * kPage;
    const bool inside = op.at >= 0 && static_cast<uint64_t>(op.at) + op.granules <= model_.ranges[*range];
    const bool right = found != model_.pages.end() && found->second.references > 0 &&
                       op.granules <= found->second.granules && inside &&
                       !model_.any_mapped(address, op.granules);
    // The ranges are neighbours at times: a mapping before the start of one is inside another, and refused
    // all the same only if it is mapped or crosses an end. The model asks for the range that was meant, so
    // leave these out.
    if (!inside) return;
    ASSERT_EQ(table_.cuMemMap(address, op.granules * kPage, 0, handle, 0),
              right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    if (!right) return;
    model_.mappings[address] = {op.granules, handle};
    ++found->second.mappings;
  }
  CUdeviceptr some_address(const Operation& op) const {
    const auto mapping = known(model_.mappings, op.which);
    return mapping ? *mapping + (op.broken ? kPage : 0) : 0;
  }
  void unmap(const Operation& op) {
    const CUdeviceptr address = some_address(op);
    if (!address) return;
    const bool right = model_.whole(address, op.granules);
    ASSERT_EQ(table_.cuMemUnmap(address, op.granules * kPage),
              right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    for (CUdeviceptr at = address; right && at < address + op.granules * kPage;) {
      const auto mapping = model_.mappings.find(at);
      const auto handle = mapping->second.page;
      at += mapping->second.granules * kPage;
      model_.mappings.erase(mapping);
      --model_.pages.at(handle).mappings;
      model_.drop(handle);
    }
  }
  void access(const Operation& op) {
    const CUdeviceptr address = some_address(op);
    if (!address) return;
    const bool right = model_.whole(address, op.granules);
    const CUmemAccessDesc both = read_write();
    ASSERT_EQ(table_.cuMemSetAccess(address, op.granules * kPage, &both, 1),
              right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    if (!right) return;
    ASSERT_EQ(table_.cuMemsetD8(address, 1, op.granules * kPage), CUDA_SUCCESS);
    ASSERT_EQ(table_.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  void alloc(const Operation& op) {
    CUdeviceptr address = 0;
    const bool room = model_.used() + op.granules <= model_.capacity_granules;
    ASSERT_EQ(table_.cuMemAlloc(&address, op.granules * kPage - 7),
              room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
    if (room) model_.allocations[address] = op.granules;
  }
  void free(const Operation& op) {
    const auto allocation = known(model_.allocations, op.which);
    if (!allocation) return;
    ASSERT_EQ(table_.cuMemFree(*allocation + op.broken), op.broken ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
    violations_ += op.broken;
    if (!op.broken) model_.allocations.erase(*allocation);
  }

  void check_accounts() {
    size_t free = 0, total = 0;
    ASSERT_EQ(table_.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    ASSERT_EQ((total - free) / kPage, model_.used());
    ASSERT_EQ(counts(table_).live_pages_bytes, model_.used() * kPage);
    ASSERT_EQ(counts(table_).violations, violations_);
  }

  const Table& table_;
  std::mt19937_64 random_;
  Model model_;
  uint64_t violations_ = 0;
  std::ostringstream log_;
};

TEST(Fuzz, the_memory_calls_do_what_the_model_does) {
  for (uint64_t seed = 1; seed <= 12; ++seed)
    in_process({{"SPILLWAY_SIM_CAPACITY", "128MiB"}, {"SPILLWAY_SIM_VALUES", seed % 2 ? "zeros" : "compute"}},
               [&] { Comparison(started_driver(), seed).steps(4000); });
}

}  // namespace
}  // namespace spillway::test
