#include "driver/host_pages.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "driver/mapping.h"

namespace spillway::driver {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNodes = "/sys/devices/system/node";

std::string text_in(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "0-15,32-47"; a node without CPUs has an empty line.
bool has_cpus(const fs::path& node) {
  return text_in(node / "cpulist").find_first_of("0123456789") != std::string::npos;
}

// "Node 0 MemTotal:       24689876 kB"
bool has_memory(const fs::path& node) {
  const std::string text = text_in(node / "meminfo");
  const size_t at = text.find("MemTotal:");
  if (at == std::string::npos) return false;
  const size_t digit = text.find_first_of("0123456789", at);
  return digit != std::string::npos && text[digit] != '0';
}

std::optional<int> node_number(const std::string& name) {
  constexpr std::string_view kPrefix = "node";
  int number = 0;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + kPrefix.size(), end, number);
  return error == std::errc() && at == end ? std::optional(number) : std::nullopt;
}

std::set<int> usable_nodes(const std::string& folder) {
  std::set<int> nodes;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const auto number = node_number(entry.path().filename().string());
    if (number && has_cpus(entry.path()) && has_memory(entry.path())) nodes.insert(*number);
  }
  return nodes;
}

CUmemLocation on_node(int node) {
  return {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node};
}

std::string text_of(const CUmemLocation& place) {
  return place.type == CU_MEM_LOCATION_TYPE_HOST ? "the host without a node"
                                                 : "node " + std::to_string(place.id);
}

// One page at one place: as far as it came.
class Trial {
 public:
  Trial(const Table& table, uint64_t bytes) : table_(table), page_{.handle = 0, .bytes = bytes} {}
  ~Trial() {
    if (mapped_) unmap(table_, address_, page_.bytes);
    if (page_.handle != 0) table_.cuMemRelease(page_.handle);
    if (address_ != 0) table_.cuMemAddressFree(address_, page_.bytes);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  CUresult create(const CUmemLocation& place) {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = place;
    failed_ = "cuMemAddressReserve";
    CUresult result = table_.cuMemAddressReserve(&address_, page_.bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) return result;
    failed_ = "cuMemCreate";
    return table_.cuMemCreate(&page_.handle, page_.bytes, &prop, 0);
  }
  CUresult map(std::span<const CUmemAccessDesc> access) {
    failed_ = "cuMemMap or cuMemSetAccess";
    CUresult result = driver::map(table_, address_, {&page_, 1}, access);
    if (result != CUDA_SUCCESS) return result;
    failed_ = "cuMemUnmap";
    result = unmap(table_, address_, page_.bytes);
    mapped_ = result != CUDA_SUCCESS;
    return result;
  }
  bool can_map() const { return page_.handle != 0 && !mapped_; }
  const char* failed() const { return failed_; }

 private:
  const Table& table_;
  Page page_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
  const char* failed_ = "";
};

}  // namespace

std::vector<CUmemLocation> host_locations(int named_node, const std::string& nodes_folder) {
  std::set<int> nodes = usable_nodes(nodes_folder);
  std::vector<CUmemLocation> places;
  const bool unknown = nodes.empty();
  if (unknown) nodes = {0};
  if (named_node >= 0 && (unknown || nodes.contains(named_node))) {
    places.push_back(on_node(named_node));
    nodes.erase(named_node);
  }
  for (const int node : nodes) places.push_back(on_node(node));
  places.push_back({.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0});
  return places;
}

CUmemAccessDesc cpu_access_to(const CUmemLocation& place) {
  return {.location = place, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

std::optional<HostPlace> find_host_place(const Table& table, CUdevice device, uint64_t bytes,
                                         std::string* why_not, bool* may_work_later) {
  *may_work_later = false;
  int named = -1;
  if (table.cuDeviceGetAttribute(&named, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) != CUDA_SUCCESS)
    named = -1;
  for (const CUmemLocation& place : host_locations(named, kNodes)) {
    const CUmemAccessDesc access[] = {{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                      cpu_access_to(place)};
    Trial trial(table, bytes);
    CUresult result = trial.create(place);
    if (trial.can_map()) result = trial.map(access);
    if (result == CUDA_SUCCESS) return HostPlace{place, true};
    if (trial.can_map()) result = trial.map({access, 1});
    if (result == CUDA_SUCCESS) return HostPlace{place, false};
    *may_work_later = *may_work_later || result == CUDA_ERROR_OUT_OF_MEMORY;
    *why_not += (why_not->empty() ? "" : "; ") + std::string("on ") + text_of(place) + ": " + trial.failed() +
                ": " + describe(table, result);
  }
  return std::nullopt;
}

}  // namespace spillway::driver
