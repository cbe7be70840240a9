// Runs the real `spillway` program and collects what it says.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace spillway::tools {

struct Ran {
  int code = -1;  // exit code, or 128 + signal
  std::string out, err;
};

class CommandTest : public ::testing::Test {
 protected:
  CommandTest() {
    std::string name = (std::filesystem::temp_directory_path() / "spillway-tools-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    folder_ = name;
    program_ = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "spillway";
  }
  ~CommandTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // Runs `spillway` with `words` in this test's own folder.
  Ran run(std::vector<std::string> words, const std::map<std::string, std::string>& environment = {}) const {
    return wait(start(std::move(words), environment));
  }
  // The same in two steps. It leads a group of processes, as a shell's job does.
  pid_t start(std::vector<std::string> words,
              const std::map<std::string, std::string>& environment = {}) const {
    words.insert(words.begin(), program_.string());
    const pid_t pid = ::fork();
    if (pid == 0) become(words, environment);
    ::setpgid(pid, pid);
    return pid;
  }
  Ran wait(pid_t pid) const {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text_of("out"), text_of("err")};
  }

  // A file of this test's own folder, by its path within it.
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::filesystem::path& folder() const { return folder_; }
  const std::filesystem::path& program() const { return program_; }

 private:
  [[noreturn]] void become(const std::vector<std::string>& words,
                           const std::map<std::string, std::string>& environment) const {
    ::setpgid(0, 0);
    if (::chdir(folder_.c_str()) != 0) ::_exit(90);
    write_to("out", 1);
    write_to("err", 2);
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execv(arguments[0], arguments.data());
    ::_exit(91);
  }
  static void write_to(const char* name, int descriptor) {
    const int file = ::open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ::dup2(file, descriptor) < 0) ::_exit(92);
  }
  std::string text_of(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_, program_;
};

}  // namespace spillway::tools
