// Sends one request of each kind through the allocator on the simulated driver and prints every function that
// it enters: for each a line of its depth, its address and that of its caller's call. The allocator and the
// ladder are compiled with calls to the two hooks below; tools/checks/walk gives the addresses their names.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/allocator.h"
#include "strategies/ladder/ladder.h"

namespace {

struct Entry {
  unsigned depth;
  void* function;
};
// Not a vector: its functions are entered too.
constexpr size_t kMost = 1 << 16;
Entry recorded[kMost];
size_t count = kMost;  // then nothing is recorded
unsigned depth = 0;

}  // namespace

extern "C" void __cyg_profile_func_enter(void* function, void*) {
  if (count < kMost) recorded[count++] = {depth++, function};
}

extern "C" void __cyg_profile_func_exit(void*, void*) {
  if (count < kMost) --depth;
}

namespace spillway {
namespace {

constexpr uint64_t kMiB = 1 << 20;

const driver::Table& simulated() {
  const char* build = std::getenv("SPILLWAY_BUILD_DIR");
  const std::string path = std::string(build == nullptr ? "build" : build) + "/lib/sim/libcuda.so.1";
  driver::LoadError error;
  const driver::Table* table = driver::resolve(path.c_str(), &error);
  if (table == nullptr) {
    std::fprintf(stderr, "%s\n", error.text.c_str());
    std::exit(1);
  }
  return *table;
}

class Walks {
 public:
  Walks() {
    ladder_.add(make_stitch());
    allocator_.set_handler(&ladder_);
  }
  ~Walks() { allocator_.set_handler(nullptr); }
  Walks(const Walks&) = delete;
  Walks& operator=(const Walks&) = delete;

  void run() {
    allocator_.limit_all(64 * kMiB);
    get(8 * kMiB);  // the device is started, and its first addresses are reserved
    const uint64_t kept = get(4 * kMiB);
    put(get(4 * kMiB));
    tell("hit", [&] { block_ = get(4 * kMiB); });
    tell("free", [&] { put(block_); });
    tell("miss", [&] { block_ = get(16 * kMiB); });
    // Pieces: [free][kept] ... , and no page left below the limit.
    std::vector<uint64_t> pieces;
    while (const uint64_t piece = get(4 * kMiB, false)) pieces.push_back(piece);
    for (size_t i = 0; i < pieces.size(); i += 2) put(pieces[i]);
    tell("rescue", [&] { get(10 * kMiB); });
    put(kept);
  }

 private:
  uint64_t get(uint64_t bytes, bool must = true) {
    uint64_t address = 0;
    if (!must) allocator_.set_handler(nullptr);
    const Status status = allocator_.allocate(DeviceId{0}, {.bytes = bytes}, &address, nullptr);
    if (!must) allocator_.set_handler(&ladder_);
    if (must && status != Status::kOk) {
      std::fprintf(stderr, "a request of %llu bytes was not served\n",
                   static_cast<unsigned long long>(bytes));
      std::exit(1);
    }
    return address;
  }
  void put(uint64_t address) { allocator_.free(address); }

  template <typename Action>
  void tell(const char* name, Action action) {
    depth = 0;
    count = 0;
    action();
    const size_t entered = std::exchange(count, kMost);
    std::printf("walk %s\n", name);
    for (size_t i = 0; i < entered; ++i) std::printf("%u %p\n", recorded[i].depth, recorded[i].function);
  }

  Allocator allocator_{simulated()};
  Ladder ladder_{allocator_};
  uint64_t block_ = 0;
};

}  // namespace
}  // namespace spillway

int main() {
  const spillway::driver::Table& table = spillway::simulated();
  CUcontext context = nullptr;
  table.cuInit(0);
  table.cuDevicePrimaryCtxRetain(&context, 0);
  table.cuCtxSetCurrent(context);
  spillway::Walks().run();
  table.cuDevicePrimaryCtxRelease(0);
  return 0;
}
