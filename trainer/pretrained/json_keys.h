// The keys of a JSON object that somebody else wrote: each is read with its type and its bounds. A key that
// is null counts as missing, as in transformers' files. The first error is kept, and later reads change
// nothing.
//
// Thread-safety: one thread. Ownership: borrows the object, which must outlive it. Errors: `error()`, a text
// that names the key; "" when there is none.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace spillway::trainer {

class JsonKeys {
 public:
  explicit JsonKeys(const nlohmann::json& object) : object_(object) {}

  // Null when it is missing.
  const nlohmann::json* find(const std::string& key) const;

  void require(const std::string& key, uint32_t* value, uint32_t least, uint32_t most);
  // These leave `value` as it is when the key is missing.
  void integer(const std::string& key, uint32_t* value, uint32_t least, uint32_t most);
  void number(const std::string& key, double* value, double least, double most);
  void flag(const std::string& key, bool* value);
  void text(const std::string& key, std::string* value);
  // A flag that changes the mathematics, and that has to be `wanted` or missing.
  void must_be(const std::string& key, bool wanted);

  void fail(const std::string& text);
  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }

 private:
  void wrong(const std::string& key, const std::string& wanted);

  const nlohmann::json& object_;
  std::string error_;
};

// The object in a file; nothing, and a text that names the file, when there is none.
std::optional<nlohmann::json> read_json_object(const std::string& path, std::string* error);

}  // namespace spillway::trainer
