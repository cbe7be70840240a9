// Bytes: stored and moved in computing mode, zeros in null mode, by every form of copy and memset.
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;

const Settings kCompute = {{"SPILLWAY_SIM_VALUES", "compute"}, {"SPILLWAY_SIM_CAPACITY", "256MiB"}};

CUdeviceptr allocate(const Table& table, uint64_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(table.cuMemAlloc(&address, bytes), CUDA_SUCCESS);
  return address;
}

std::vector<unsigned char> numbered(size_t bytes, int seed = 0) {
  std::vector<unsigned char> values(bytes);
  for (size_t i = 0; i < bytes; ++i) values[i] = static_cast<unsigned char>(i * 7 + i / 251 + seed);
  return values;
}

std::vector<unsigned char> read_back(const Table& table, CUdeviceptr from, size_t bytes) {
  std::vector<unsigned char> values(bytes, 0xAA);
  EXPECT_EQ(table.cuMemcpyDtoH(values.data(), from, bytes), CUDA_SUCCESS);
  return values;
}

TEST(Values, null_mode_reads_zeros_and_has_no_alias) {
  in_process({}, [] {
    const Table& table = started_driver();
    EXPECT_EQ(table.simulator->mode(), SPILLWAY_SIMULATOR_NULL);
    EXPECT_EQ(table.simulator->alias_offset(), 0);
    const CUdeviceptr memory = allocate(table, 1000);
    const auto values = numbered(1000);
    EXPECT_EQ(table.cuMemcpyHtoD(memory, values.data(), 1000), CUDA_SUCCESS);
    EXPECT_EQ(table.simulator->submit(nullptr, "kernel", nullptr, 0, 1, nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(read_back(table, memory, 1000), std::vector<unsigned char>(1000));
  });
}

// Reads a flag for longer than the simulator is patient; gives what was said.
std::string said_while_polling(int kernels_between) {
  const Table& table = started_driver();
  const CUdeviceptr flag = allocate(table, 8);
  testing::internal::CaptureStderr();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5500);
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < kernels_between; ++i)
      EXPECT_EQ(table.simulator->submit(nullptr, "kernel", nullptr, 0, 1, nullptr, nullptr), CUDA_SUCCESS);
    read_back(table, flag, 4);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(Values, who_waits_for_a_value_that_nobody_computes_is_told_once) {
  in_process({}, [] {
    const std::string said = said_while_polling(1);
    EXPECT_NE(said.find("values are not computed"), std::string::npos) << said;
    EXPECT_NE(said.find("--values compute"), std::string::npos);
    EXPECT_EQ(said.find("\n"), said.size() - 1) << "one line";
  });
  in_process({}, [] { EXPECT_EQ(said_while_polling(10), "") << "a loop that works between its reads"; });
}

TEST(Values, random_reads_are_small_and_the_same_in_every_run) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("spillway-values-" + std::to_string(getpid())));
  const auto run = [&path] {
    in_process({{"SPILLWAY_SIM_VALUES", "random"}}, [&path] {
      const Table& table = started_driver();
      const CUdeviceptr memory = allocate(table, 4096);
      std::ofstream file(path, std::ios::app | std::ios::binary);
      bool several = false;
      int64_t first = 0;
      for (int i = 0; i < 50; ++i) {
        const auto bytes = read_back(table, memory, 8);
        int64_t value = 0;
        std::memcpy(&value, bytes.data(), 8);
        EXPECT_GE(value, 0);
        EXPECT_LE(value, 16);
        several |= i > 0 && value != first;
        first = value;
        EXPECT_LE(read_back(table, memory, 1)[0], 1);
        file.write(reinterpret_cast<const char*>(bytes.data()), 8);
      }
      EXPECT_TRUE(several);
      for (const unsigned char byte : read_back(table, memory, 4096)) EXPECT_LE(byte, 1);
    });
  };
  run();
  run();
  std::ifstream file(path, std::ios::binary);
  const std::string both{std::istreambuf_iterator<char>(file), {}};
  ASSERT_EQ(both.size(), 800U);
  EXPECT_EQ(both.substr(0, 400), both.substr(400));
  std::filesystem::remove(path);
}

TEST(Values, the_observer_of_host_reads_may_call_the_driver) {
  in_process({}, [] {
    const Table& table = started_driver();
    const CUdeviceptr memory = allocate(table, 64);
    struct Seen {
      const Table& table;
      CUdeviceptr source = 0;
      uint64_t bytes = 0, calls = 0;
    } seen{table};
    table.simulator->observe_host_reads(
        [](void* argument, CUdeviceptr source, uint64_t bytes) {
          Seen& out = *static_cast<Seen*>(argument);
          size_t free = 0, total = 0;
          EXPECT_EQ(out.table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
          out.source = source;
          out.bytes = bytes;
          ++out.calls;
        },
        &seen);
    read_back(table, memory + 16, 8);
    EXPECT_EQ(seen.source, memory + 16);
    EXPECT_EQ(seen.bytes, 8U);
    unsigned char host[8] = {};
    EXPECT_EQ(table.cuMemcpyHtoD(memory, host, 8), CUDA_SUCCESS);
    EXPECT_EQ(seen.calls, 1U) << "only reads are told";
    table.simulator->observe_host_reads(nullptr, nullptr);
    read_back(table, memory, 8);
    EXPECT_EQ(seen.calls, 1U);
  });
}

TEST(Values, the_observer_of_host_reads_is_told_of_each_launch_of_a_graph) {
  in_process({}, [] {
    const Table& table = started_driver();
    const CUdeviceptr memory = allocate(table, 64);
    void* host = nullptr;
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_EQ(table.cuMemHostAlloc(&host, 64, 0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    uint64_t reads = 0;
    table.simulator->observe_host_reads(
        [](void* argument, CUdeviceptr, uint64_t bytes) { *static_cast<uint64_t*>(argument) += bytes; },
        &reads);
    EXPECT_EQ(table.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemcpyDtoHAsync(host, memory, 8, stream), CUDA_SUCCESS);
    EXPECT_EQ(table.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(table.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(reads, 0U);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(table.cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(reads, 24U);
  });
}

TEST(Values, the_report_counts_what_the_host_reads_and_is_there_before_the_process_ends) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("spillway-reads-" + std::to_string(getpid())));
  in_process({{"SPILLWAY_SIM_REPORT", path}}, [&path] {
    const Table& table = started_driver();
    const CUdeviceptr memory = allocate(table, 4 * kMiB);
    const auto report = [&path] {
      std::ifstream file(path);
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    read_back(table, memory, 8);
    EXPECT_NE(report().find("\"small_copies\": 1,\n   \"small_bytes\": 8,"), std::string::npos) << report();
    read_back(table, memory, 2 * kMiB);
    EXPECT_EQ(table.simulator->write_report(), CUDA_SUCCESS);
    EXPECT_NE(report().find("\"bulk_copies\": 1,\n   \"bulk_bytes\": 2097152"), std::string::npos)
        << report();
  });
  std::filesystem::remove(path);
}

uint64_t resident_bytes() {
  uint64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

// Of the mappings in which the range lies. Not of the process: a sanitizer keeps memory for what is read.
uint64_t resident_bytes(const void* memory, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  std::ifstream mappings("/proc/self/smaps");
  bool inside = false;
  uint64_t total = 0;
  for (std::string line; std::getline(mappings, line);) {
    uint64_t low = 0, high = 0, kilobytes = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &low, &high) == 2)
      inside = low < begin + bytes && high > begin;
    else if (inside && std::sscanf(line.c_str(), "Rss: %" SCNu64 " kB", &kilobytes) == 1)
      total += kilobytes * 1024;
  }
  return total;
}

TEST(Values, in_null_mode_host_memory_that_nobody_wrote_takes_no_pages) {
  constexpr uint64_t kBytes = 256 * kMiB;
  in_process({}, [] {
    const Table& table = started_driver();
    const CUdeviceptr memory = allocate(table, kBytes);
    void* pinned = nullptr;
    EXPECT_EQ(table.cuMemAllocHost(&pinned, kBytes), CUDA_SUCCESS);
    void* pageable = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pageable, MAP_FAILED);
    for (void* host : {pinned, pageable}) {
      *static_cast<char*>(host) = 1;
      EXPECT_GE(resident_bytes(host, kBytes), 4096u);
      EXPECT_EQ(table.cuMemcpyDtoH(host, memory, kBytes), CUDA_SUCCESS);
      EXPECT_EQ(*static_cast<char*>(host), 0);
      EXPECT_LT(resident_bytes(host, kBytes), 4 * kMiB);
    }
    munmap(pageable, kBytes);
  });
}

TEST(Values, in_null_mode_no_memory_stands_behind_60_GB) {
  constexpr uint64_t kBytes = uint64_t{60} << 30;
  constexpr uint64_t kMapped = uint64_t{8} << 30;  // page by page
  in_process({{"SPILLWAY_SIM_CAPACITY", "80GiB"}}, [] {
    const Table& table = started_driver();
    const uint64_t before = resident_bytes();
    const CUdeviceptr memory = allocate(table, kBytes), copy = allocate(table, kMapped);
    EXPECT_EQ(table.cuMemsetD8(memory, 7, kBytes), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemcpyDtoD(copy, memory, kMapped), CUDA_SUCCESS);
    const CUmemAllocationProp prop = device_page();
    const CUmemAccessDesc access = read_write();
    CUdeviceptr range = 0;
    EXPECT_EQ(table.cuMemAddressReserve(&range, kMapped, 0, 0, 0), CUDA_SUCCESS);
    for (uint64_t offset = 0; offset < kMapped; offset += kPage) {
      CUmemGenericAllocationHandle page = 0;
      ASSERT_EQ(table.cuMemCreate(&page, kPage, &prop, 0), CUDA_SUCCESS);
      ASSERT_EQ(table.cuMemMap(range + offset, kPage, 0, page, 0), CUDA_SUCCESS);
      ASSERT_EQ(table.cuMemRelease(page), CUDA_SUCCESS);
    }
    EXPECT_EQ(table.cuMemSetAccess(range, kMapped, &access, 1), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemsetD8(range, 7, kMapped), CUDA_SUCCESS);
    std::vector<unsigned char> host = numbered(kMiB);
    EXPECT_EQ(table.cuMemcpyHtoD(range, host.data(), host.size()), CUDA_SUCCESS);
    EXPECT_EQ(table.simulator->submit(nullptr, "kernel", nullptr, 0, 1, nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(read_back(table, range, kMiB), std::vector<unsigned char>(kMiB)) << "whatever was written";
    EXPECT_LT(resident_bytes(), before + 64 * kMiB);
    EXPECT_EQ(counts(table).violations, 0u);
  });
}

TEST(Values, in_null_mode_a_read_clears_its_bytes_and_no_others) {
  in_process({}, [] {
    const Table& table = started_driver();
    const CUdeviceptr memory = allocate(table, kMiB);
    void* pinned = nullptr;
    EXPECT_EQ(table.cuMemAllocHost(&pinned, kMiB), CUDA_SUCCESS);
    std::vector<unsigned char> pageable(kMiB);
    for (unsigned char* host : {static_cast<unsigned char*>(pinned), pageable.data()}) {
      for (const auto& [offset, bytes] :
           {std::pair<size_t, size_t>{5, 100}, {4000, 200}, {4096, 4096}, {77, 300001}}) {
        std::memset(host, 0xAA, kMiB);
        EXPECT_EQ(table.cuMemcpyDtoH(host + offset, memory, bytes), CUDA_SUCCESS);
        EXPECT_EQ(std::count(host + offset, host + offset + bytes, 0), static_cast<ptrdiff_t>(bytes));
        EXPECT_EQ(std::count(host, host + kMiB, 0xAA), static_cast<ptrdiff_t>(kMiB - bytes));
      }
    }
  });
}

TEST(Values, the_mode_is_known_before_cuInit) {
  in_process(kCompute, [] { EXPECT_EQ(loaded_driver().simulator->mode(), SPILLWAY_SIMULATOR_COMPUTE); });
}

TEST(Values, host_and_device_copies_carry_bytes) {
  in_process(kCompute, [] {
    const Table& table = started_driver();
    const CUdeviceptr a = allocate(table, 5 * kMiB), b = allocate(table, 5 * kMiB);
    const auto values = numbered(5 * kMiB - 3);
    EXPECT_EQ(table.cuMemcpyHtoDAsync(a, values.data(), values.size(), nullptr), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemcpyDtoDAsync(b + 1, a, values.size(), nullptr), CUDA_SUCCESS);
    EXPECT_EQ(read_back(table, b + 1, values.size()), values);
    EXPECT_EQ(table.cuMemcpyAsync(a, b + 1, 100, CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    std::vector<unsigned char> host(100);
    EXPECT_EQ(table.cuMemcpy(reinterpret_cast<CUdeviceptr>(host.data()), a, 100), CUDA_SUCCESS);
    EXPECT_TRUE(std::equal(host.begin(), host.end(), values.begin()));
    EXPECT_EQ(counts(table).copies, 5u);
  });
}

TEST(Values, devices_exchange_bytes) {
  Settings settings = kCompute;
  settings["SPILLWAY_SIM_DEVICES"] = "2";
  in_process(settings, [] {
    const Table& table = started_driver();
    const CUdeviceptr here = allocate(table, kPage);
    CUcontext first = nullptr, second = nullptr;
    EXPECT_EQ(table.cuCtxGetCurrent(&first), CUDA_SUCCESS);
    EXPECT_EQ(table.cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
    EXPECT_EQ(table.cuCtxSetCurrent(second), CUDA_SUCCESS);
    const CUdeviceptr there = allocate(table, kPage);
    const auto values = numbered(1000);
    EXPECT_EQ(table.cuMemcpyHtoD(there, values.data(), 1000), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemcpyPeerAsync(here, first, there, second, 1000, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(read_back(table, here, 1000), values);
    EXPECT_EQ(counts(table).violations, 0u);
  });
}

TEST(Values, rows_are_copied_with_their_pitches) {
  in_process(kCompute, [] {
    const Table& table = started_driver();
    size_t pitch = 0;
    CUdeviceptr image = 0;
    EXPECT_EQ(table.cuMemAllocPitch(&image, &pitch, 100, 10, 4), CUDA_SUCCESS);
    const auto values = numbered(10 * 120);
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = values.data();
    copy.srcPitch = 120;
    copy.srcXInBytes = 4;
    copy.srcY = 1;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = image;
    copy.dstPitch = pitch;
    copy.WidthInBytes = 100;
    copy.Height = 9;
    EXPECT_EQ(table.cuMemcpy2D(&copy), CUDA_SUCCESS);
    for (size_t row = 0; row < 9; ++row) {
      const auto* expected = values.data() + (row + 1) * 120 + 4;
      const auto got = read_back(table, image + row * pitch, 100);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), expected)) << row;
    }
  });
}

TEST(Values, batches_and_stream_writes_carry_bytes) {
  in_process(kCompute, [] {
    const Table& table = started_driver();
    CUstream stream = nullptr;
    EXPECT_EQ(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    const CUdeviceptr memory = allocate(table, 4096);
    auto first = numbered(100, 1), second = numbered(200, 2);
    CUdeviceptr targets[] = {memory, memory + 1000};
    CUdeviceptr sources[] = {reinterpret_cast<CUdeviceptr>(first.data()),
                             reinterpret_cast<CUdeviceptr>(second.data())};
    size_t sizes[] = {100, 200};
    EXPECT_EQ(table.cuMemcpyBatchAsync_v2(targets, sources, sizes, 2, nullptr, nullptr, 0, stream),
              CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemcpyBatchAsync_v2(targets, sources, sizes, 2, nullptr, nullptr, 0, nullptr),
              CUDA_ERROR_INVALID_VALUE)
        << "not on the default stream";
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    EXPECT_EQ(table.cuMemcpyWithAttributesAsync(memory + 3000, sources[0], 100, &attributes, stream),
              CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemcpyWithAttributesAsync(memory + 3000, sources[0], 100, nullptr, stream),
              CUDA_ERROR_INVALID_VALUE);
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    EXPECT_EQ(table.cuMemcpyWithAttributesAsync(memory + 3000, sources[0], 100, &attributes, stream),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuStreamWriteValue32_v2(stream, memory + 2000, 0x01020304, 0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuStreamWriteValue32_v2(stream, memory + 2001, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(read_back(table, memory, 100), first);
    EXPECT_EQ(read_back(table, memory + 1000, 200), second);
    EXPECT_EQ(read_back(table, memory + 3000, 100), first);
    EXPECT_EQ(read_back(table, memory + 1999, 6), (std::vector<unsigned char>{0, 4, 3, 2, 1, 0}));
  });
}

TEST(Values, memsets_write_their_value_only) {
  in_process(kCompute, [] {
    const Table& table = started_driver();
    const CUdeviceptr memory = allocate(table, 64);
    EXPECT_EQ(table.cuMemsetD8(memory, 0x11, 64), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemsetD32Async(memory + 4, 0xCAFEBABE, 2, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemsetD16(memory + 20, 0x2233, 1), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemsetD2D8(memory + 32, 8, 0x44, 3, 2), CUDA_SUCCESS);
    std::vector<unsigned char> expected(64, 0x11);
    const uint32_t word = 0xCAFEBABE;
    std::memcpy(&expected[4], &word, 4);
    std::memcpy(&expected[8], &word, 4);
    expected[20] = 0x33;
    expected[21] = 0x22;
    for (const size_t i : {32, 33, 34, 40, 41, 42}) expected[i] = 0x44;
    EXPECT_EQ(read_back(table, memory, 64), expected);
  });
}

TEST(Values, new_memory_reads_as_zeros_or_as_poison) {
  for (const bool poison : {false, true}) {
    const std::string path = "/tmp/spillway-test-" + std::to_string(getpid()) + ".toml";
    FILE* file = std::fopen(path.c_str(), "w");
    std::fprintf(file, "poison = %s\n", poison ? "true" : "false");
    std::fclose(file);
    Settings settings = kCompute;
    settings["SPILLWAY_SIM_CONFIG"] = path;
    in_process(settings, [&] {
      const Table& table = started_driver();
      for (int i = 0; i < 3; ++i) {
        const CUdeviceptr memory = allocate(table, 4096);
        EXPECT_EQ(read_back(table, memory, 4096), std::vector<unsigned char>(4096, poison ? 0xFF : 0)) << i;
        EXPECT_EQ(table.cuMemsetD8(memory, 0x55, 4096), CUDA_SUCCESS);
        EXPECT_EQ(table.cuMemFree(memory), CUDA_SUCCESS);
      }
    });
    std::remove(path.c_str());
  }
}

TEST(Values, the_alias_shows_the_bytes_and_the_device_address_faults) {
  in_process(kCompute, [] {
    const Table& table = started_driver();
    const CUdeviceptr memory = allocate(table, 4096);
    auto* alias = reinterpret_cast<unsigned char*>(memory + table.simulator->alias_offset());
    struct Work {
      unsigned char* bytes;
    } work{alias};
    const SpillwayRange range = {memory, 4096, 1};
    EXPECT_EQ(table.simulator->submit(
                  nullptr, "fill", &range, 1, 10,
                  [](void* data) { std::memset(static_cast<Work*>(data)->bytes, 7, 4096); }, &work),
              CUDA_SUCCESS);
    EXPECT_EQ(read_back(table, memory, 4096), std::vector<unsigned char>(4096, 7));
    // A system call meets the protection as a load would, and only says so.
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(write(ends[1], alias, 1), 1);
    EXPECT_EQ(write(ends[1], reinterpret_cast<void*>(memory), 1), -1);
    EXPECT_EQ(table.cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_EQ(write(ends[1], alias, 1), -1) << "freed memory is not accessible at the alias";
  });
}

TEST(Values, a_page_keeps_its_bytes_when_it_is_mapped_elsewhere) {
  in_process(kCompute, [] {
    const Table& table = started_driver();
    CUdeviceptr range = 0;
    CUmemGenericAllocationHandle pages[2];
    const CUmemAllocationProp prop = device_page();
    const CUmemAccessDesc access = read_write();
    EXPECT_EQ(table.cuMemAddressReserve(&range, 4 * kPage, 0, 0, 0), CUDA_SUCCESS);
    const auto map = [&](CUdeviceptr at, CUmemGenericAllocationHandle page) {
      EXPECT_EQ(table.cuMemMap(at, kPage, 0, page, 0), CUDA_SUCCESS);
      EXPECT_EQ(table.cuMemSetAccess(at, kPage, &access, 1), CUDA_SUCCESS);
    };
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(table.cuMemCreate(&pages[i], kPage, &prop, 0), CUDA_SUCCESS);
      map(range + i * kPage, pages[i]);
      EXPECT_EQ(table.cuMemsetD8(range + i * kPage, static_cast<unsigned char>(i + 1), kPage), CUDA_SUCCESS);
    }
    EXPECT_EQ(table.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemUnmap(range, 2 * kPage), CUDA_SUCCESS);
    map(range + 2 * kPage, pages[1]);
    map(range + 3 * kPage, pages[0]);
    EXPECT_EQ(read_back(table, range + 3 * kPage - 1, 2), (std::vector<unsigned char>{2, 1}));
    map(range, pages[0]);
    EXPECT_EQ(table.cuMemsetD8(range, 9, 1), CUDA_SUCCESS);
    EXPECT_EQ(read_back(table, range + 3 * kPage, 1), (std::vector<unsigned char>{9}))
        << "two views of one page";
  });
}

// 512-byte blocks of system memory behind the simulated devices of this process.
long backing_blocks() {
  long blocks = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    struct stat status = {};
    if (target.starts_with("/memfd:spillway-device-") && stat(entry.path().c_str(), &status) == 0)
      blocks += status.st_blocks;
  }
  return blocks;
}

TEST(Values, freed_memory_goes_back_to_the_system) {
  in_process(kCompute, [] {
    const Table& table = started_driver();
    const CUdeviceptr memory = allocate(table, 8 * kMiB);
    EXPECT_EQ(table.cuMemsetD8(memory, 1, 8 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(backing_blocks(), static_cast<long>(8 * kMiB / 512));
    EXPECT_EQ(table.cuMemFree(memory), CUDA_SUCCESS);
    EXPECT_EQ(backing_blocks(), 0);
  });
}

TEST(Values, a_copy_to_pageable_memory_holds_the_caller_up) {
  in_process(kCompute, [] {
    const Table& table = started_driver();
    const CUdeviceptr memory = allocate(table, kMiB);
    std::vector<unsigned char> pageable(kMiB);
    void* pinned = nullptr;
    EXPECT_EQ(table.cuMemAllocHost(&pinned, kMiB), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemcpyDtoHAsync(pageable.data(), memory, kMiB, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(table.cuStreamQuery(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemcpyDtoHAsync(pinned, memory, kMiB, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(table.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  });
}

TEST(Values, host_memory_of_the_driver_is_known_by_its_pointer) {
  in_process(kCompute, [] {
    const Table& table = started_driver();
    void* host = nullptr;
    CUdeviceptr device_view = 0;
    unsigned type = 0;
    EXPECT_EQ(table.cuMemHostAlloc(&host, 100, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemHostGetDevicePointer(&device_view, host, 0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device_view),
              CUDA_SUCCESS);
    EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
    const CUdeviceptr memory = allocate(table, 100);
    EXPECT_EQ(table.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 50),
              CUDA_SUCCESS);
    EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
    CUdeviceptr base = 0;
    size_t bytes = 0;
    EXPECT_EQ(table.cuMemGetAddressRange(&base, &bytes, memory + 50), CUDA_SUCCESS);
    EXPECT_EQ(base, memory);
    EXPECT_EQ(bytes, 100u);
    int local = 0;
    EXPECT_EQ(table.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                          reinterpret_cast<CUdeviceptr>(&local)),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemFreeHost(host), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
  });
}

}  // namespace
}  // namespace spillway::test
