#include <algorithm>
#include <string>

#include "driver/mapping.h"
#include "driver/probe.h"
#include "tools/spillway/doctor/trials.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using driver::Features;
using driver::Table;

struct Card {
  std::string name;
  uint64_t bytes = 0;
  Features features;
};

int version_of(const Table& table) {
  int version = 0;
  table.cuDriverGetVersion(&version);
  return version;
}

std::string version_text(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// What follows from a driver's being newer than the hooks, or of an older major version; "" for neither.
std::string version_advice(int version) {
  if (version > CUDA_VERSION)
    return "this version of Spillway knows the functions of " + version_text(CUDA_VERSION) +
           ": what newer ones take is not counted, and --mode replace moves nothing once the program has "
           "called one that works on memory; 'spillway run' names those that it called";
  const int major = version / 1000, newest = CUDA_VERSION / 1000;
  if (major == newest) return "";
  return "programs whose CUDA runtime is of CUDA " + std::to_string(newest) +
         " fail with cudaErrorInsufficientDriver, those of CUDA " + std::to_string(major) +
         " work: update the driver, or use builds for CUDA " + std::to_string(major);
}

// Functions that came after the driver. Spillway calls none of them.
std::vector<Trial> try_newer_functions(const Table& table) {
  const std::vector<const char*> names = driver::lacking(table);
  if (names.empty()) return {};
  constexpr size_t kMost = 3;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i)
    list += (i == 0 ? "" : ", ") + std::string(names[i]);
  const std::string count = count_text(names.size(), "function", "functions");
  return {{"newer functions", TrialState::kLimited,
           count + " of " + version_text(CUDA_VERSION) + " missing, such as " + list,
           "Spillway does without; a program that looks for one of them finds none"}};
}

std::vector<Card> look_at_cards(const Table& table, int count) {
  std::vector<Card> cards(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    Card& card = cards[static_cast<size_t>(i)];
    char name[128] = "";
    size_t bytes = 0;
    if (table.cuDeviceGetName(name, sizeof name - 1, i) == CUDA_SUCCESS) card.name = name;
    if (table.cuDeviceTotalMem(&bytes, i) == CUDA_SUCCESS) card.bytes = bytes;
    card.features = driver::probe(table, i, driver::HostPagesTrial::kYes);
  }
  return cards;
}

// The probe's line about a feature: "host pages: cuMemCreate: CUDA_ERROR_NOT_SUPPORTED (...)".
std::string why_not(const Features& features, const std::string& feature) {
  const size_t at = features.why_not.find(feature + ": ");
  if (at == std::string::npos) return features.why_not.substr(0, features.why_not.find('\n'));
  const size_t from = at + feature.size() + 2;
  return features.why_not.substr(from, features.why_not.find('\n', from) - from);
}

// One line for all cards: a feature that some lack is limited.
Trial feature_trial(const std::vector<Card>& cards, bool Features::* feature, const std::string& name,
                    const std::string& worked, const std::string& advice) {
  std::string with, without;
  for (size_t i = 0; i < cards.size(); ++i) {
    const bool has = cards[i].features.*feature;
    std::string& list = has ? with : without;
    list += (list.empty() ? "" : ", ") + std::to_string(i);
    if (!has) list += " (" + why_not(cards[i].features, name) + ")";
  }
  const std::string on = cards.size() == 1 ? "" : "on " + with + ": ";
  if (without.empty()) return {name, TrialState::kOk, on + worked, ""};
  const bool none = with.empty();
  return {name, none ? TrialState::kMissing : TrialState::kLimited,
          (none ? "" : on + worked + "; ") + "not on " + without, advice};
}

// A page of one device, mapped for both.
std::string share_page(const Table& table, int owner, int peer, uint64_t bytes) {
  int can = 0;
  if (table.cuDeviceCanAccessPeer(&can, peer, owner) != CUDA_SUCCESS || can == 0) return "the devices cannot";
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = owner};
  CUdeviceptr address = 0;
  driver::Page page{.handle = 0, .bytes = bytes};
  CUresult result = table.cuMemAddressReserve(&address, bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return driver::describe(table, result);
  result = table.cuMemCreate(&page.handle, bytes, &prop, 0);
  if (result == CUDA_SUCCESS) {
    CUmemAccessDesc access[2];
    for (int i = 0; i < 2; ++i)
      access[i] = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i == 0 ? owner : peer},
                   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = driver::map(table, address, {&page, 1}, {access, 2});
    if (result == CUDA_SUCCESS) driver::unmap(table, address, bytes);
    table.cuMemRelease(page.handle);
  }
  table.cuMemAddressFree(address, bytes);
  return result == CUDA_SUCCESS ? "" : driver::describe(table, result);
}

bool has_native_atomics(const Table& table, int from, int to) {
  int all = 0;
  return table.cuDeviceGetP2PAttribute(&all, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from, to) ==
             CUDA_SUCCESS &&
         all != 0;
}

Trial try_peers(const Table& table, const std::vector<Card>& cards) {
  const std::string name = "peer access";
  const int count = static_cast<int>(cards.size());
  if (count == 1) return {name, TrialState::kOk, "one device: nothing to share", ""};
  std::string without, plain;
  int works = 0;
  for (int owner = 0; owner < count; ++owner) {
    for (int peer = 0; peer < count; ++peer) {
      if (owner == peer) continue;
      const uint64_t bytes = cards[static_cast<size_t>(owner)].features.granularity_bytes;
      const std::string failed = bytes == 0 ? "no virtual memory" : share_page(table, owner, peer, bytes);
      if (failed.empty()) {
        ++works;
        if (!has_native_atomics(table, peer, owner))
          plain += (plain.empty() ? "" : ", ") + std::to_string(peer) + " of " + std::to_string(owner) + "'s";
      } else {
        without += (without.empty() ? "" : ", ") + std::to_string(peer) + " of " + std::to_string(owner) +
                   "'s (" + failed + ")";
      }
    }
  }
  if (without.empty() && plain.empty())
    return {name, TrialState::kOk, "a page of each device was mapped for each other", ""};
  if (without.empty())
    return {name, TrialState::kLimited,
            "a page of each device was mapped for each other; no native atomics for " + plain +
                ": spill_to_peer leaves such a device alone, because atomics on its memory lose updates",
            "none is needed: memory in use goes to the host there; NVLink has native atomics"};
  return {name, works == 0 ? TrialState::kMissing : TrialState::kLimited, "no access for " + without,
          "look at nvidia-smi topo -p2p r; a memory controller's isolation (IOMMU, ACS) may forbid it"};
}

std::string list_of(const std::vector<Card>& cards) {
  std::string text;
  for (size_t i = 0; i < cards.size(); ++i)
    text +=
        (i == 0 ? "" : ", ") + std::to_string(i) + ": " + cards[i].name + " of " + size_text(cards[i].bytes);
  return text;
}

std::vector<Trial> missing(const std::string& found, const std::string& advice) {
  return {{kDriverTrial, TrialState::kMissing, found, advice}};
}

}  // namespace

std::vector<Trial> try_driver() {
  driver::LoadError error;
  const Table* table = driver::process_table(&error);
  if (table == nullptr) return missing(error.text, "in a container, start it with --gpus all");
  const int version = version_of(*table);
  const std::string kind = table->simulator != nullptr ? ", simulated" : "";
  CUresult result = table->cuInit(0);
  int count = 0;
  if (result == CUDA_SUCCESS) result = table->cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS || count == 0)
    return missing(version_text(version) + kind + "; cuInit: " + driver::describe(*table, result) + ", " +
                       count_text(static_cast<uint64_t>(count), "device", "devices"),
                   "see whether nvidia-smi shows a device, and whether CUDA_VISIBLE_DEVICES hides it");
  const std::vector<Card> cards = look_at_cards(*table, count);
  const char* newer = "update the driver; in a virtual machine or under MIG it may be switched off";
  const std::string limits = version_advice(version);
  std::vector<Trial> trials{
      {kDriverTrial, limits.empty() ? TrialState::kOk : TrialState::kLimited,
       version_text(version) + kind + "; cuInit found " + list_of(cards), limits},
      feature_trial(cards, &Features::virtual_memory, "virtual memory",
                    "a page was created, mapped and released",
                    std::string("--mode replace needs it: ") + newer),
      feature_trial(
          cards, &Features::host_pages, "host pages", "a page of host memory was mapped",
          "needed to spill to host memory: in a container, allow the host's NUMA calls (CAP_SYS_NICE)"),
      feature_trial(
          cards, &Features::cpu_access, "CPU access", "the CPU can use a mapped page of host memory",
          "a library that reads a spilled block on the CPU, because the driver calls it host memory, "
          "crashes: a newer driver may allow it"),
      feature_trial(cards, &Features::file_descriptors, "file descriptors",
                    "a page was exported as a descriptor and imported again",
                    std::string("needed to share tensors between processes: ") + newer),
      try_legacy_handles(*table, count),
      try_peers(*table, cards),
  };
  const std::vector<Trial> newer_functions = try_newer_functions(*table);
  trials.insert(trials.begin() + 1, newer_functions.begin(), newer_functions.end());
  return trials;
}

}  // namespace spillway::tools
