// Reading the keys of one TOML table, each checked. toml++ is most of its users' compile time: they are units
// of their own.
//
// Thread-safety: none; one reader belongs to one table. Ownership: borrows the table and the file's name.
// Errors: the first thing that is wrong is kept, and nothing is read after it; `finish` gives it. Units:
// bytes.
#pragma once
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// Some malformed files fail an assertion of toml++'s parser: that is an error of the file, not of the
// program.
[[noreturn]] inline void reject_toml_file() {
  throw std::invalid_argument("the file is malformed");
}
#define TOML_ASSERT(condition) ((condition) ? void() : reject_toml_file())
#include <toml++/toml.h>

namespace spillway::simulator {

class TomlReader {
 public:
  TomlReader(const toml::table& table, std::string section, const std::string& file)
      : table_(table), section_(std::move(section)), file_(file) {}

  // True when the key is there and right.
  bool bytes(const char* key, uint64_t least, uint64_t& out);
  void integer(const char* key, int64_t least, int64_t most, uint64_t& out);
  void integer(const char* key, int least, int most, int& out);
  // A list of whole numbers, which may be empty.
  void integers(const char* key, int least, int most, std::vector<int>& out);
  void number(const char* key, double least, double most, double& out);
  void flag(const char* key, bool& out);
  std::optional<std::string> text(const char* key);
  const toml::table* section(const char* key);
  void reject(const char* key, const std::string& expected);

  // To be called last: a key that nobody asked for is an error.
  std::string finish();

 private:
  const toml::node* take(const char* key);
  std::optional<int64_t> whole(const char* key, int64_t least, int64_t most);
  std::string place(const toml::node& node) const;
  void wrong(const char* key, const toml::node& node, const std::string& expected);

  const toml::table& table_;
  std::string section_;
  const std::string& file_;
  std::vector<std::string> known_;
  std::string error_;
};

}  // namespace spillway::simulator
