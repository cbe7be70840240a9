// The plug-in in a program without LibTorch: what CUDAPluggableAllocator of any version would call.
#include "spillway/libtorch/plugin.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr SpillwayPoolId kPool{0, 1}, kOther{0, 2};

CUstream_st* stream(uintptr_t number) {
  return reinterpret_cast<CUstream_st*>(number);
}
bool everything(CUstream_st*) {
  return true;
}

void* get(size_t bytes, CUstream_st* on = nullptr) {
  return spillway_plugin_allocate(bytes, 0, on);
}
void put(void* address) {
  spillway_plugin_free(address, 0, 0, nullptr);
}

TEST(Plugin, ServesAndTakesBack) {
  void* block = get(kMiB);
  ASSERT_NE(block, nullptr);
  put(block);
  EXPECT_EQ(get(kMiB), block) << "a freed block serves the next request of its stream";
  put(block);
}

TEST(Plugin, NothingAndUnknownAddressesAreHarmless) {
  EXPECT_EQ(get(0), nullptr);
  put(nullptr);
  int not_a_block = 0;
  put(&not_a_block);
  spillway_plugin_record_stream(&not_a_block, nullptr);
  spillway_plugin_record_stream(nullptr, nullptr);
  size_t bytes = 7;
  EXPECT_EQ(spillway_plugin_base_alloc(&not_a_block, &bytes), &not_a_block);
  EXPECT_EQ(bytes, 7u);
}

TEST(Plugin, RunningOutOfMemoryWithoutLibTorchIsABadAlloc) {
  try {
    get(size_t{1} << 40);
    FAIL() << "1 TiB was served";
  } catch (const std::bad_alloc& error) {
    const std::string text = error.what();
    EXPECT_EQ(
        text.rfind("CUDA out of memory. Tried to allocate 1024.00 GiB. GPU 0 has a total capacity of ", 0),
        0u)
        << text;
    EXPECT_NE(text.find("\nSpillway: "), std::string::npos) << text;
  }
  put(get(kMiB));
}

TEST(Plugin, AnUnknownDeviceIsAnErrorOfItsOwn) {
  EXPECT_THROW(spillway_plugin_allocate(kMiB, 63, nullptr), std::runtime_error);
}

TEST(Plugin, AFractionIsALimit) {
  EXPECT_THROW(spillway_plugin_memory_fraction(1.5, 0), std::invalid_argument);
  EXPECT_THROW(spillway_plugin_memory_fraction(0.5, -1), std::invalid_argument);
  spillway_plugin_reset();
  spillway_plugin_memory_fraction(0.125, 0);  // of 512 MiB
  EXPECT_THROW(get(96 * kMiB), std::bad_alloc);
  spillway_plugin_memory_fraction(1.0, 0);
  put(get(96 * kMiB));
}

TEST(Plugin, ABaseAllocationHoldsTheBlock) {
  auto* block = static_cast<char*>(get(3 * kMiB));
  size_t bytes = 0;
  auto* base = static_cast<char*>(spillway_plugin_base_alloc(block + kMiB, &bytes));
  EXPECT_LE(base, block);
  EXPECT_GE(base + bytes, block + 3 * kMiB);
  put(block);
}

TEST(Plugin, ABlockInUseOnAnotherStreamIsNotReusedBeforeItsWorkIsDone) {
  void* block = get(kMiB);
  void* other = get(kMiB);
  spillway_plugin_record_stream(block, stream(1));  // the legacy stream by its number
  put(block);
  put(other);
  spillway_plugin_reset();
  put(get(kMiB));
}

TEST(Plugin, APoolIsPrivateToTheStreamsOfItsFilter) {
  spillway_plugin_reset();
  spillway_plugin_begin_allocate_to_pool(0, kPool, [](CUstream_st* on) { return on == nullptr; });
  EXPECT_THROW(spillway_plugin_begin_allocate_to_pool(0, kPool, everything), std::logic_error);
  void* captured = get(8 * kMiB);
  void* outside = get(8 * kMiB, stream(1));
  spillway_plugin_end_allocate_to_pool(0, kPool);
  EXPECT_THROW(spillway_plugin_end_allocate_to_pool(0, kPool), std::logic_error);
  put(captured);
  put(outside);
  void* later = get(8 * kMiB);
  EXPECT_NE(later, captured) << "a graph may use it at its next replay";
  put(later);
  // The same pool again: its own memory serves it.
  spillway_plugin_begin_allocate_to_pool(0, kPool, everything);
  void* again = get(8 * kMiB);
  EXPECT_EQ(again, captured);
  spillway_plugin_end_allocate_to_pool(0, kPool);
  put(again);
  spillway_plugin_release_pool(0, kPool);
  spillway_plugin_release_pool(0, kPool);
  spillway_plugin_release_pool(0, kPool);  // once more than it was taken: destructors must not throw
  spillway_plugin_release_pool(0, kOther);
}

TEST(Plugin, TheInnermostPoolServes) {
  spillway_plugin_begin_allocate_to_pool(0, kPool, everything);
  void* of_outer = get(8 * kMiB);
  put(of_outer);
  spillway_plugin_begin_allocate_to_pool(0, kOther, everything);
  void* of_inner = get(8 * kMiB);
  EXPECT_NE(of_inner, of_outer);
  spillway_plugin_end_allocate_to_pool(0, kOther);
  EXPECT_EQ(get(8 * kMiB), of_outer);
  spillway_plugin_end_allocate_to_pool(0, kPool);
  put(of_inner);
  put(of_outer);
  spillway_plugin_release_pool(0, kPool);
  spillway_plugin_release_pool(0, kOther);
}

TEST(Plugin, AReleasedPoolGivesItsMemoryBack) {
  spillway_plugin_begin_allocate_to_pool(0, kOther, everything);
  put(get(384 * kMiB));
  spillway_plugin_end_allocate_to_pool(0, kOther);
  EXPECT_THROW(get(384 * kMiB), std::bad_alloc) << "the pool's idle memory was given away";
  spillway_plugin_release_pool(0, kOther);
  put(get(384 * kMiB));
}

TEST(Plugin, AForkedChildIsRefusedAndMayFree) {
  void* block = get(kMiB);
  const pid_t child = fork();
  if (child == 0) {
    put(block);
    try {
      get(kMiB);
    } catch (const std::exception&) {
      _exit(7);
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  put(block);
}

TEST(Install, AProcessWithoutLibTorchIsToldSo) {
  EXPECT_EQ(spillway_install(), 1);
  EXPECT_NE(std::string(spillway_install_error()).find("import torch first"), std::string::npos)
      << spillway_install_error();
}

}  // namespace
