// Point 17: whether cuGetProcAddress gives the addresses that the library's symbols have. A library that
// looks functions up so is not met by hooks on the symbols where they differ.
#include <dlfcn.h>

#include <cstring>
#include <string>

#include "tools/gpu_probe/driver.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

struct Named {
  const char* name;  // without a version
  int version;       // of CUDA, the first
  bool per_thread;
  const char* symbol;
};
constexpr Named kNamed[] = {
#define SPILLWAY_DRIVER_VERSION(name, version, per_thread, symbol) {name, version, per_thread != 0, symbol},
#include "driver/versions.inc"
#undef SPILLWAY_DRIVER_VERSION
};

struct Counts {
  int equal = 0, differ = 0, no_address = 0, no_symbol = 0, neither = 0;
  std::string differing, symbols_alone, addresses_alone;
};

void note(std::string& list, const char* name) {
  constexpr size_t kMost = 4000;
  if (list.size() < kMost) list += (list.empty() ? "" : " ") + std::string(name);
}

void count(const Named& named, Counts& counts) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult found = {};
  const cuuint64_t flags =
      named.per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  cuda().cuGetProcAddress(named.name, &address, named.version, flags, &found);
  void* symbol = dlsym(cuda().library, named.symbol);
  if (!address && !symbol) {
    ++counts.neither;
  } else if (!address) {
    ++counts.no_address;
    note(counts.symbols_alone, named.symbol);
  } else if (!symbol) {
    ++counts.no_symbol;
    note(counts.addresses_alone, named.symbol);
  } else if (address == symbol) {
    ++counts.equal;
  } else {
    ++counts.differ;
    note(counts.differing, named.symbol);
  }
}

}  // namespace

void ask_addresses() {
  device();
  if (!cuda().cuGetProcAddress) return say("cuGetProcAddress", "this driver has none of version 2");
  int version = 0;
  cuda().cuDriverGetVersion(&version);
  Counts counts;
  for (const Named& named : kNamed)
    if (named.version <= version) count(named, counts);
  say("the same address", counts.equal);
  say("another address than the symbol's", counts.differ, "", {{"names", counts.differing}});
  say("a symbol alone", counts.no_address, "", {{"names", counts.symbols_alone}});
  say("an address alone", counts.no_symbol, "", {{"names", counts.addresses_alone}});
  say("neither", counts.neither);
}

}  // namespace spillway::probe
