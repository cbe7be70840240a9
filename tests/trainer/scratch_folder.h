// A folder of a test's own, gone with the test.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace spillway::trainer {

class ScratchFolder {
 public:
  ScratchFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("spillway-trainer-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code code;
    std::filesystem::remove_all(path_, code);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  // A text with enough structure to learn from: the same on every machine.
  std::string corpus(size_t bytes = 20000) const {
    std::string text;
    uint64_t state = 42;
    static const char* kWords[] = {"the ", "page ", "spills ", "to ", "host ", "and ", "back ", "again.\n"};
    while (text.size() < bytes) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      text += kWords[state >> 61];
    }
    write(file("corpus.txt"), text);
    return file("corpus.txt");
  }

 private:
  std::filesystem::path path_;
};

}  // namespace spillway::trainer
