// Handles of shared tensors: what goes in comes out, the native allocator's form is kept, and no bytes do
// harm.
#include "libtorch/allocator/ipc/ipc_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace spillway::libtorch {
namespace {

constexpr uint64_t kMiB = 1 << 20;
const Sharer kSharer{4321, 77, {5, 6}};
constexpr char kOlder = handle_version(11), kNewer = handle_version(13);

std::vector<spillway_shared_page> pages(std::initializer_list<uint64_t> sizes) {
  std::vector<spillway_shared_page> out;
  for (const uint64_t size : sizes)
    out.push_back({size, 100 + out.size(), static_cast<int32_t>(10 + out.size())});
  return out;
}

class IpcFormatOf : public ::testing::TestWithParam<char> {};
INSTANTIATE_TEST_SUITE_P(Versions, IpcFormatOf, ::testing::Values(kOlder, kNewer));

TEST_P(IpcFormatOf, WhatGoesInComesOut) {
  for (const auto& sent : {pages({2 * kMiB}), pages({2 * kMiB, 2 * kMiB}), pages({2 * kMiB, 32 * kMiB})}) {
    ParsedHandle got;
    ASSERT_EQ(parse_handle(encode_pages(GetParam(), kSharer, sent), &got), "");
    EXPECT_TRUE(got.by_spillway);
    EXPECT_EQ(got.sharer.process, kSharer.process);
    EXPECT_EQ(got.sharer.start_time, kSharer.start_time);
    EXPECT_EQ(got.sharer.socket, kSharer.socket);
    ASSERT_EQ(got.pages.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(got.pages[i].bytes, sent[i].bytes);
      EXPECT_EQ(got.pages[i].serial, sent[i].serial);
      EXPECT_EQ(got.pages[i].descriptor, sent[i].descriptor);
    }
  }
}

// What PyTorch 2.11 writes and reads: version, kind, { pid_t, size_t, size_t }, an int for each page.
TEST(IpcFormat, BeginsAsTheNativeAllocatorsDoes) {
  const std::string handle = encode_pages(kOlder, kSharer, pages({2 * kMiB, 2 * kMiB}));
  struct Native {
    int32_t process;
    uint64_t page_bytes, pages;
    int32_t first, second;
  } native{};
  ASSERT_GT(handle.size(), 34u);
  EXPECT_EQ(handle.substr(0, 2),
            "\x02"
            "e");
  std::memcpy(&native, handle.data() + 2, 32);
  EXPECT_EQ(native.process, 4321);
  EXPECT_EQ(native.page_bytes, 2 * kMiB);
  EXPECT_EQ(native.pages, 2u);
  EXPECT_EQ(native.first, 10);
  EXPECT_EQ(native.second, 11);
  ParsedHandle got;
  ASSERT_EQ(parse_handle(handle.substr(0, 34), &got), "") << "as a native process sends it";
  EXPECT_FALSE(got.by_spillway);
  EXPECT_EQ(got.pages.size(), 2u);
  EXPECT_EQ(encode_pages(kOlder, kSharer, pages({2 * kMiB, 4 * kMiB}))[1], 's') << "which it could not map";
}

// Read off a handle that PyTorch 2.15 wrote: behind the count stands what names a page (1: a descriptor, 2:
// fabric), padded with bytes that mean nothing.
TEST(IpcFormat, SinceVersion3ItSaysWhatNamesAPage) {
  std::string native(
      "\x03\x65\xc3\x13\0\0\0\0\0\0\0\0\x40\x01\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\xff\x7f\0\0\x06\0\0\0",
      38);
  ParsedHandle got;
  ASSERT_EQ(parse_handle(native, &got), "");
  EXPECT_EQ(got.sharer.process, 0x13c3);
  ASSERT_EQ(got.pages.size(), 1u);
  EXPECT_EQ(got.pages[0].bytes, 20 * kMiB);
  EXPECT_EQ(got.pages[0].descriptor, 6);
  const std::string ours = encode_pages(kNewer, {0x13c3, 1, {}}, {{20 * kMiB, 1, 6}});
  EXPECT_EQ(ours.substr(0, 30), native.substr(0, 30));
  EXPECT_EQ(ours.substr(34, 4), native.substr(34, 4));
  native[26] = 2;
  EXPECT_NE(parse_handle(native, &got).find("fabric"), std::string::npos);
  native[26] = 7;
  EXPECT_NE(parse_handle(native, &got).find("unknown way 7"), std::string::npos);
}

TEST(IpcFormat, AllocationsAreTheDriversHandles) {
  const std::string raw(64, 'x');
  ParsedHandle got;
  EXPECT_EQ(parse_handle(encode_allocation(kOlder, raw), &got), "");
  EXPECT_EQ(got.kind, HandleKind::kAllocation);
  EXPECT_EQ(parse_handle(raw, &got), "") << "as it was sent before versions";
  EXPECT_NE(parse_handle(encode_allocation(kOlder, "short"), &got), "");
}

TEST(IpcFormat, FabricHandlesAreNamed) {
  std::string handle = encode_pages(kOlder, kSharer, pages({2 * kMiB})).substr(0, 26) + std::string(64, 'f');
  ParsedHandle got;
  EXPECT_NE(parse_handle(handle, &got).find("fabric"), std::string::npos);
}

TEST_P(IpcFormatOf, NoBytesDoHarm) {
  const std::string good = encode_pages(GetParam(), kSharer, pages({2 * kMiB, 32 * kMiB, 2 * kMiB}));
  std::mt19937_64 random(1);
  for (size_t size = 0; size < good.size(); ++size) {
    ParsedHandle got;
    if (size == 64) continue;  // the length of a bare cudaIpcMemHandle_t
    EXPECT_NE(parse_handle(good.substr(0, size), &got), "") << size;
  }
  for (int i = 0; i < 100'000; ++i) {
    std::string bad = good.substr(0, random() % 4 == 0 ? random() % good.size() : good.size());
    for (uint64_t changes = 1 + random() % 4; changes > 0 && !bad.empty(); --changes)
      bad[random() % bad.size()] = static_cast<char>(random());
    ParsedHandle got;
    if (parse_handle(bad, &got).empty() && got.kind == HandleKind::kPages) {
      EXPECT_GT(got.pages.size(), 0u);
      EXPECT_GT(got.sharer.process, 0);
    }
  }
}

}  // namespace
}  // namespace spillway::libtorch
