// The parts of the account of native memory that no simulated driver reaches: arrays, and a table of any
// shape.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <utility>

#include "interpose/account/native_table.h"
#include "interpose/hooks/allocation_size.h"

namespace spillway::interpose {
namespace {

CUDA_ARRAY3D_DESCRIPTOR array(size_t width, size_t height, size_t depth, unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR made = {};
  made.Width = width;
  made.Height = height;
  made.Depth = depth;
  made.Format = CU_AD_FORMAT_FLOAT;
  made.NumChannels = 2;
  made.Flags = flags;
  return made;
}

TEST(Asks, ArraysTakeTheirElements) {
  const CUDA_ARRAY_DESCRIPTOR flat = {
      .Width = 100, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4};
  EXPECT_EQ(Asks<Function::cuArrayCreate>::of(nullptr, &flat).bytes, 400u);
  const CUDA_ARRAY3D_DESCRIPTOR cube = array(8, 4, 2), line = array(16, 0, 0);
  EXPECT_EQ(Asks<Function::cuArray3DCreate>::of(nullptr, &cube).bytes, 8u * 4 * 2 * 8);
  EXPECT_EQ(Asks<Function::cuArray3DCreate>::of(nullptr, &line).bytes, 16u * 8);
}

TEST(Asks, MipmapsTakeTheSumOfTheirLevels) {
  const CUDA_ARRAY3D_DESCRIPTOR plane = array(8, 8, 0), layers = array(4, 4, 6, CUDA_ARRAY3D_LAYERED);
  EXPECT_EQ(Asks<Function::cuMipmappedArrayCreate>::of(nullptr, &plane, 4).bytes, (64u + 16 + 4 + 1) * 8);
  EXPECT_EQ(Asks<Function::cuMipmappedArrayCreate>::of(nullptr, &layers, 2).bytes, (16u + 4) * 6 * 8);
  EXPECT_GT(Asks<Function::cuMipmappedArrayCreate>::of(nullptr, &plane, 4'000'000'000u).bytes, 0u)
      << "it ends";
}

TEST(Asks, WhatHasNoMemoryYetOrMakesNoSenseTakesNothing) {
  const CUDA_ARRAY3D_DESCRIPTOR sparse = array(8, 8, 8, CUDA_ARRAY3D_SPARSE);
  EXPECT_EQ(Asks<Function::cuArray3DCreate>::of(nullptr, &sparse).bytes, 0u);
  EXPECT_EQ(Asks<Function::cuArray3DCreate>::of(nullptr, nullptr).bytes, 0u);
  EXPECT_EQ(Asks<Function::cuArrayCreate>::of(nullptr, nullptr).bytes, 0u);
  EXPECT_EQ(Asks<Function::cuMipmappedArrayCreate>::of(nullptr, nullptr, 3).bytes, 0u);
  EXPECT_TRUE(Asks<Function::cuMemCreate>::of(nullptr, 1, nullptr, 0).on_host);
}

TEST(Asks, NothingWraps) {
  const CUDA_ARRAY3D_DESCRIPTOR huge = array(SIZE_MAX, SIZE_MAX, 2);
  EXPECT_EQ(Asks<Function::cuArray3DCreate>::of(nullptr, &huge).bytes, UINT64_MAX);
  EXPECT_EQ(Asks<Function::cuMipmappedArrayCreate>::of(nullptr, &huge, 9).bytes, UINT64_MAX);
  EXPECT_EQ(Asks<Function::cuMemAllocPitch>::of(nullptr, nullptr, SIZE_MAX, 3, 4).bytes, UINT64_MAX);
  EXPECT_EQ(Asks<Function::cuMemAllocPitch>::of(nullptr, nullptr, 4000, 3, 4).bytes, 4096u * 3);
}

// A std::map does the same, slowly.
class Twin {
 public:
  void add(Native kind, uint64_t key, uint64_t bytes) {
    if (!known_.emplace(std::pair{kind, key}, bytes).second) return;
    ASSERT_TRUE(table_.add({.key = key, .bytes = bytes, .kind = kind}));
  }
  void remove_some(uint64_t number) {
    if (known_.empty()) return;
    const auto at = std::next(known_.begin(), static_cast<ptrdiff_t>(number % known_.size()));
    NativeEntry* entry = table_.find(at->first.first, at->first.second);
    ASSERT_NE(entry, nullptr);
    table_.remove(entry);
    known_.erase(at);
  }
  void remove_multiples_of(uint64_t number) {
    table_.remove_if([number](const NativeEntry& entry) { return entry.bytes % number == 0; });
    std::erase_if(known_, [number](const auto& entry) { return entry.second % number == 0; });
  }
  void check() {
    size_t count = 0;
    table_.each([&](const NativeEntry&) { ++count; });
    ASSERT_EQ(count, known_.size());
    for (const auto& [name, bytes] : known_) {
      const NativeEntry* entry = table_.find(name.first, name.second);
      ASSERT_NE(entry, nullptr);
      ASSERT_EQ(entry->bytes, bytes);
    }
  }

 private:
  NativeTable table_;
  std::map<std::pair<Native, uint64_t>, uint64_t> known_;
};

TEST(NativeTable, FindsWhatWasAddedAndNothingElse) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    std::mt19937_64 random(seed);
    Twin twin;
    for (int step = 0; step < 6'000; ++step) {
      const auto kind = static_cast<Native>(1 + random() % 5);
      // Addresses as drivers give them, and a small range in which kinds and neighbours meet.
      const uint64_t key = random() % 2 == 0 ? (random() % 4096) << 21 : random() % 512;
      if (random() % 5 < 3)
        twin.add(kind, key, random());
      else
        twin.remove_some(random());
      if (step % 997 == 0) twin.remove_multiples_of(3);
      if (step % 500 == 0) twin.check();
    }
    twin.check();
  }
}

TEST(NativeTable, IsEmptyAtFirstAndWhenAllIsForgotten) {
  NativeTable table;
  EXPECT_EQ(table.find(Native::kAddress, 1), nullptr);
  ASSERT_TRUE(table.add({.key = 1, .kind = Native::kAddress}));
  EXPECT_EQ(table.find(Native::kHandle, 1), nullptr);
  table.forget_all();
  EXPECT_EQ(table.find(Native::kAddress, 1), nullptr);
}

}  // namespace
}  // namespace spillway::interpose
