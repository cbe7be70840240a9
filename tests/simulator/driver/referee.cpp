// What the referee reports: memory taken from work in flight, access to nothing or without permission, leaks.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A page of device 0, mapped with access, and a stream.
struct Bench {
  explicit Bench(const Table& driver) : table(driver) {
    const CUmemAllocationProp prop = device_page();
    const CUmemAccessDesc access = read_write();
    EXPECT_EQ(table.cuMemAddressReserve(&address, 2 * kPage, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemCreate(&page, kPage, &prop, 0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemMap(address, kPage, 0, page, 0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemSetAccess(address, kPage, &access, 1), CUDA_SUCCESS);
    EXPECT_EQ(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  CUresult work(CUdeviceptr at, uint64_t bytes, bool writes = true) const {
    const SpillwayRange range = {at, bytes, writes};
    return table.simulator->submit(stream, "gemm", &range, 1, 1'000'000, nullptr, nullptr);
  }
  uint64_t violations() const { return counts(table).violations; }
  std::string report() const { return text(table.simulator->violations); }

  const Table& table;
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle page = 0;
  CUstream stream = nullptr;
};

void with_bench(const std::function<void(const Bench&)>& body, const Settings& settings = {}) {
  in_process(settings, [&] { body(Bench(started_driver())); });
}

TEST(Referee, unmapping_under_running_work_is_reported_with_both_sites) {
  with_bench([](const Bench& b) {
    EXPECT_EQ(b.work(b.address, kPage), CUDA_SUCCESS);
    EXPECT_EQ(b.table.cuMemUnmap(b.address, kPage), CUDA_SUCCESS) << "the driver does not wait";
    EXPECT_EQ(b.violations(), 1u);
    EXPECT_THAT(b.report(), AllOf(HasSubstr("unmapped at "), HasSubstr("while 'gemm' on stream"),
                                  HasSubstr("submitted at "), HasSubstr("test_simulator_driver_referee")));
  });
}

TEST(Referee, unmapping_after_a_wait_is_right) {
  with_bench([](const Bench& b) {
    EXPECT_EQ(b.work(b.address, kPage), CUDA_SUCCESS);
    EXPECT_EQ(b.table.cuStreamSynchronize(b.stream), CUDA_SUCCESS);
    EXPECT_EQ(b.table.cuMemUnmap(b.address, kPage), CUDA_SUCCESS);
    EXPECT_EQ(b.violations(), 0u);
  });
}

TEST(Referee, losing_an_access_right_under_running_work_is_reported) {
  with_bench([](const Bench& b) {
    EXPECT_EQ(b.work(b.address, 4), CUDA_SUCCESS);
    CUmemAccessDesc none = read_write();
    none.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    EXPECT_EQ(b.table.cuMemSetAccess(b.address, kPage, &none, 1), CUDA_SUCCESS);
    EXPECT_THAT(b.report(), HasSubstr("lost an access right"));
  });
}

TEST(Referee, free_waits_for_the_work) {
  with_bench([](const Bench& b) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(b.table.cuMemAlloc(&memory, 100), CUDA_SUCCESS);
    const uint64_t before = counts(b.table).virtual_ns;
    EXPECT_EQ(b.work(memory, 100), CUDA_SUCCESS);
    EXPECT_EQ(b.table.cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_GE(counts(b.table).virtual_ns, before + 1'000'000);
    EXPECT_EQ(b.violations(), 0u);
  });
}

TEST(Referee, a_stream_ordered_free_is_right_on_its_own_stream_only) {
  with_bench([](const Bench& b) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(b.table.cuMemAllocAsync(&memory, 100, b.stream), CUDA_SUCCESS);
    EXPECT_EQ(b.work(memory, 100), CUDA_SUCCESS);
    EXPECT_EQ(b.table.cuMemFreeAsync(memory, b.stream), CUDA_SUCCESS);
    EXPECT_EQ(b.violations(), 0u);
    EXPECT_EQ(b.table.cuMemAllocAsync(&memory, 100, b.stream), CUDA_SUCCESS);
    EXPECT_EQ(b.work(memory, 100), CUDA_SUCCESS);
    EXPECT_EQ(b.table.cuMemFreeAsync(memory, nullptr), CUDA_SUCCESS);
    EXPECT_THAT(b.report(), HasSubstr("freed on stream"));
  });
}

TEST(Referee, work_on_memory_that_is_not_there_is_refused) {
  with_bench([](const Bench& b) {
    EXPECT_EQ(b.work(b.address + kPage - 1, 2), CUDA_ERROR_ILLEGAL_ADDRESS) << "runs over the end";
    EXPECT_EQ(b.work(16, 4), CUDA_ERROR_ILLEGAL_ADDRESS) << "host memory that nobody registered";
    EXPECT_EQ(b.work(b.address, UINT64_MAX), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(b.violations(), 3u);
    EXPECT_EQ(b.table.cuMemUnmap(b.address, kPage), CUDA_SUCCESS);
    EXPECT_EQ(b.work(b.address, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_THAT(b.report(), HasSubstr("is not mapped; unmapped at "));
    EXPECT_EQ(counts(b.table).launches, 0u);
  });
}

TEST(Referee, a_plain_allocation_ends_where_it_ends) {
  with_bench([](const Bench& b) {
    CUdeviceptr first = 0, second = 0;
    EXPECT_EQ(b.table.cuMemAlloc(&first, kPage), CUDA_SUCCESS);
    EXPECT_EQ(b.table.cuMemAlloc(&second, kPage), CUDA_SUCCESS);
    EXPECT_EQ(b.work(first, kPage + 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(b.work(second - 1, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST(Referee, access_needs_the_right_and_the_device) {
  with_bench(
      [](const Bench& b) {
        CUmemAccessDesc access = read_write();
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
        EXPECT_EQ(b.table.cuMemSetAccess(b.address, kPage, &access, 1), CUDA_SUCCESS);
        EXPECT_EQ(b.work(b.address, 4, false), CUDA_SUCCESS);
        EXPECT_EQ(b.work(b.address, 4, true), CUDA_ERROR_ILLEGAL_ADDRESS);
        EXPECT_THAT(b.report(), HasSubstr("for which device 0 has no access"));
        CUcontext other = nullptr;
        CUdeviceptr far = 0;
        EXPECT_EQ(b.table.cuDevicePrimaryCtxRetain(&other, 1), CUDA_SUCCESS);
        EXPECT_EQ(b.table.cuCtxPushCurrent(other), CUDA_SUCCESS);
        EXPECT_EQ(b.table.cuMemAlloc(&far, kPage), CUDA_SUCCESS);
        EXPECT_EQ(b.table.cuCtxPopCurrent(&other), CUDA_SUCCESS);
        EXPECT_EQ(b.work(far, 4), CUDA_ERROR_ILLEGAL_ADDRESS) << "peer access was not enabled";
        EXPECT_EQ(b.table.cuCtxEnablePeerAccess(other, 0), CUDA_SUCCESS);
        EXPECT_EQ(b.table.cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        EXPECT_EQ(b.work(far, 4), CUDA_SUCCESS);
      },
      {{"SPILLWAY_SIM_DEVICES", "2"}});
}

TEST(Referee, copies_and_memsets_are_checked) {
  with_bench([](const Bench& b) {
    std::vector<char> host(64);
    EXPECT_EQ(b.table.cuMemcpyHtoD(b.address + kPage, host.data(), 64), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(b.table.cuMemcpyDtoH(host.data(), b.address + kPage - 1, 64), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(b.table.cuMemsetD32(b.address + kPage, 1, 4), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(b.violations(), 3u);
    EXPECT_EQ(b.table.cuMemsetD32(b.address + 1, 1, 4), CUDA_ERROR_INVALID_VALUE) << "unaligned";
    EXPECT_EQ(b.violations(), 3u);
    EXPECT_EQ(counts(b.table).copies, 0u);
    EXPECT_EQ(b.table.cuMemsetD8Async(b.address, 1, kPage, b.stream), CUDA_SUCCESS);
    EXPECT_EQ(b.table.cuMemUnmap(b.address, kPage), CUDA_SUCCESS);
    EXPECT_THAT(b.report(), HasSubstr("while 'memset' on stream"));
  });
}

TEST(Referee, leaks_are_listed_by_kind) {
  with_bench([](const Bench& b) {
    CUdeviceptr memory = 0;
    void* host = nullptr;
    EXPECT_EQ(b.table.cuMemAlloc(&memory, 100), CUDA_SUCCESS);
    EXPECT_EQ(b.table.cuMemHostAlloc(&host, 100, 0), CUDA_SUCCESS);
    const std::string leaks = text(b.table.simulator->leaks);
    for (const char* kind :
         {"page ", "still mapped", "+100) not freed", "reservation ", "host memory ", "stream "})
      EXPECT_THAT(leaks, HasSubstr(kind));
  });
}

TEST(Referee, a_call_through_the_runtime_is_the_program_s) {
  in_process({}, [] {
    const Table& table = loaded_driver();
    const std::string library =
        simulator_library().replace(simulator_library().rfind('/'), 99, "/libcudart.so.13");
    void* runtime = dlopen(library.c_str(), RTLD_NOW);
    ASSERT_NE(runtime, nullptr) << dlerror();
    const auto allocate = reinterpret_cast<int (*)(void**, size_t)>(dlsym(runtime, "cudaMalloc"));
    void* memory = nullptr;
    ASSERT_EQ(allocate(&memory, 100), 0);
    EXPECT_THAT(
        text(table.simulator->leaks),
        AllOf(HasSubstr("+100) not freed"), HasSubstr("test_simulator_"), Not(HasSubstr("libcudart"))));
  });
}

TEST(Referee, reset_forgets_reports_and_keeps_memory) {
  with_bench([](const Bench& b) {
    EXPECT_EQ(b.work(16, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    b.table.simulator->reset();
    EXPECT_EQ(b.violations(), 0u);
    EXPECT_EQ(b.report(), "");
    EXPECT_EQ(counts(b.table).live_pages_bytes, kPage);
  });
}

TEST(Referee, host_memory_unregistered_under_a_copy_is_reported) {
  with_bench([](const Bench& b) {
    std::vector<char> host(kMiB);
    EXPECT_EQ(b.table.cuMemHostRegister(host.data(), host.size(), 0), CUDA_SUCCESS);
    EXPECT_EQ(b.table.cuMemcpyDtoHAsync(host.data(), b.address, host.size(), b.stream), CUDA_SUCCESS);
    EXPECT_EQ(b.table.cuStreamQuery(b.stream), CUDA_ERROR_NOT_READY) << "pinned: the copy is asynchronous";
    EXPECT_EQ(b.table.cuMemHostUnregister(host.data()), CUDA_SUCCESS);
    EXPECT_THAT(b.report(), HasSubstr("unregistered at "));
  });
}

}  // namespace
}  // namespace spillway::test
