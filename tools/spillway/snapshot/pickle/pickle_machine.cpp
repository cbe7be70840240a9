#include "tools/spillway/snapshot/pickle/pickle_machine.h"

#include <algorithm>
#include <bit>

namespace spillway::tools {
namespace {

// An allocation history of ten million events takes less than a gigabyte.
constexpr uint64_t kMostMemory = uint64_t{8} << 30;

}  // namespace

PickleMachine::PickleMachine(ByteStream* bytes, const Pickle::TakeRecord& take_record, Pickle* out)
    : bytes_(*bytes), take_record_(take_record), out_(*out) {
  memo_.look_through(bytes);
  out_.dictionaries_ = memo_.dictionaries();
  bytes->restart();
  out_.values_ = {{Type::kNone, 0, 0}, {Type::kBool, 0, 0}, {Type::kBool, 0, 1}};
  for (int64_t small = 0; small < 256; ++small) out_.values_.push_back({Type::kInteger, 0, small});
}

void PickleMachine::run() {
  while (!stopped_ && failure_ == nullptr) step();
  if (failure_ != nullptr) {
    out_.incomplete_ =
        std::string(failure_) + " at byte " + std::to_string(begin_) + " of " + std::to_string(bytes_.size());
    close_what_is_open();
  }
  if (!stack_.empty()) out_.root_ = stack_.back();
}

// None, and a failure, where there are fewer.
std::string_view PickleMachine::take(uint64_t count) {
  const std::string_view taken = bytes_.take(count);
  if (taken.size() < count) fail("the file ends early");
  return taken;
}

std::string_view PickleMachine::take_line() {
  bool found = false;
  const std::string_view line = bytes_.take_line(kLongestName, &found);
  if (!found) fail("the file ends early, or a name does not end");
  return line;
}

void PickleMachine::account(uint64_t bytes) {
  used_ += bytes;
  if (used_ > kMostMemory) fail("what it holds would take more than 8 GiB of memory");
}

PickleMachine::Id PickleMachine::make(Pickle::Value value) {
  account(sizeof value);
  if (out_.values_.size() >= Pickle::kRecordBit) {
    fail("it holds more than two billion values");
    return Pickle::kNone;
  }
  out_.values_.push_back(value);
  return static_cast<Id>(out_.values_.size() - 1);
}

void PickleMachine::push(Id value) {
  if (stack_.size() == stack_.capacity()) account(stack_.size() * sizeof value);
  if (failure_ == nullptr) stack_.push_back(value);
}

void PickleMachine::push_text(std::string_view text) {
  if (failure_ != nullptr) return;
  if (text.size() > UINT32_MAX) return fail("a text of more than 4 GiB");
  account(text.size());
  const std::string_view kept = out_.texts_->keep(text);
  push(make({Type::kText, static_cast<uint32_t>(kept.size()), std::bit_cast<int64_t>(kept.data())}));
}

void PickleMachine::push_container(Type type) {
  account(sizeof(std::vector<Id>));
  out_.containers_.emplace_back();
  push(make({type, 0, static_cast<int64_t>(out_.containers_.size() - 1)}));
}

// An integer of `taken.size()` bytes in two's complement; one that 64 bits do not hold is opaque.
void PickleMachine::push_long(std::string_view taken) {
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

PickleMachine::Id PickleMachine::pop() {
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= floor) {
    fail("an instruction lacks its operand");
    return Pickle::kNone;
  }
  const Id top = stack_.back();
  stack_.pop_back();
  return top;
}

PickleMachine::Id PickleMachine::top() {
  if (stack_.empty()) {
    fail("an instruction lacks its operand");
    return Pickle::kNone;
  }
  return stack_.back();
}

std::span<const PickleMachine::Id> PickleMachine::marked() {
  if (marks_.empty()) {
    fail("an instruction lacks its mark");
    return {};
  }
  return std::span<const Id>(stack_).subspan(marks_.back());
}

void PickleMachine::drop_marked() {
  if (marks_.empty()) return;
  stack_.resize(marks_.back());
  marks_.pop_back();
}

// Takes the items of what is extended from a list, a set, or the keys and values of a dictionary.
void PickleMachine::extend(Id container, std::span<const Id> items) {
  const Pickle::Value value = out_.at(container);
  if (value.type != Type::kList && value.type != Type::kDictionary) return;  // an object's own items
  if (value.type == Type::kDictionary && items.size() % 2 != 0) return fail("a key has no value");
  account(items.size() * sizeof(Id));
  auto& kept = out_.containers_[static_cast<size_t>(value.bits)];
  kept.insert(kept.end(), items.begin(), items.end());
}

void PickleMachine::extend_with_marked() {
  const std::span<const Id> items = marked();
  const size_t floor = marks_.size() > 1 ? marks_[marks_.size() - 2] : 0;
  if (failure_ == nullptr && marks_.back() <= floor) fail("an instruction lacks its operand");
  if (failure_ != nullptr) return;
  const Id container = stack_[marks_.back() - 1];
  if (take_as_record(container, items)) return;
  extend(container, items);
  if (failure_ == nullptr) drop_marked();
}

bool PickleMachine::take_as_record(Id dictionary, std::span<const Id> items) {
  if (take_record_ == nullptr || out_.type(dictionary) != Type::kDictionary || items.size() % 2 != 0 ||
      !out_.items(dictionary).empty())
    return false;
  const std::optional<uint32_t> number = take_record_(out_, items, dictionary);
  if (!number) return false;
  drop_marked();
  stack_.back() = Pickle::kRecordBit | *number;
  forget_since(dictionary);
  return true;
}

// What was made for a record goes, but for what the file uses again.
void PickleMachine::forget_since(Id dictionary) {
  Pickle::Value& value = out_.values_[dictionary];
  const auto container = static_cast<size_t>(value.bits);
  out_.containers_[container] = {};
  value = {Type::kRecord, 0, stack_.back() & ~Pickle::kRecordBit};
  if (highest_kept_ >= dictionary) return;
  used_ -= std::min(used_, (out_.values_.size() - dictionary) * sizeof value +
                               (out_.containers_.size() - container) * sizeof(std::vector<Id>));
  out_.values_.resize(dictionary);
  out_.containers_.resize(container);
}

void PickleMachine::push_tuple(std::span<const Id> items) {
  push_container(Type::kList);
  extend(top(), items);
}

void PickleMachine::push_last(size_t count) {
  Id items[3] = {};
  for (size_t i = count; i > 0; --i) items[i - 1] = pop();
  push_tuple({items, count});
}

// Python's own writer counts them up.
void PickleMachine::remember(uint64_t index) {
  next_memo_ = std::max(next_memo_, index + 1);
  if (!memo_.is_used(index)) return;
  const Id value = top();
  account(sizeof value);
  if ((value & Pickle::kRecordBit) == 0) highest_kept_ = std::max(highest_kept_, value);
  memo_.keep(index, value);
}

void PickleMachine::recall(uint64_t index) {
  const std::optional<Id> found = memo_.find(index);
  if (!found) return fail("a value is used before it was made");
  push(*found);
}

// What a class makes of its arguments is not known, but for the lists and dictionaries of LibTorch, which
// are marked with their type.
void PickleMachine::reduce() {
  const Id arguments = pop(), callable = pop();
  if (failure_ != nullptr) return;
  const auto& given = out_.items(arguments);
  if (out_.type(callable) == Type::kOpaque && callable == marks_type_ && !given.empty())
    return push(given.front());
  push_opaque();
}

void PickleMachine::push_global(std::string_view module, std::string_view name) {
  push_opaque();
  if (module == "torch.jit._pickle" && name == "restore_type_tag") marks_type_ = top();
}

void PickleMachine::push_global_of_stack() {
  const Id name = pop(), module = pop();
  if (failure_ == nullptr) push_global(out_.text(module).value_or(""), out_.text(name).value_or(""));
}

void PickleMachine::push_real() {
  uint64_t bits = 0;
  for (const char byte : take(8)) bits = bits << 8 | static_cast<uint8_t>(byte);
  if (failure_ == nullptr) push(make({Type::kReal, 0, static_cast<int64_t>(bits)}));
}

void PickleMachine::check_protocol() {
  if (take_number(1) > kNewestPickleProtocol) fail("a protocol newer than 5");
}

void PickleMachine::step() {
  begin_ = bytes_.position();
  const std::string_view code = take(1);
  if (code.empty()) return;
  const uint8_t opcode = static_cast<uint8_t>(code.front());
  if (!of_numbers(opcode) && !of_texts(opcode) && !of_containers(opcode) && !of_the_stack(opcode) &&
      !of_objects(opcode))
    fail("an unknown instruction");
}

bool PickleMachine::of_numbers(uint8_t opcode) {
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

bool PickleMachine::of_texts(uint8_t opcode) {
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

bool PickleMachine::of_containers(uint8_t opcode) {
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
    case 'd': {
      const std::span<const Id> above = marked();
      const std::vector<Id> items(above.begin(), above.end());
      drop_marked();
      push_container(opcode == 'd' ? Type::kDictionary : Type::kList);
      return extend(top(), items), true;
    }
    case 0x85:
    case 0x86:
    case 0x87:
      return push_last(opcode - 0x84u), true;
    case 'a': {
      const Id item = pop();
      return extend(top(), {&item, 1}), true;
    }
    case 's': {
      const Id value = pop(), key = pop();
      const Id entry[] = {key, value};
      return extend(top(), entry), true;
    }
    case 'e':
    case 'u':
    case 0x90:
      return extend_with_marked(), true;
    default:
      return false;
  }
}

bool PickleMachine::of_the_stack(uint8_t opcode) {
  switch (opcode) {
    case kPickleProtocol:
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
      return marked(), drop_marked(), true;
    case '2':
      return push(top()), true;
    case 'q':
      return remember(take_number(1)), true;
    case 'r':
      return remember(take_number(4)), true;
    case 0x94:
      return remember(next_memo_), true;
    case 'h':
      return recall(take_number(1)), true;
    case 'j':
      return recall(take_number(4)), true;
    default:
      return false;
  }
}

bool PickleMachine::of_objects(uint8_t opcode) {
  switch (opcode) {
    case 'c': {
      const std::string module(take_line());
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
void PickleMachine::close_what_is_open() {
  while (!marks_.empty()) {
    const std::span<const Id> above = marked();
    const std::vector<Id> items(above.begin(), above.end());
    drop_marked();
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
std::vector<PickleMachine::Id> PickleMachine::pairs_of(std::span<const Id> items) {
  std::vector<Id> pairs;
  for (const Id item : items) {
    const bool is_key = pairs.size() % 2 == 0;
    if (is_key && !pairs.empty() && out_.type(item) != Type::kText && out_.type(pairs.back()) == Type::kList)
      extend(pairs.back(), {&item, 1});
    else
      pairs.push_back(item);
  }
  if (pairs.size() % 2 != 0) pairs.pop_back();
  return pairs;
}

}  // namespace spillway::tools
