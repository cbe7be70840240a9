// Python's pickles of plain data (protocols 2 to 5): numbers, text, lists, tuples, dictionaries. Nothing that
// a file says is executed: what stands for an object of a class is kept as an opaque value.
//
// A file that ends early, or goes wrong, gives what it holds up to there, and says where and why it ended.
//
// Thread-safety: a Pickle that was read is constant. Ownership: it holds the file's bytes; texts are views of
// them. Errors: text. Bounds: memory in proportion to the file, at most `kMostBytes`.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace spillway::tools {

class Pickle {
 public:
  // One value: a place in the tables of its Pickle. Values that the file shares are equal.
  using Id = uint32_t;

  enum class Type : uint8_t { kNone, kBool, kInteger, kReal, kText, kList, kDictionary, kOpaque };

  // What `bytes` say. An empty file, or one that is no pickle, has no root.
  static Pickle read(std::string bytes);

  bool has_root() const { return root_.has_value(); }
  // REQUIRES: has_root().
  Id root() const { return root_.value_or(kNone); }
  // Where the file stops making sense, and why; "" of a whole one.
  const std::string& incomplete() const { return incomplete_; }

  Type type(Id value) const { return values_[value].type; }
  // Of a list or a tuple, in order; of a dictionary a key and its value by turns; else none.
  const std::vector<Id>& items(Id value) const;
  // Of an integer, or a truth value.
  std::optional<int64_t> integer(Id value) const;
  std::optional<double> number(Id value) const;
  std::optional<std::string_view> text(Id value) const;
  // The last entry of a dictionary under `key`.
  std::optional<Id> find(Id dictionary, std::string_view key) const;

 private:
  friend class PickleMachine;
  struct Value {
    Type type = Type::kNone;
    uint32_t length = 0;  // of a text
    int64_t bits = 0;     // the number, a double's bits, a text's offset, a container's number
  };
  static constexpr Id kNone = 0, kFalse = 1, kTrue = 2;

  std::string bytes_;
  std::string incomplete_;
  std::optional<Id> root_;
  std::vector<Value> values_;
  std::vector<std::vector<Id>> containers_;
};

// Whether a file that begins so may be a pickle.
bool begins_as_pickle(std::string_view bytes);

}  // namespace spillway::tools
