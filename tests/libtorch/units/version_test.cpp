// The version of a LibTorch that tells it by no function: 2.8 and older.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/libtorch_version.h"

namespace spillway {
namespace {

class OldLibTorch : public ::testing::Test {
 protected:
  // A LibTorch's folder, whose library has the name alone.
  OldLibTorch() {
    std::string name = (std::filesystem::temp_directory_path() / "spillway-libtorch-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    folder_ = name;
    std::filesystem::create_directory(folder_ / "lib");
    std::filesystem::copy_file(SPILLWAY_OLD_LIBTORCH, folder_ / "lib" / "libtorch_cpu.so");
  }
  ~OldLibTorch() override {
    if (library_ != nullptr) dlclose(library_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  LibTorchVersion loaded(const std::string& file, const std::string& text) {
    std::ofstream(folder_ / file) << text;
    library_ = dlopen((folder_ / "lib" / "libtorch_cpu.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
    return libtorch_version();
  }

 private:
  std::filesystem::path folder_;
  void* library_ = nullptr;
};

TEST_F(OldLibTorch, NoneIsLoaded) {
  EXPECT_FALSE(libtorch_version().known());
}

TEST_F(OldLibTorch, AWheelHasItInVersionPy) {
  const LibTorchVersion version =
      loaded("version.py", "from typing import Optional\n\n__version__ = '2.8.1+cu128'\ndebug = False\n");
  EXPECT_EQ(version.text(), "2.8");
  EXPECT_EQ(version.patch, 1U);
}

TEST_F(OldLibTorch, AnArchiveForCppHasItInBuildVersion) {
  EXPECT_EQ(loaded("build-version", "2.7.0+cu126\n").text(), "2.7");
}

TEST_F(OldLibTorch, WhatIsNoVersionIsUnknown) {
  EXPECT_FALSE(loaded("version.py", "__version__ = 'two'\n" + std::string(5000, '9') + "\n").known());
}

}  // namespace
}  // namespace spillway
