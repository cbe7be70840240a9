// map(): all pages or none, whatever call fails.
#include "driver/mapping.h"

#include <gtest/gtest.h>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Page;
using driver::Table;

constexpr int kPages = 5;

struct Pages {
  explicit Pages(const Table& driver) : table(driver) {
    const CUmemAllocationProp prop = device_page();
    EXPECT_EQ(table.cuMemAddressReserve(&address, bytes(), 0, 0, 0), CUDA_SUCCESS);
    for (int i = 0; i < kPages; ++i) {
      Page page{.handle = 0, .bytes = (i % 2 + 1) * kPage};
      EXPECT_EQ(table.cuMemCreate(&page.handle, page.bytes, &prop, 0), CUDA_SUCCESS);
      pages.push_back(page);
    }
  }
  static uint64_t bytes() { return 7 * kPage; }
  CUresult map() const {
    const CUmemAccessDesc access = read_write();
    return driver::map(table, address, pages, {&access, 1});
  }
  void give_back() const {
    for (const Page& page : pages) EXPECT_EQ(table.cuMemRelease(page.handle), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemAddressFree(address, bytes()), CUDA_SUCCESS) << "something is still mapped";
    EXPECT_EQ(text(table.simulator->leaks), "");
  }

  const Table& table;
  CUdeviceptr address = 0;
  std::vector<Page> pages;
};

TEST(Mapping, maps_pages_one_after_the_other_with_access) {
  in_process({}, [] {
    const Pages pages(started_driver());
    EXPECT_EQ(pages.map(), CUDA_SUCCESS);
    EXPECT_EQ(pages.table.cuMemsetD8(pages.address, 1, Pages::bytes()), CUDA_SUCCESS);
    EXPECT_EQ(pages.table.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(driver::unmap(pages.table, pages.address, Pages::bytes()), CUDA_SUCCESS);
    pages.give_back();
  });
}

TEST(Mapping, a_failure_at_any_call_is_rolled_back) {
  for (const bool persistent : {false, true})
    for (const char* values : {"zeros", "compute"})
      in_process({{"SPILLWAY_SIM_VALUES", values}}, [&] {
        const Pages pages(started_driver());
        for (uint64_t n = 1; n <= kPages + 1; ++n) {
          pages.table.simulator->reset();
          pages.table.simulator->fail_call(n, nullptr, persistent, CUDA_ERROR_OUT_OF_MEMORY);
          EXPECT_EQ(pages.map(), CUDA_ERROR_OUT_OF_MEMORY) << n;
          EXPECT_EQ(counts(pages.table).injected_failures, 1u) << n;
          pages.table.simulator->fail_call(0, nullptr, 0, CUDA_SUCCESS);
          EXPECT_EQ(pages.map(), CUDA_SUCCESS) << "the range is free again after call " << n << " failed";
          EXPECT_EQ(driver::unmap(pages.table, pages.address, Pages::bytes()), CUDA_SUCCESS);
        }
        pages.give_back();
      });
}

TEST(Mapping, a_refused_page_in_the_middle_is_rolled_back) {
  in_process({}, [] {
    Pages pages(started_driver());
    const Page good = pages.pages[3];
    pages.pages[3].handle = 99;
    EXPECT_EQ(pages.map(), CUDA_ERROR_INVALID_VALUE);
    pages.pages[3] = good;
    pages.give_back();
  });
}

TEST(Mapping, nothing_is_mapped_from_no_pages) {
  in_process({}, [] {
    const Table& table = started_driver();
    EXPECT_EQ(driver::map(table, 0, {}, {}), CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace spillway::test
