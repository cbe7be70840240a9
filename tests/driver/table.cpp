// The table of driver functions, its loading, the look-up by version, and the probe.
#include "driver/table.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <iterator>
#include <utility>

#include "driver/probe.h"
#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Features;
using driver::LoadError;
using driver::Table;
using testing::HasSubstr;

TEST(Table, every_function_of_the_list_is_found_in_the_simulator) {
  in_process({}, [] {
    const Table& table = loaded_driver();
    const std::pair<const char*, const void*> functions[] = {
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) \
  {#name, reinterpret_cast<const void*>(table.name)},
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
    };
    for (const auto& [name, address] : functions) EXPECT_NE(address, nullptr) << name;
    EXPECT_GT(std::size(functions), 600u);
    ASSERT_NE(table.simulator, nullptr);
    EXPECT_EQ(table.simulator->size, sizeof(SpillwaySimulatorControl));
  });
}

TEST(Table, a_field_means_the_version_that_the_header_means) {
  in_process({}, [] {
    const Table& table = loaded_driver();
    void* library = dlopen(simulator_library().c_str(), RTLD_NOW | RTLD_NOLOAD);
    EXPECT_EQ(reinterpret_cast<void*>(table.cuMemAlloc), dlsym(library, "cuMemAlloc_v2"));
    EXPECT_EQ(reinterpret_cast<void*>(table.cuStreamGetCaptureInfo),
              dlsym(library, "cuStreamGetCaptureInfo_v3"));
    EXPECT_EQ(reinterpret_cast<void*>(table.cuMemcpyHtoDAsync_v2_ptsz),
              dlsym(library, "cuMemcpyHtoDAsync_v2_ptsz"));
    EXPECT_NE(dlsym(library, "cuMemAlloc"), dlsym(library, "cuMemAlloc_v2"));
  });
}

TEST(Table, a_library_that_is_no_driver_is_refused_with_a_reason) {
  in_process({}, [] {
    LoadError error;
    EXPECT_EQ(driver::resolve("/nowhere/libcuda.so.1", &error), nullptr);
    EXPECT_THAT(error.text, HasSubstr("/nowhere/libcuda.so.1"));
    EXPECT_EQ(driver::resolve("libc.so.6", &error), nullptr);
    EXPECT_THAT(error.text, HasSubstr("libc.so.6 is no CUDA driver"));
    EXPECT_EQ(driver::resolve("libc.so.6", nullptr), nullptr);
  });
}

TEST(Table, the_process_has_one_driver_named_by_the_environment) {
  in_process({{"SPILLWAY_DRIVER", simulator_library()}}, [] {
    LoadError error;
    const Table* table = driver::process_table(&error);
    ASSERT_NE(table, nullptr) << error.text;
    EXPECT_EQ(driver::process_table(nullptr), table);
  });
  in_process({{"SPILLWAY_DRIVER", "/nowhere/driver.so"}}, [] {
    for (int i = 0; i < 2; ++i) {
      LoadError error;
      EXPECT_EQ(driver::process_table(&error), nullptr);
      EXPECT_THAT(error.text, HasSubstr("/nowhere/driver.so"));
    }
  });
}

TEST(Table, errors_are_described_by_name_and_text) {
  in_process({}, [] {
    const Table& table = loaded_driver();
    EXPECT_EQ(driver::describe(table, CUDA_ERROR_OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
    EXPECT_EQ(driver::describe(table, static_cast<CUresult>(12345)), "CUDA error 12345");
    EXPECT_EQ(driver::describe(Table{}, CUDA_ERROR_OUT_OF_MEMORY), "CUDA error 2");
  });
}

TEST(ProcAddress, a_name_means_what_its_cuda_version_meant) {
  in_process({}, [] {
    const Table& table = loaded_driver();
    const auto find = [&](const char* name, int version, cuuint64_t flags = 0) {
      void* found = nullptr;
      CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
      EXPECT_EQ(table.cuGetProcAddress(name, &found, version, flags, &status), CUDA_SUCCESS);
      EXPECT_EQ(found != nullptr, status == CU_GET_PROC_ADDRESS_SUCCESS);
      return found;
    };
    const auto address = [](auto function) { return reinterpret_cast<void*>(function); };
    EXPECT_EQ(find("cuMemAlloc", 13000), address(table.cuMemAlloc_v2));
    EXPECT_EQ(find("cuMemAlloc", 3020), address(table.cuMemAlloc_v2));
    EXPECT_EQ(find("cuStreamGetCaptureInfo", 12000), address(table.cuStreamGetCaptureInfo_v2));
    EXPECT_EQ(find("cuStreamGetCaptureInfo", 12030), address(table.cuStreamGetCaptureInfo_v3));
    EXPECT_EQ(find("cuCtxCreate", 11030), address(table.cuCtxCreate_v2));
    EXPECT_EQ(find("cuGetProcAddress", 12000), address(table.cuGetProcAddress_v2)) << "it finds itself";
    constexpr auto kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    EXPECT_EQ(find("cuMemcpyHtoDAsync", 13000, kPerThread), address(table.cuMemcpyHtoDAsync_v2_ptsz));
    EXPECT_EQ(find("cuMemCreate", 13000, kPerThread), address(table.cuMemCreate));
  });
}

TEST(ProcAddress, what_there_is_not_is_said_so) {
  in_process({}, [] {
    const Table& table = loaded_driver();
    void* found = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    EXPECT_EQ(table.cuGetProcAddress("cuNothing", &found, 13000, 0, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT_EQ(table.cuGetProcAddress("cuMemCreate", &found, 9000, 0, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT_EQ(found, nullptr);
    EXPECT_EQ(table.cuGetProcAddress("cuNothing", &found, 13000, 0, nullptr), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(table.cuGetProcAddress(nullptr, &found, 13000, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(Probe, finds_what_works_and_leaves_nothing_behind) {
  for (const char* values : {"zeros", "compute"})
    in_process({{"SPILLWAY_SIM_VALUES", values}}, [] {
      const Table& table = loaded_driver();
      const Features features = driver::probe(table, 0, driver::HostPagesTrial::kYes);
      EXPECT_TRUE(features.virtual_memory) << features.why_not;
      EXPECT_TRUE(features.host_pages) << features.why_not;
      EXPECT_TRUE(features.cpu_access) << features.why_not;
      EXPECT_TRUE(features.file_descriptors) << features.why_not;
      EXPECT_FALSE(features.fabric);
      EXPECT_FALSE(features.rdma);
      EXPECT_EQ(features.granularity_bytes, kPage);
      EXPECT_EQ(features.host_location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
      EXPECT_EQ(features.host_location.id, 0);
      EXPECT_THAT(features.why_not, HasSubstr("fabric handles: cuMemCreate: CUDA_ERROR_NOT_SUPPORTED"));
      EXPECT_EQ(text(table.simulator->leaks), "");
      EXPECT_EQ(counts(table).violations, 0u);
      CUcontext context = nullptr;
      EXPECT_EQ(table.cuCtxGetCurrent(&context), CUDA_SUCCESS);
      EXPECT_EQ(context, nullptr);
    });
}

TEST(Probe, makes_no_host_page_unless_that_is_asked_for) {
  in_process({}, [] {
    const Table& table = loaded_driver();
    EXPECT_FALSE(driver::probe(table, 0).host_pages);
    const uint64_t without = counts(table).driver_calls;
    driver::probe(table, 0, driver::HostPagesTrial::kYes);
    EXPECT_GT(counts(table).driver_calls, 2 * without);
  });
}

TEST(Probe, a_failure_at_any_call_is_a_missing_feature_and_leaves_nothing) {
  in_process({}, [] {
    const Table& table = loaded_driver();
    driver::probe(table, 0, driver::HostPagesTrial::kYes);
    const uint64_t calls = counts(table).driver_calls;
    ASSERT_GT(calls, 8u);
    for (uint64_t n = 1; n <= calls; ++n) {
      table.simulator->reset();
      table.simulator->fail_call(n, nullptr, 0, CUDA_ERROR_OUT_OF_MEMORY);
      const Features features = driver::probe(table, 0, driver::HostPagesTrial::kYes);
      EXPECT_EQ(counts(table).injected_failures, 1u) << n;
      const bool said = features.why_not.find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos;
      // Another place of the host is tried, or the CPU has no access.
      EXPECT_TRUE(said || features.host_location.type == CU_MEM_LOCATION_TYPE_HOST || !features.cpu_access)
          << n;
      EXPECT_EQ(text(table.simulator->leaks), "") << n;
    }
  });
}

TEST(Probe, a_full_device_is_believed_to_do_what_the_driver_says) {
  in_process({}, [] {
    const Table& table = loaded_driver();
    driver::probe(table, 0);
    SpillwaySimulatorUsage usage{};
    ASSERT_EQ(table.simulator->usage(0, &usage), CUDA_SUCCESS);
    ASSERT_EQ(table.simulator->charge(0, "others", usage.capacity_bytes - usage.charged_bytes), CUDA_SUCCESS);
    const Features features = driver::probe(table, 0);
    EXPECT_TRUE(features.virtual_memory);
    EXPECT_TRUE(features.file_descriptors);
    EXPECT_EQ(features.granularity_bytes, kPage);
    EXPECT_THAT(features.why_not, HasSubstr("virtual memory: cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY"));
    EXPECT_EQ(text(table.simulator->leaks), "");
  });
}

TEST(Probe, a_device_that_is_not_there_has_no_features) {
  in_process({}, [] {
    const Features features = driver::probe(loaded_driver(), 5);
    EXPECT_FALSE(features.virtual_memory);
    EXPECT_THAT(features.why_not, HasSubstr("device 5: CUDA_ERROR_INVALID_DEVICE"));
  });
}

}  // namespace
}  // namespace spillway::test
