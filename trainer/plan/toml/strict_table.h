// Reading a TOML table in which every key must be known and of the right type.
//
// Thread-safety: none; one reader a table. Ownership: borrows the table. Errors: the first one is kept, as
// "line 12: unknown key 'batchs' in [train]: did you mean 'batch'?"; a reader with an error leaves its
// outputs as they were.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <stdexcept>

namespace spillway::trainer {
// Some malformed texts fail an assertion of toml++'s parser: an error of the text, not of the program.
[[noreturn]] inline void reject_toml() {
  throw std::invalid_argument("the text is malformed");
}
}  // namespace spillway::trainer

#define TOML_ASSERT(condition) ((condition) ? void() : ::spillway::trainer::reject_toml())
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

namespace spillway::trainer {

// The document, or nothing and "line 3: ..." in `error`. Throws nothing. `source`, if any, is what later
// errors about the document's nodes name in place of a line.
std::optional<toml::table> parse_toml(std::string_view text, std::string* error,
                                      std::string_view source = "");

class StrictTable {
 public:
  // `name` as a person would write it, "train" for [train], "" for the document itself.
  StrictTable(const toml::table& table, std::string name) : table_(table), name_(std::move(name)) {}

  void number(std::string_view key, double* value, double least, double most);
  void text(std::string_view key, std::string* value);
  void boolean(std::string_view key, bool* value);
  template <typename Integer>
  void integer(std::string_view key, Integer* value, int64_t least,
               int64_t most = std::numeric_limits<int32_t>::max()) {
    if (const auto read = integer_in(key, least, most)) *value = static_cast<Integer>(*read);
  }
  // Null when the key is absent, or of another type (then there is an error).
  const toml::table* table(std::string_view key);
  const toml::array* array(std::string_view key);
  // The node itself, for keys of several types; the key counts as known.
  const toml::node* node(std::string_view key);

  void fail(const toml::node& where, std::string_view what);
  // Call last: any key that was never asked for is an error.
  bool finish();
  const std::string& error() const { return error_; }

 private:
  std::optional<int64_t> integer_in(std::string_view key, int64_t least, int64_t most);
  void fail_type(std::string_view key, const toml::node& node, std::string_view expected);
  std::string qualified(std::string_view key) const;

  const toml::table& table_;
  std::string name_, error_;
  std::vector<std::string> known_;
};

// Byte counts: an integer, or text such as "512MiB", "2GiB", "80GB".
std::optional<uint64_t> parse_bytes(std::string_view text);
// The member of `known` with the least edit distance to `key`, "" when none is near.
std::string nearest(std::string_view key, const std::vector<std::string>& known);

}  // namespace spillway::trainer
