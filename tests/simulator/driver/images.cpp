// Device code: which images a binary holds, which a card can run, and what the driver refuses.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "simulator/cards/fat_binary.h"
#include "tests/simulator/driver/support.h"
#include "tests/simulator/fat_binaries.h"

namespace spillway::test {
namespace {

using cards::Image;
using testing::HasSubstr;

std::vector<Image> read(const std::string& bytes) {
  return cards::read_images(bytes.data(), bytes.size());
}

TEST(FatBinary, gives_its_images) {
  const std::string bytes = container({{2, 75}, {2, 90, 'a', 128, 5000}, {1, 100, 'f', 8}});
  const auto images = read(bytes);
  ASSERT_EQ(images.size(), 3u);
  EXPECT_EQ(cards::list_images(images), "sm_75 sm_90a compute_100f");
  EXPECT_EQ(images[0].bytes, 64u);
  EXPECT_EQ(images[1].bytes, 5000u);
  EXPECT_EQ(cards::container_bytes(bytes.data(), bytes.size()), bytes.size());
}

TEST(FatBinary, a_lone_cubin_or_ptx_is_one_image) {
  EXPECT_EQ(cards::list_images(read(cubin(90))), "sm_90");
  EXPECT_EQ(cards::list_images(read(cubin(86, false))), "sm_86");
  EXPECT_EQ(cards::list_images(read("//\n.version 9.0\n.target sm_80\n.address_size 64\n")), "compute_80");
  EXPECT_EQ(cards::list_images(read(".version 9.0\n.target sm_120a\n")), "compute_120a");
  EXPECT_TRUE(read(".version 9.0\n").empty());
  EXPECT_TRUE(read("hello").empty());
  EXPECT_TRUE(read("").empty());
  std::string other = cubin(90);
  other[18] = 62;  // x86-64
  EXPECT_TRUE(read(other).empty());
}

TEST(FatBinary, the_rules_of_who_runs_what) {
  const Image sm80{.sm = 80}, sm90a{.sm = 90, .suffix = 'a'}, sm100f{.sm = 100, .suffix = 'f'};
  const Image ptx75{.ptx = true, .sm = 75}, ptx90a{.ptx = true, .sm = 90, .suffix = 'a'};
  EXPECT_TRUE(cards::runs_on(sm80, 8, 0));
  EXPECT_TRUE(cards::runs_on(sm80, 8, 9));
  EXPECT_FALSE(cards::runs_on(sm80, 7, 5));
  EXPECT_FALSE(cards::runs_on(sm80, 9, 0));
  EXPECT_TRUE(cards::runs_on(sm90a, 9, 0));
  EXPECT_FALSE(cards::runs_on(sm90a, 10, 0));
  EXPECT_TRUE(cards::runs_on(sm100f, 10, 3));
  EXPECT_FALSE(cards::runs_on(sm100f, 12, 0));
  EXPECT_TRUE(cards::runs_on(ptx75, 12, 0));
  EXPECT_FALSE(cards::runs_on(ptx75, 7, 0));
  EXPECT_FALSE(cards::runs_on(ptx90a, 10, 0));

  const std::vector<Image> images{ptx75, {.sm = 80}, {.sm = 86}};
  EXPECT_EQ(cards::choose_image(images, 8, 9)->sm, 86);
  EXPECT_EQ(cards::choose_image(images, 8, 0)->sm, 80);
  EXPECT_TRUE(cards::choose_image(images, 12, 0)->ptx);
  EXPECT_EQ(cards::choose_image(images, 7, 0), nullptr);
}

TEST(FatBinary, malformed_ones_are_read_within_their_bounds) {
  const std::string whole = container({{2, 75}, {2, 80, 0, 32, 4096}, {1, 90}});
  for (size_t size = 0; size < whole.size(); ++size) {  // a copy of the exact size, so that a sanitizer sees
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_LE(cards::read_images(cut.data(), cut.size()).size(), 3u);
  }
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::vector<char> bytes(whole.begin(), whole.end());
    for (int change = 0; change < 4; ++change)
      bytes[4 + random() % (bytes.size() - 4)] = static_cast<char>(random());
    const auto images = cards::read_images(bytes.data(), bytes.size());
    EXPECT_LE(images.size(), bytes.size() / 64);
    cards::choose_image(images, 9, 0);
  }
}

// Loads `image` as cuModuleLoadData and cuLibraryLoadData do.
CUresult load(const driver::Table& table, const void* image) {
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  const CUresult result = table.cuModuleLoadData(&module, image);
  EXPECT_EQ(table.cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0), result);
  return result;
}

TEST(Modules, load_on_a_card_that_could_run_them) {
  in_process({{"SPILLWAY_SIM_CARD", "a100-40gb"}}, [] {
    const driver::Table& table = started_driver();
    const std::string binary = container({{2, 75}, {2, 80}}), newer = container({{2, 90}, {2, 100}});
    const FatBinary wrapper{.data = binary.data()};
    EXPECT_EQ(load(table, binary.data()), CUDA_SUCCESS);
    EXPECT_EQ(load(table, &wrapper), CUDA_SUCCESS);
    EXPECT_EQ(load(table, cubin(80).data()), CUDA_SUCCESS);
    EXPECT_EQ(load(table, ".version 8.0\n.target sm_75\n"), CUDA_SUCCESS);
    EXPECT_EQ(load(table, "no image"), CUDA_ERROR_INVALID_IMAGE);
    testing::internal::CaptureStderr();
    EXPECT_EQ(load(table, newer.data()), CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT_EQ(load(table, cubin(90).data()), CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT_EQ(load(table, ".target sm_90\n"), CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "spillway simulator: a module was built for sm_90 sm_100: compute capability 8.0 (NVIDIA "
              "A100-SXM4-40GB) has no kernel in it\n");
  });
}

// As a driver has it: modules are of a context, libraries of none.
TEST(Modules, need_a_current_context) {
  const std::string path = "/tmp/spillway-module-" + std::to_string(getpid()), binary = container({{2, 80}});
  std::ofstream(path, std::ios::binary) << binary;
  in_process({{"SPILLWAY_SIM_CARD", "a100-40gb"}}, [&] {
    const driver::Table& table = started_driver();
    CUcontext context = nullptr;
    CUmodule module = nullptr, none = nullptr;
    CUfunction function = nullptr;
    CUlibrary library = nullptr;
    ASSERT_EQ(table.cuModuleLoadData(&module, binary.data()), CUDA_SUCCESS);
    ASSERT_EQ(table.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    ASSERT_EQ(table.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(table.cuModuleLoad(&none, path.c_str()), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(table.cuModuleLoadData(&none, binary.data()), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(table.cuModuleLoadDataEx(&none, binary.data(), 0, nullptr, nullptr),
              CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(table.cuModuleLoadFatBinary(&none, binary.data()), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(table.cuModuleGetFunction(&function, module, "kernel"), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(table.cuLibraryLoadData(&library, binary.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
              CUDA_SUCCESS);
    ASSERT_EQ(table.cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(table.cuModuleGetFunction(&function, module, "kernel"), CUDA_SUCCESS);
  });
  std::filesystem::remove(path);
}

TEST(Modules, of_a_file_are_its_bytes) {
  const std::string path = "/tmp/spillway-module-" + std::to_string(getpid());
  const auto hold = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; };
  in_process({}, [&] {
    const driver::Table& table = started_driver();
    CUmodule module = nullptr;
    EXPECT_EQ(table.cuModuleLoad(&module, "/nowhere/at.all"), CUDA_ERROR_FILE_NOT_FOUND);
    hold(container({{2, 80}}));
    EXPECT_EQ(table.cuModuleLoad(&module, path.c_str()), CUDA_SUCCESS);
    hold(container({{2, 80}}).substr(0, 100));
    EXPECT_EQ(table.cuModuleLoad(&module, path.c_str()), CUDA_ERROR_INVALID_IMAGE);
    hold(
        "\x7f"
        "ELF");
    EXPECT_EQ(table.cuModuleLoad(&module, path.c_str()), CUDA_ERROR_INVALID_IMAGE);
    hold("");
    EXPECT_EQ(table.cuModuleLoad(&module, path.c_str()), CUDA_ERROR_INVALID_IMAGE);
    hold(std::string("\xb1\x43\x62\x46\x01\0\0\0", 8) + std::string(16, '\x41'));  // a wrapper's address
    EXPECT_EQ(table.cuModuleLoad(&module, path.c_str()), CUDA_ERROR_INVALID_IMAGE);
  });
  std::filesystem::remove(path);
}

TEST(Modules, variables_of_a_cubin_have_memory_until_it_is_unloaded) {
  in_process({{"SPILLWAY_SIM_CARD", "a100-40gb"}}, [] {
    const driver::Table& table = started_driver();
    const std::string binary = cubin_with_variable(80, "table", 3 * kPage);
    const uint64_t before = counts(table).live_pages_bytes;
    CUmodule module = nullptr;
    CUdeviceptr address = 0, again = 0;
    size_t bytes = 0;
    ASSERT_EQ(table.cuModuleLoadData(&module, binary.data()), CUDA_SUCCESS);
    EXPECT_EQ(table.cuModuleGetGlobal(&address, &bytes, module, "table"), CUDA_SUCCESS);
    EXPECT_EQ(bytes, 3 * kPage);
    EXPECT_EQ(counts(table).live_pages_bytes - before, 3 * kPage);
    EXPECT_EQ(table.cuModuleGetGlobal(&again, nullptr, module, "table"), CUDA_SUCCESS);
    EXPECT_EQ(again, address);
    EXPECT_EQ(table.cuMemcpyHtoD(address, binary.data(), binary.size()), CUDA_SUCCESS);
    EXPECT_EQ(table.cuModuleGetGlobal(&again, &bytes, module, "another"), CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(table.cuModuleUnload(module), CUDA_SUCCESS);
    EXPECT_EQ(counts(table).live_pages_bytes, before);
    EXPECT_EQ(counts(table).violations, 0u);
  });
}

TEST(FatBinary, variables_are_read_within_the_bounds_of_a_cubin) {
  const std::string binary = cubin_with_variable(80, "table", 16);
  ASSERT_EQ(cards::read_variables(binary.data(), binary.size()).size(), 1u);
  for (size_t size = 0; size < binary.size(); ++size) {
    const std::vector<char> part(binary.begin(), binary.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_TRUE(cards::read_variables(part.data(), part.size()).empty());
  }
}

}  // namespace
}  // namespace spillway::test
