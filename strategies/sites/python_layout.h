// Where CPython keeps a thread's frames, found at run time by `find_python_layout`.
//
// Thread-safety: reading is const. `learn` is called by the probe alone, with the GIL. Errors: a field that
// is not found makes the layout incomplete; nothing is guessed. Units: bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "strategies/sites/python_stack.h"

namespace spillway {

// What the probe may ask of Python about one of its own frames.
struct ReportedFrame {
  const void* object = nullptr;     // the PyFrameObject
  const void* code = nullptr;       // the PyCodeObject
  const void* name = nullptr;       // of the code, a str
  const void* file = nullptr;       // likewise
  const char* name_text = nullptr;  // the characters of `name`
  uint64_t name_length = 0;
  uint64_t instruction = 0;
};

class PythonLayout {
 public:
  // From a thread's state and the two innermost of its frames, a caller and its callee, both plain functions.
  // Called for stacks of different depths, until `complete`: what was ambiguous is settled.
  bool learn(const void* thread, const ReportedFrame& inner, const ReportedFrame& outer,
             const void* code_type);

  // The innermost frames of the thread whose state is `thread`.
  size_t walk(const void* thread, std::span<PythonFrame> frames) const;
  std::string_view name_of(const void* code) const { return text(field(code, name_)); }
  std::string_view file_of(const void* code) const { return text(field(code, file_)); }
  uint64_t signature_of(const void* code) const;

 private:
  static const void* field(const void* object, size_t offset);
  std::string_view text(const void* string) const;
  bool is_program_code(const void* code) const;
  const void* innermost(const void* thread) const;

  // In the thread's state: the innermost frame, or what points to it.
  struct Way {
    size_t in_thread = 0;
    std::optional<size_t> behind;  // a pointer to the frame's own pointer lies between, this far before it
    bool operator==(const Way&) const = default;
  };
  static std::vector<Way> ways_to(const void* frame, const void* thread);

  std::vector<Way> ways_;
  size_t code_ = 0, previous_ = 0, instruction_ = 0;  // in a frame
  size_t code_start_ = 0;                             // in a code object: its first instruction
  size_t name_ = 0, file_ = 0, type_ = 0;             // in a code object
  size_t text_ = 0, length_ = 0;                      // in a str of ASCII
  const void* code_type_ = nullptr;
};

// Whether the 8 bytes at `address` can be read: no signal comes of it where they cannot.
bool can_read(const void* address);

}  // namespace spillway
