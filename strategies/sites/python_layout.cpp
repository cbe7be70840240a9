#include "strategies/sites/python_layout.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace spillway {
namespace {

constexpr size_t kWord = sizeof(void*);
constexpr size_t kThreadWords = 96, kFrameWords = 12, kCodeWords = 48, kHeadWords = 8;
constexpr uint64_t kTagBits = 7;  // of a reference on Python's own stack (3.14)

uint64_t word_at(const void* object, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, static_cast<const char*>(object) + offset, sizeof word);
  return word;
}

uint64_t bits(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

const void* untagged(uint64_t word) {
  return reinterpret_cast<const void*>(word & ~kTagBits);
}

// Where `wanted` stands in the first words of `object`.
std::optional<size_t> find(const void* object, size_t words, uint64_t wanted, uint64_t mask = ~uint64_t{0}) {
  for (size_t i = 0; i < words; ++i)
    if ((word_at(object, i * kWord) & mask) == wanted) return i * kWord;
  return std::nullopt;
}

// The interpreter's own frame behind a frame object: one of its pointers, to what begins with the code.
const void* frame_behind(const ReportedFrame& reported) {
  for (size_t i = 2; i < kHeadWords; ++i) {
    const void* frame = untagged(word_at(reported.object, i * kWord));
    bool readable = frame != nullptr;
    for (size_t word = 0; readable && word < kFrameWords; ++word)
      readable = can_read(static_cast<const char*>(frame) + word * kWord);
    if (readable && find(frame, kHeadWords, bits(reported.code), ~kTagBits)) return frame;
  }
  return nullptr;
}

struct Instruction {
  size_t in_frame = 0, code_start = 0;
};

// The word that points `reported.instruction` bytes behind the code's first instruction, in both frames.
std::optional<Instruction> find_instruction(const void* frame, const ReportedFrame& reported,
                                            const void* other, const ReportedFrame& other_reported) {
  constexpr uint64_t kMostStart = 1024;
  for (size_t i = 0; i < kFrameWords; ++i) {
    const uint64_t start = word_at(frame, i * kWord) - reported.instruction - bits(reported.code);
    if (start == 0 || start > kMostStart) continue;
    if (word_at(other, i * kWord) - other_reported.instruction - bits(other_reported.code) == start)
      return Instruction{i * kWord, start};
  }
  return std::nullopt;
}

}  // namespace

// The kernel copies the signal set before it sees that the first argument is wrong.
bool can_read(const void* address) {
  if (address == nullptr || bits(address) % kWord != 0) return false;
  constexpr int kNoSuchWay = -1;
  const int kept = errno;
  const bool readable =
      ::syscall(SYS_rt_sigprocmask, kNoSuchWay, address, nullptr, kWord) == -1 && errno == EINVAL;
  errno = kept;
  return readable;
}

std::vector<PythonLayout::Way> PythonLayout::ways_to(const void* frame, const void* thread) {
  std::vector<Way> ways;
  for (size_t i = 0; i < kThreadWords; ++i) {
    if (!can_read(static_cast<const char*>(thread) + i * kWord)) break;
    const uint64_t word = word_at(thread, i * kWord);
    if (word == bits(frame)) ways.push_back({i * kWord, std::nullopt});
    for (const size_t behind : {size_t{0}, kWord}) {
      const auto* between = reinterpret_cast<const char*>(word);
      if (word < 4096 || word % kWord != 0 || !can_read(between + behind)) continue;
      if (word_at(between, behind) == bits(frame)) ways.push_back({i * kWord, behind});
    }
  }
  return ways;
}

bool PythonLayout::learn(const void* thread, const ReportedFrame& inner, const ReportedFrame& outer,
                         const void* code_type) {
  const void* frame = frame_behind(inner);
  const void* caller = frame_behind(outer);
  if (frame == nullptr || caller == nullptr) return false;
  const auto code = find(frame, kHeadWords, bits(inner.code), ~kTagBits);
  const auto previous = find(frame, kFrameWords, bits(caller));
  const auto instruction = find_instruction(frame, inner, caller, outer);
  const auto name = find(inner.code, kCodeWords, bits(inner.name));
  const auto file = find(inner.code, kCodeWords, bits(inner.file));
  const auto type = find(inner.code, kHeadWords, bits(code_type));
  const auto length = find(inner.name, kHeadWords, inner.name_length);
  if (!code || !previous || !instruction || !name || !file || !type || !length) return false;
  std::vector<Way> ways = ways_to(frame, thread);
  if (!ways_.empty())
    std::erase_if(ways,
                  [&](const Way& way) { return std::find(ways_.begin(), ways_.end(), way) == ways_.end(); });
  ways_ = std::move(ways);
  code_ = *code;
  previous_ = *previous;
  instruction_ = instruction->in_frame;
  code_start_ = instruction->code_start;
  name_ = *name;
  file_ = *file;
  type_ = *type;
  length_ = *length;
  text_ = bits(inner.name_text) - bits(inner.name);
  code_type_ = code_type;
  return !ways_.empty();
}

const void* PythonLayout::field(const void* object, size_t offset) {
  return reinterpret_cast<const void*>(word_at(object, offset));
}

// A str that is not ASCII has its characters elsewhere: the bytes here are no text then.
std::string_view PythonLayout::text(const void* string) const {
  constexpr uint64_t kMostText = 4096;
  if (string == nullptr) return "?";
  const uint64_t length = word_at(string, length_);
  if (length == 0 || length > kMostText) return "?";
  const std::string_view text(static_cast<const char*>(string) + text_, length);
  for (const char c : text)
    if (c < ' ' || c > '~') return "?";
  return text;
}

// Python's own frames between those of the program have no code, or one of no file: "<shim>" (3.12), or one
// that is named like it.
bool PythonLayout::is_program_code(const void* code) const {
  return code != nullptr && field(code, type_) == code_type_ && field(code, name_) != field(code, file_) &&
         file_of(code) != "<shim>";
}

uint64_t PythonLayout::signature_of(const void* code) const {
  uint64_t signature = 0;
  for (const size_t which : {name_, file_}) {
    const void* string = field(code, which);
    if (string == nullptr) continue;
    const uint64_t length = word_at(string, length_);
    uint64_t end = 0;  // the last characters tell most names apart
    const size_t bytes = std::min<size_t>(length, sizeof end);
    std::memcpy(&end, static_cast<const char*>(string) + text_ + (length - bytes), bytes);
    signature = (signature ^ bits(string) ^ end ^ length) * 0x9e3779b97f4a7c15u;
  }
  return signature;
}

const void* PythonLayout::innermost(const void* thread) const {
  const Way& way = ways_.front();
  const void* found = field(thread, way.in_thread);
  return !way.behind || found == nullptr ? found : field(found, *way.behind);
}

size_t PythonLayout::walk(const void* thread, std::span<PythonFrame> frames) const {
  size_t count = 0;
  for (const void* frame = innermost(thread); frame != nullptr && count < frames.size();
       frame = field(frame, previous_)) {
    const void* code = untagged(word_at(frame, code_));
    if (!is_program_code(code)) continue;
    frames[count++] = {code, word_at(frame, instruction_) - bits(code) - code_start_};
  }
  return count;
}

}  // namespace spillway
