// The stack machine that a pickle is a program for: https://github.com/python/cpython, Lib/pickletools.py
// describes each of its instructions.
//
// Thread-safety: one thread. Ownership: the stream and the Pickle are the caller's. Errors: what goes wrong
// ends the program, and is said in the Pickle.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tools/spillway/snapshot/pickle/pickle.h"
#include "tools/spillway/snapshot/pickle/pickle_memo.h"

namespace spillway::tools {

inline constexpr uint8_t kPickleProtocol = 0x80, kNewestPickleProtocol = 5;

class PickleMachine {
 public:
  PickleMachine(ByteStream* bytes, const Pickle::TakeRecord& take_record, Pickle* out);

  void run();

 private:
  using Id = Pickle::Id;
  using Type = Pickle::Type;

  void fail(const char* why) {
    if (failure_ == nullptr) failure_ = why;
  }

  std::string_view take(uint64_t count);
  uint64_t take_number(unsigned count) { return little_endian(take(count)); }
  std::string_view take_line();

  void account(uint64_t bytes);
  Id make(Pickle::Value value);
  // Nothing of an instruction that failed.
  void push(Id value);
  void push_integer(int64_t number) { push(make({Type::kInteger, 0, number})); }
  void push_small(uint8_t number) { push(Pickle::kFirstSmall + number); }
  void push_text(std::string_view text);
  void push_opaque() { push(make({Type::kOpaque, 0, 0})); }
  void push_container(Type type);
  void push_long(std::string_view taken);
  void push_tuple(std::span<const Id> items);
  void push_last(size_t count);
  void push_global(std::string_view module, std::string_view name);
  void push_global_of_stack();
  void push_real();

  Id pop();
  Id top();
  // Everything above the last mark; `drop_marked` takes it away.
  std::span<const Id> marked();
  void drop_marked();

  void extend(Id container, std::span<const Id> items);
  void extend_with_marked();
  bool take_as_record(Id dictionary, std::span<const Id> items);
  void forget_since(Id dictionary);

  void remember(uint64_t index);
  void recall(uint64_t index);
  void reduce();
  void check_protocol();

  void step();
  bool of_numbers(uint8_t opcode);
  bool of_texts(uint8_t opcode);
  bool of_containers(uint8_t opcode);
  bool of_the_stack(uint8_t opcode);
  bool of_objects(uint8_t opcode);

  void close_what_is_open();
  std::vector<Id> pairs_of(std::span<const Id> items);

  ByteStream& bytes_;
  const Pickle::TakeRecord& take_record_;
  Pickle& out_;
  uint64_t begin_ = 0;  // of the instruction
  uint64_t used_ = 0;
  bool stopped_ = false;
  const char* failure_ = nullptr;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  PickleMemo memo_;
  uint64_t next_memo_ = 0;
  Id highest_kept_ = 0;  // of the values that may be used again
  std::optional<Id> marks_type_;
};

}  // namespace spillway::tools
