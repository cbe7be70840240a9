// The account of native memory where calls of several threads cross: the order is the test's, one call after
// the other, as the driver and its callers may come to run; and what the driver tells of graphs' memory. The
// core, the driver and the process are the test's own: a budget without a limit, and a driver that has one
// function.
#include <gtest/gtest.h>

#include "interpose/account/accounted.h"
#include "interpose/core.h"
#include "interpose/hooks/driver_table.h"
#include "interpose/process.h"

namespace spillway::interpose {

constinit spillway_budget test_budget{UINT64_MAX, 0, {}, {}};

const spillway_core_table* core() {
  static const spillway_core_table table = [] {
    spillway_core_table made{};
    made.budget = [] { return &test_budget; };
    return made;
  }();
  return &table;
}
const char* core_error() {
  return "";
}

struct GraphMemory {
  CUresult result = CUDA_SUCCESS;
  uint64_t reserved_bytes[2] = {};
  int asked = 0;
};
GraphMemory graph_memory;

CUresult tell_graph_memory(CUdevice device, CUgraphMem_attribute which, void* out) {
  ++graph_memory.asked;
  if (which != CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<cuuint64_t*>(out) = graph_memory.reserved_bytes[device];
  return graph_memory.result;
}

const driver::Table& load_table() {
  static const driver::Table table = [] {
    driver::Table made{};
    made.cuDeviceGetGraphMemAttribute = tell_graph_memory;
    return made;
  }();
  return table;
}
Mode mode() {
  return Mode::kRescue;
}
void say(const char*, const char*) {}

namespace {

constexpr uint64_t kMiB = 1 << 20, kPage = 2 * kMiB, kPlace = 1 << 30;

uint64_t taken() {
  return test_budget.native_bytes[0];
}

void create(uint64_t handle, uint64_t bytes) {
  const Draw draw({.bytes = bytes, .device = 0});
  ASSERT_FALSE(draw.refused());
  draw.keep(Native::kHandle, handle);
}

void release(uint64_t handle) {
  page_released(handle, page_serial(handle));
}

void unmap(uint64_t address, uint64_t bytes) {
  Unmapping(address, bytes).finish();
}

TEST(NativeAddresses, AFreeThatIsLateLeavesWhatAnotherThreadWasGivenThere) {
  const Draw first({.bytes = 4 * kMiB, .device = 0});
  first.keep(Native::kAddress, kPlace);
  const Return freed(Native::kAddress,
                     kPlace);  // the driver has freed it, and this thread is not past it yet
  const Draw second({.bytes = 6 * kMiB, .device = 0});
  second.keep(Native::kAddress, kPlace);  // another thread's
  EXPECT_EQ(taken(), 6 * kMiB);
  freed.finish();
  EXPECT_EQ(taken(), 6 * kMiB) << "the second lives";
  Return(Native::kAddress, kPlace).finish();
  EXPECT_EQ(taken(), 0u);
}

TEST(NativeAddresses, AreChargedAsTheDriverTakesThem) {
  for (const auto& [asked, charged] : {std::pair<uint64_t, uint64_t>{3 * kMiB, 4 * kMiB},
                                       {kMiB, 2 * kMiB},
                                       {1000, 1024},
                                       {kMiB - 1, kMiB}}) {
    Draw({.bytes = asked, .device = 0}).keep(Native::kAddress, kPlace);
    EXPECT_EQ(taken(), charged) << asked;
    Return(Native::kAddress, kPlace).finish();
    EXPECT_EQ(taken(), 0u);
  }
}

class NativePages : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(taken(), 0u); }
  void TearDown() override { EXPECT_EQ(taken(), 0u) << "what is left over"; }
};

TEST_F(NativePages, WhatAnotherThreadMapsInTheSamePlaceStaysOnTheAccount) {
  create(1, kPage);
  page_mapped(kPlace, kPage, 1);
  release(1);
  create(2, kPage);
  const Unmapping first(kPlace, kPage);  // the driver has unmapped, and this thread is not past it yet
  page_mapped(kPlace, kPage, 2);         // another thread's
  first.finish();
  release(2);
  EXPECT_EQ(taken(), kPage) << "the second page is mapped";
  unmap(kPlace, kPage);
}

TEST_F(NativePages, SoDoSmallerOnesAndTheOldOnesGo) {
  for (const uint64_t page : {1, 2}) create(page, kPage);
  create(3, 2 * kPage);
  page_mapped(kPlace, 2 * kPage, 3);
  release(3);
  const Unmapping first(kPlace, 2 * kPage);
  page_mapped(kPlace + kPage, kPage, 2);
  page_mapped(kPlace, kPage, 1);
  first.finish();
  for (const uint64_t page : {1, 2}) release(page);
  EXPECT_EQ(taken(), 2 * kPage);
  unmap(kPlace, 2 * kPage);
}

TEST_F(NativePages, SoDoesALargerOneOverSeveral) {
  for (const uint64_t page : {1, 2}) {
    create(page, kPage);
    page_mapped(kPlace + (page - 1) * kPage, kPage, page);
    release(page);
  }
  create(3, 2 * kPage);
  const Unmapping first(kPlace, 2 * kPage);
  page_mapped(kPlace, 2 * kPage, 3);
  first.finish();
  EXPECT_EQ(taken(), 2 * kPage) << "the two small ones are gone";
  release(3);
  EXPECT_EQ(taken(), 2 * kPage);
  unmap(kPlace, 2 * kPage);
}

TEST_F(NativePages, AnUnmappingWithoutAnEndChangesNothing) {
  create(1, kPage);
  page_mapped(kPlace, kPage, 1);
  release(1);
  {
    const Unmapping refused(kPlace, kPage);
  }
  EXPECT_EQ(taken(), kPage);
  unmap(kPlace, kPage);
}

TEST_F(NativePages, AReleaseThatIsLateLeavesTheNextPageOfThatNumber) {
  create(1, kPage);
  const uint64_t serial = page_serial(1);  // the driver has released it, and gives the number out again
  create(1, 2 * kPage);
  page_released(1, serial);
  EXPECT_EQ(taken(), 2 * kPage);
  release(1);
}

CUgraphNodeParams node(CUgraphNodeType type, int device) {
  CUgraphNodeParams made{};
  made.type = type;
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) made.alloc.poolProps.location.id = device;
  return made;
}

uint64_t taken_by_graphs(int device) {
  return test_budget.native_bytes[device];
}

// One process's life: what was made once is asked for ever.
TEST(NativeGraphs, AreCountedAsTheDriverTellsFromTheFirstAllocationNodeOn) {
  graph_memory.reserved_bytes[0] = graph_memory.reserved_bytes[1] = 6 * kMiB;
  const CUgraphNodeParams empty = node(CU_GRAPH_NODE_TYPE_EMPTY, 0);
  note_node(nullptr, nullptr, nullptr, 0, &empty);
  note_node(nullptr, nullptr, nullptr, 0, nullptr);
  graph_memory_may_have_changed();
  EXPECT_EQ(graph_memory.asked, 0) << "no node allocates";

  const CUgraphNodeParams first = node(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 1);
  note_node(nullptr, nullptr, nullptr, nullptr, 0, &first);
  graph_memory_may_have_changed();
  EXPECT_EQ(taken_by_graphs(0), 0u);
  EXPECT_EQ(taken_by_graphs(1), 6 * kMiB);

  const CUgraphNodeParams second = node(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 0);
  note_node(nullptr, nullptr, nullptr, 0, &second);
  graph_memory.reserved_bytes[1] = 2 * kMiB;
  graph_memory_may_have_changed();
  EXPECT_EQ(taken_by_graphs(0), 6 * kMiB);
  EXPECT_EQ(taken_by_graphs(1), 2 * kMiB);

  graph_memory.result = CUDA_ERROR_UNKNOWN;
  graph_memory.reserved_bytes[1] = 0;
  graph_memory_may_have_changed();
  EXPECT_EQ(taken_by_graphs(1), 2 * kMiB) << "what was told last stays";
  for (const int device : {-1, 0, 1, SPILLWAY_MOST_DEVICES}) graph_memory_gone(device);
  EXPECT_EQ(taken_by_graphs(0) + taken_by_graphs(1), 0u);
  const CUgraphNodeParams nowhere = node(CU_GRAPH_NODE_TYPE_MEM_ALLOC, 1000);
  note_node(nullptr, nullptr, nullptr, 0, &nowhere);
}

}  // namespace
}  // namespace spillway::interpose
