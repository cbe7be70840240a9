// Python's pickles of plain data (protocols 2 to 5): numbers, text, lists, tuples, dictionaries. Nothing that
// a file says is executed: what stands for an object of a class is kept as an opaque value.
//
// A file that ends early, or goes wrong, gives what it holds up to there, and says where and why it ended.
// Whoever reads a file of millions of equal records takes each as it is complete, and the Pickle forgets it.
//
// Thread-safety: a Pickle that was read is constant. Ownership: it holds the texts; who keeps views of them
// keeps `texts`. Errors: text. Bounds: memory in proportion to the file, at most 8 GiB.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/spillway/snapshot/pickle/byte_stream.h"
#include "tools/spillway/snapshot/text_arena.h"

namespace spillway::tools {

class Pickle {
 public:
  // One value: a place in the tables of its Pickle, or the number of a record that was taken. Values that the
  // file shares are equal. An id that stands for nothing is that of None.
  using Id = uint32_t;

  enum class Type : uint8_t { kNone, kBool, kInteger, kReal, kText, kList, kDictionary, kOpaque, kRecord };

  // Offered each dictionary when it is filled, keys and values by turns: the number under which it was taken,
  // less than 2^31, or nothing, and it stays a dictionary. Of a dictionary that was taken no id is good
  // afterwards, but for those below `first`.
  using TakeRecord =
      std::function<std::optional<uint32_t>(const Pickle& pickle, std::span<const Id> items, Id first)>;

  // What `bytes` say. An empty file, or one that is no pickle, has no root.
  static Pickle read(ByteStream bytes, const TakeRecord& take_record = nullptr);

  bool has_root() const { return root_.has_value(); }
  // REQUIRES: has_root().
  Id root() const { return root_.value_or(kNone); }
  // Where the file stops making sense, and why; "" of a whole one.
  const std::string& incomplete() const { return incomplete_; }
  // How many dictionaries the file makes: as many records there are at most.
  uint64_t dictionaries() const { return dictionaries_; }
  std::shared_ptr<const void> texts() const { return texts_; }

  Type type(Id value) const { return at(value).type; }
  // Of a list or a tuple, in order; of a dictionary a key and its value by turns; else none.
  const std::vector<Id>& items(Id value) const;
  // Of an integer, or a truth value; of a record its number.
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
    int64_t bits = 0;     // the number, a double's bits, a text's address, a container's number
  };
  static constexpr Id kNone = 0, kFalse = 1, kTrue = 2, kFirstSmall = 3;
  static constexpr Id kRecordBit = Id{1} << 31;

  Value at(Id value) const {
    if ((value & kRecordBit) != 0) return {Type::kRecord, 0, value & ~kRecordBit};
    return value < values_.size() ? values_[value] : Value{};
  }

  std::shared_ptr<TextArena> texts_ = std::make_shared<TextArena>();
  std::string incomplete_;
  uint64_t dictionaries_ = 0;
  std::optional<Id> root_;
  std::vector<Value> values_;
  std::vector<std::vector<Id>> containers_;
};

// Whether a file that begins so may be a pickle.
bool begins_as_pickle(std::string_view bytes);

inline constexpr uint64_t kLongestName = uint64_t{1} << 16;  // of a class, in bytes

// A little-endian number of at most 8 bytes.
inline uint64_t little_endian(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i) number |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return number;
}

}  // namespace spillway::tools
