#include "tools/spillway/snapshot/pickle.h"

#include <bit>
#include <cstring>

namespace spillway::tools {
namespace {

// An allocation history of ten million events takes less.
constexpr uint64_t kMostBytes = uint64_t{8} << 30;
constexpr uint8_t kProtocol = 0x80;
constexpr uint8_t kNewestProtocol = 5;

}  // namespace

// The stack machine that a pickle is a program for: https://github.com/python/cpython, Lib/pickletools.py
// describes each of its instructions.
class PickleMachine {
 public:
  explicit PickleMachine(Pickle* out) : out_(*out), bytes_(out->bytes_) {
    out_.values_ = {{Pickle::Type::kNone, 0, 0}, {Pickle::Type::kBool, 0, 0}, {Pickle::Type::kBool, 0, 1}};
  }

  void run() {
    while (!stopped_ && failure_ == nullptr) step();
    if (failure_ != nullptr) {
      out_.incomplete_ = std::string(failure_) + " at byte " + std::to_string(begin_) + " of " +
                         std::to_string(bytes_.size());
      close_what_is_open();
    }
    if (!stack_.empty()) out_.root_ = stack_.back();
  }

 private:
  using Id = Pickle::Id;
  using Type = Pickle::Type;

  void fail(const char* why) {
    if (failure_ == nullptr) failure_ = why;
  }

  // The next `count` bytes; none, and a failure, where there are fewer.
  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) {
      fail("the file ends early");
      return {};
    }
    const std::string_view taken = std::string_view(bytes_).substr(at_, count);
    at_ += count;
    return taken;
  }

  // A little-endian number of `count` bytes, at most 8.
  uint64_t take_number(unsigned count) {
    uint64_t number = 0;
    const std::string_view taken = take(count);
    for (size_t i = 0; i < taken.size(); ++i) number |= uint64_t{static_cast<uint8_t>(taken[i])} << (8 * i);
    return number;
  }

  std::string_view take_line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string::npos) {
      fail("the file ends early");
      return {};
    }
    const std::string_view line = std::string_view(bytes_).substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  void account(uint64_t bytes) {
    used_ += bytes;
    if (used_ > kMostBytes) fail("what it holds would take more than 8 GiB of memory");
  }

  Id make(Pickle::Value value) {
    account(sizeof value);
    out_.values_.push_back(value);
    return static_cast<Id>(out_.values_.size() - 1);
  }
  // Nothing of an instruction that failed.
  void push(Id value) {
    account(sizeof value);
    if (failure_ == nullptr) stack_.push_back(value);
  }
  void push_integer(int64_t number) { push(make({Type::kInteger, 0, number})); }
  void push_small(uint8_t number) {
    if (small_[number] == 0) small_[number] = make({Type::kInteger, 0, number});
    push(small_[number]);
  }
  void push_text(std::string_view text) {
    if (failure_ != nullptr) return;
    if (text.size() > UINT32_MAX) return fail("a text of more than 4 GiB");
    push(make({Type::kText, static_cast<uint32_t>(text.size()), text.data() - bytes_.data()}));
  }
  void push_opaque() { push(make({Type::kOpaque, 0, 0})); }
  void push_container(Type type) {
    account(sizeof(std::vector<Id>));
    out_.containers_.emplace_back();
    push(make({type, 0, static_cast<int64_t>(out_.containers_.size() - 1)}));
  }

  // An integer of `taken.size()` bytes in two's complement; one that 64 bits do not hold is opaque.
  void push_long(std::string_view taken) {
    if (taken.empty()) return push_small(0);
    const bool negative = (static_cast<uint8_t>(taken.back()) & 0x80) != 0;
    uint64_t number = negative ? ~uint64_t{0} : 0;
    for (size_t i = 0; i < taken.size(); ++i) {
      const uint8_t byte = static_cast<uint8_t>(taken[i]);
      if (i >= 8 && byte != (negative ? 0xFF : 0)) return push_opaque();
      if (i >= 8) continue;
      number &= ~(uint64_t{0xFF} << (8 * i));
      number |= uint64_t{byte} << (8 * i);
    }
    push_integer(static_cast<int64_t>(number));
  }

  Id pop() {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) {
      fail("an instruction lacks its operand");
      return Pickle::kNone;
    }
    const Id top = stack_.back();
    stack_.pop_back();
    return top;
  }
  Id top() {
    if (stack_.empty()) {
      fail("an instruction lacks its operand");
      return Pickle::kNone;
    }
    return stack_.back();
  }

  // Everything above the last mark, which goes.
  std::vector<Id> pop_to_mark() {
    if (marks_.empty()) {
      fail("an instruction lacks its mark");
      return {};
    }
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Id> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }

  // Takes the items of what is extended from a list, a set, or the keys and values of a dictionary.
  void extend(Id container, const std::vector<Id>& items) {
    const Pickle::Value value = out_.values_[container];
    if (value.type != Type::kList && value.type != Type::kDictionary) return;  // an object's own items
    if (value.type == Type::kDictionary && items.size() % 2 != 0) return fail("a key has no value");
    account(items.size() * sizeof(Id));
    auto& kept = out_.containers_[static_cast<size_t>(value.bits)];
    kept.insert(kept.end(), items.begin(), items.end());
  }

  void push_tuple(const std::vector<Id>& items) {
    push_container(Type::kList);
    extend(top(), items);
  }
  void push_last(size_t count) {
    std::vector<Id> items(count);
    for (size_t i = count; i > 0; --i) items[i - 1] = pop();
    push_tuple(items);
  }

  // Python's own writer counts them up.
  void remember(uint64_t index) {
    if (index < memo_.size()) {
      memo_[index] = top();
    } else if (index == memo_.size()) {
      account(sizeof(Id));
      memo_.push_back(top());
    } else {
      account(8 * sizeof(uint64_t));
      far_memo_[index] = top();
    }
  }
  void recall(uint64_t index) {
    if (index < memo_.size()) return push(memo_[index]);
    const auto found = far_memo_.find(index);
    if (found == far_memo_.end()) return fail("a value is used before it was made");
    push(found->second);
  }

  // What a class makes of its arguments is not known, but for the lists and dictionaries of LibTorch, which
  // are marked with their type.
  void reduce() {
    const Id arguments = pop(), callable = pop();
    if (failure_ != nullptr) return;
    const auto& given = out_.items(arguments);
    if (out_.type(callable) == Type::kOpaque && callable == marks_type_ && !given.empty())
      return push(given.front());
    push_opaque();
  }
  void push_global(std::string_view module, std::string_view name) {
    push_opaque();
    if (module == "torch.jit._pickle" && name == "restore_type_tag") marks_type_ = top();
  }
  void push_global_of_stack() {
    const Id name = pop(), module = pop();
    if (failure_ == nullptr) push_global(out_.text(module).value_or(""), out_.text(name).value_or(""));
  }

  void push_real() {
    uint64_t bits = 0;
    for (const char byte : take(8)) bits = bits << 8 | static_cast<uint8_t>(byte);
    if (failure_ == nullptr) push(make({Type::kReal, 0, static_cast<int64_t>(bits)}));
  }

  void check_protocol() {
    if (take_number(1) > kNewestProtocol) fail("a protocol newer than 5");
  }

  void step() {
    begin_ = at_;
    const std::string_view code = take(1);
    if (code.empty()) return;
    const uint8_t opcode = static_cast<uint8_t>(code.front());
    if (!of_numbers(opcode) && !of_texts(opcode) && !of_containers(opcode) && !of_the_stack(opcode) &&
        !of_objects(opcode))
      fail("an unknown instruction");
  }

  bool of_numbers(uint8_t opcode) {
    switch (opcode) {
      case 'N':
        return push(Pickle::kNone), true;
      case 0x88:
        return push(Pickle::kTrue), true;
      case 0x89:
        return push(Pickle::kFalse), true;
      case 'J':
        return push_integer(static_cast<int32_t>(take_number(4))), true;
      case 'K':
        return push_small(static_cast<uint8_t>(take_number(1))), true;
      case 'M':
        return push_integer(static_cast<int64_t>(take_number(2))), true;
      case 0x8a:
        return push_long(take(take_number(1))), true;
      case 0x8b:
        return push_long(take(take_number(4))), true;
      case 'G':
        return push_real(), true;
      default:
        return false;
    }
  }

  bool of_texts(uint8_t opcode) {
    switch (opcode) {
      case 0x8c:  // text with its length in 1, 4 and 8 bytes; then bytes
      case 'U':
      case 'C':
        return push_text(take(take_number(1))), true;
      case 'X':
      case 'T':
      case 'B':
        return push_text(take(take_number(4))), true;
      case 0x8d:
      case 0x8e:
      case 0x96:
        return push_text(take(take_number(8))), true;
      default:
        return false;
    }
  }

  bool of_containers(uint8_t opcode) {
    switch (opcode) {
      case ']':
      case 0x8f:  // a set
        return push_container(Type::kList), true;
      case '}':
        return push_container(Type::kDictionary), true;
      case ')':
        return push_tuple({}), true;
      case 't':
      case 'l':
      case 0x91:  // a frozen set
        return push_tuple(pop_to_mark()), true;
      case 0x85:
      case 0x86:
      case 0x87:
        return push_last(opcode - 0x84u), true;
      case 'd': {
        const std::vector<Id> items = pop_to_mark();
        push_container(Type::kDictionary);
        return extend(top(), items), true;
      }
      case 'a': {
        const Id item = pop();
        return extend(top(), {item}), true;
      }
      case 's': {
        const Id value = pop(), key = pop();
        return extend(top(), {key, value}), true;
      }
      case 'e':
      case 'u':
      case 0x90: {
        const std::vector<Id> items = pop_to_mark();
        return extend(top(), items), true;
      }
      default:
        return false;
    }
  }

  bool of_the_stack(uint8_t opcode) {
    switch (opcode) {
      case kProtocol:
        return check_protocol(), true;
      case 0x95:  // a frame says how much to read ahead
        return take(8), true;
      case '.':
        return stopped_ = true;
      case '(':
        return marks_.push_back(stack_.size()), true;
      case '0':
        return pop(), true;
      case '1':
        return pop_to_mark(), true;
      case '2':
        return push(top()), true;
      case 'q':
        return remember(take_number(1)), true;
      case 'r':
        return remember(take_number(4)), true;
      case 0x94:
        return remember(memo_.size() + far_memo_.size()), true;
      case 'h':
        return recall(take_number(1)), true;
      case 'j':
        return recall(take_number(4)), true;
      default:
        return false;
    }
  }

  bool of_objects(uint8_t opcode) {
    switch (opcode) {
      case 'c': {
        const std::string_view module = take_line();
        return push_global(module, take_line()), true;
      }
      case 0x93:
        return push_global_of_stack(), true;
      case 'R':
        return reduce(), true;
      case 0x81:
        return pop(), pop(), push_opaque(), true;
      case 0x92:
        return pop(), pop(), pop(), push_opaque(), true;
      case 'Q':
        return pop(), push_opaque(), true;
      case 'b':  // an object's state
        return pop(), true;
      default:
        return false;
    }
  }

  // Of a file that ends early: what stands above a mark was to go into the container below it.
  void close_what_is_open() {
    while (!marks_.empty()) {
      const std::vector<Id> items = pop_to_mark();
      if (stack_.empty())
        stack_.assign(items.begin(), items.end());
      else if (out_.type(stack_.back()) == Type::kDictionary)
        extend(stack_.back(), pairs_of(items));
      else
        extend(stack_.back(), items);
    }
    if (stack_.size() > 1) stack_.resize(1);
  }

  // Keys and values. What stands where a key should is the only item of the list before it, to which the file
  // did not come to add it.
  std::vector<Id> pairs_of(const std::vector<Id>& items) {
    std::vector<Id> pairs;
    for (const Id item : items) {
      const bool is_key = pairs.size() % 2 == 0;
      if (is_key && !pairs.empty() && out_.type(item) != Type::kText &&
          out_.type(pairs.back()) == Type::kList)
        extend(pairs.back(), {item});
      else
        pairs.push_back(item);
    }
    if (pairs.size() % 2 != 0) pairs.pop_back();
    return pairs;
  }

  Pickle& out_;
  const std::string& bytes_;
  size_t at_ = 0, begin_ = 0;
  uint64_t used_ = 0;
  bool stopped_ = false;
  const char* failure_ = nullptr;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::vector<Id> memo_;
  std::unordered_map<uint64_t, Id> far_memo_;
  Id small_[256] = {};
  std::optional<Id> marks_type_;
};

Pickle Pickle::read(std::string bytes) {
  Pickle pickle;
  pickle.bytes_ = std::move(bytes);
  PickleMachine(&pickle).run();
  return pickle;
}

const std::vector<Pickle::Id>& Pickle::items(Id value) const {
  static const std::vector<Id> none;
  const Value& at = values_[value];
  return at.type == Type::kList || at.type == Type::kDictionary ? containers_[static_cast<size_t>(at.bits)]
                                                                : none;
}

std::optional<int64_t> Pickle::integer(Id value) const {
  const Value& at = values_[value];
  return at.type == Type::kInteger || at.type == Type::kBool ? std::optional(at.bits) : std::nullopt;
}

std::optional<double> Pickle::number(Id value) const {
  if (type(value) == Type::kReal) return std::bit_cast<double>(values_[value].bits);
  const auto whole = integer(value);
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<std::string_view> Pickle::text(Id value) const {
  const Value& at = values_[value];
  if (at.type != Type::kText) return std::nullopt;
  return std::string_view(bytes_).substr(static_cast<size_t>(at.bits), at.length);
}

std::optional<Pickle::Id> Pickle::find(Id dictionary, std::string_view key) const {
  if (type(dictionary) != Type::kDictionary) return std::nullopt;
  const auto& entries = items(dictionary);
  for (size_t i = entries.size(); i >= 2; i -= 2)
    if (text(entries[i - 2]) == key) return entries[i - 1];
  return std::nullopt;
}

bool begins_as_pickle(std::string_view bytes) {
  return bytes.size() >= 2 && static_cast<uint8_t>(bytes[0]) == kProtocol &&
         static_cast<uint8_t>(bytes[1]) >= 2 && static_cast<uint8_t>(bytes[1]) <= kNewestProtocol;
}

}  // namespace spillway::tools
