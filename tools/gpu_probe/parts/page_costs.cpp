// Point 4: what creating, mapping, allowing, unmapping and releasing cost, by size, number and flags.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

constexpr uint64_t kSizes[] = {2 * kMiB, 16 * kMiB, 32 * kMiB, 128 * kMiB};
constexpr int kCounts[] = {1, 8, 64, 256, 1024};
constexpr double kBudgetUs = 70e6;  // of the whole part

struct Flags {
  const char* name;
  bool descriptor, rdma;
};
constexpr Flags kFlags[] = {
    {"plain", false, false}, {"descriptor", true, false}, {"rdma", false, true}, {"both", true, true}};

class Round {
 public:
  Round(uint64_t page_bytes, int count, const Flags& flags, bool one_by_one)
      : page_bytes_(page_bytes),
        count_(count),
        flags_(flags),
        one_by_one_(one_by_one),
        range_(page_bytes * static_cast<uint64_t>(count)) {}

  // Whether all calls went through.
  bool run() {
    const bool made = range_.result == CUDA_SUCCESS && create_all() && map_all() && allow_all();
    give_back();
    return made;
  }

 private:
  template <typename Call>
  bool time(const char* what, int times, Call call) {
    std::vector<double> took;
    for (int i = 0; i < times; ++i) {
      const double start = now_us();
      const CUresult result = call(i);
      took.push_back(now_us() - start);
      if (result == CUDA_SUCCESS) continue;
      say(what, result, "", {{"bytes", page_bytes_}, {"count", count_}, {"flags", flags_.name}, {"at", i}});
      return false;
    }
    say_times(
        what, took,
        {{"bytes", page_bytes_}, {"count", count_}, {"flags", flags_.name}, {"one_by_one", one_by_one_}});
    return true;
  }
  CUdeviceptr place(int i) const { return range_.base + static_cast<uint64_t>(i) * page_bytes_; }

  bool create_all() {
    Kind kind = on_device();
    kind.descriptor = flags_.descriptor;
    kind.rdma = flags_.rdma;
    return time("create", count_, [&](int) {
      CUmemGenericAllocationHandle made = 0;
      const CUresult result = create(made, page_bytes_, kind);
      if (result == CUDA_SUCCESS) handles_.push_back(made);
      return result;
    });
  }
  bool map_all() {
    return time("map", count_, [&](int i) {
      const CUresult result = cuda().cuMemMap(place(i), page_bytes_, 0, handles_[static_cast<size_t>(i)], 0);
      mapped_ += result == CUDA_SUCCESS ? 1 : 0;
      return result;
    });
  }
  bool allow_all() {
    if (one_by_one_) return time("allow", count_, [&](int i) { return allow(place(i), page_bytes_); });
    return time("allow", 1, [&](int) { return allow(range_.base, range_.bytes); });
  }
  void give_back() {
    if (mapped_ > 0 && one_by_one_)
      time("unmap", mapped_, [&](int i) { return cuda().cuMemUnmap(place(i), page_bytes_); });
    else if (mapped_ > 0)
      time("unmap", 1,
           [&](int) { return cuda().cuMemUnmap(range_.base, static_cast<uint64_t>(mapped_) * page_bytes_); });
    time("release", static_cast<int>(handles_.size()),
         [&](int i) { return cuda().cuMemRelease(handles_[static_cast<size_t>(i)]); });
  }

  const uint64_t page_bytes_;
  const int count_;
  const Flags& flags_;
  const bool one_by_one_;
  Range range_;
  std::vector<CUmemGenericAllocationHandle> handles_;
  int mapped_ = 0;
};

template <typename Make, typename Undo>
void time_pairs(const char* make_name, Make make, const char* undo_name, Undo undo) {
  std::vector<double> making, undoing;
  for (int i = 0; i < 20; ++i) {
    const double start = now_us();
    if (const CUresult result = make(); result != CUDA_SUCCESS) return say(make_name, result);
    const double made = now_us();
    undo();
    making.push_back(made - start);
    undoing.push_back(now_us() - made);
  }
  say_times(make_name, making);
  say_times(undo_name, undoing);
}

// Calls that other allocators make.
void ask_others() {
  CUdeviceptr block = 0;
  void* pinned = nullptr;
  time_pairs(
      "reserve", [&] { return cuda().cuMemAddressReserve(&block, 1024 * kMiB, 0, 0, 0); }, "free addresses",
      [&] { cuda().cuMemAddressFree(block, 1024 * kMiB); });
  time_pairs(
      "cuMemAlloc", [&] { return cuda().cuMemAlloc(&block, 20 * kMiB); }, "cuMemFree",
      [&] { cuda().cuMemFree(block); });
  time_pairs(
      "cuMemHostAlloc of 4 KiB", [&] { return cuda().cuMemHostAlloc(&pinned, 4096, 0); },
      "cuMemFreeHost of 4 KiB", [&] { cuda().cuMemFreeHost(pinned); });
}

}  // namespace

void ask_page_costs() {
  const double start = now_us();
  const uint64_t most = free_bytes() / 10 * 8;
  Round(2 * kMiB, 1, kFlags[0], false).run();  // the driver's own first times
  ask_others();
  for (const Flags& flags : kFlags)
    for (const int count : kCounts)
      for (const uint64_t bytes : kSizes)
        for (const bool one_by_one : {false, true}) {
          const bool plain = &flags == kFlags;
          if (bytes * static_cast<uint64_t>(count) > most || now_us() - start > kBudgetUs) continue;
          if (!plain && count != 1 && count != 64) continue;
          if (one_by_one && count == 1) continue;
          Round(bytes, count, flags, one_by_one).run();
        }
}

}  // namespace spillway::probe
