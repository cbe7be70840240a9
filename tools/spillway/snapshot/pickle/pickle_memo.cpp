#include "tools/spillway/snapshot/pickle/pickle_memo.h"

#include "tools/spillway/snapshot/pickle/pickle.h"

namespace spillway::tools {
namespace {

enum class Operand : uint8_t { kNone, kFixed, kCounted, kLines, kStop, kUnknown };

// What follows an instruction: so many bytes, or a count of so many bytes and what it counts, or lines.
struct Form {
  Operand operand = Operand::kUnknown;
  uint8_t number = 0;
};

constexpr std::array<Form, 256> make_forms() {
  std::array<Form, 256> forms{};
  const auto set = [&forms](const char* codes, Operand operand, uint8_t number) {
    for (; *codes != 0; ++codes) forms[static_cast<uint8_t>(*codes)] = {operand, number};
  };
  set("N\x88\x89]\x8f})tl\x91\x85\x86\x87"
      "daseu\x90(012\x94\x93R\x81\x92Qb",
      Operand::kNone, 0);
  set("Kqh\x80", Operand::kFixed, 1);
  set("M", Operand::kFixed, 2);
  set("Jrj", Operand::kFixed, 4);
  set("G\x95", Operand::kFixed, 8);
  set("\x8a\x8cUC", Operand::kCounted, 1);
  set("\x8bXTB", Operand::kCounted, 4);
  set("\x8d\x8e\x96", Operand::kCounted, 8);
  set("c", Operand::kLines, 2);
  set(".", Operand::kStop, 0);
  return forms;
}

constexpr std::array<Form, 256> kForms = make_forms();

bool pass(ByteStream* bytes, const Form& form) {
  switch (form.operand) {
    case Operand::kNone:
      return true;
    case Operand::kFixed:
      return bytes->skip(form.number);
    case Operand::kCounted: {
      const std::string_view count = bytes->take(form.number);
      return !count.empty() && bytes->skip(little_endian(count));
    }
    case Operand::kLines: {
      bool found = true;
      for (unsigned i = 0; i < form.number && found; ++i) bytes->take_line(kLongestName, &found);
      return found;
    }
    case Operand::kStop:
    case Operand::kUnknown:
      return false;
  }
  return false;
}

}  // namespace

void PickleMemo::use(uint64_t index, uint64_t most) {
  if (index >= most) return;  // more values than the file has bytes
  if (index >= used_.size()) used_.resize(std::max<size_t>(index + 1, used_.size() + used_.size() / 2));
  used_[index] = true;
}

void PickleMemo::look_through(ByteStream* bytes) {
  for (;;) {
    const std::string_view code = bytes->take(1);
    if (code.empty()) return;
    const auto opcode = static_cast<uint8_t>(code.front());
    if (opcode == '}') ++dictionaries_;
    if (opcode == 'h' || opcode == 'j') {
      const std::string_view index = bytes->take(kForms[opcode].number);
      if (index.empty()) return;
      use(little_endian(index), bytes->size());
    } else if (!pass(bytes, kForms[opcode])) {
      return;
    }
  }
}

void PickleMemo::keep(uint64_t index, uint32_t value) {
  const size_t page = index / kPage;
  if (page >= pages_.size()) pages_.resize(page + 1);
  if (pages_[page] == nullptr) {
    pages_[page] = std::make_unique<Page>();
    pages_[page]->fill(kUnset);
  }
  (*pages_[page])[index % kPage] = value;
}

std::optional<uint32_t> PickleMemo::find(uint64_t index) const {
  const size_t page = index / kPage;
  if (page >= pages_.size() || pages_[page] == nullptr) return std::nullopt;
  const uint32_t value = (*pages_[page])[index % kPage];
  return value == kUnset ? std::nullopt : std::optional(value);
}

}  // namespace spillway::tools
