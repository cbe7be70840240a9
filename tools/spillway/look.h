// How every command draws memory as text: the same marks for the same things, one bar, one way to write a
// share. The page's colours follow the same four (page/web/style.css).
//
// Thread-safety: pure functions. Units: bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::tools {

enum class Mark : uint8_t {
  kInUse,    // █ by the program
  kCached,   // ░ held by an allocator, and not in use
  kOutside,  // ▒ contexts, libraries, other processes
  kFree      // · of the card
};
const char* mark_text(Mark mark);

struct BarPart {
  Mark mark = Mark::kInUse;
  const char* name = "";
  uint64_t bytes = 0;
};

// "█████░░▒·····  █ in use 5.00 GiB, ░ cached 2.00 GiB, ▒ outside 1.00 GiB, · free 5.00 GiB": one line
// without its end. A part that is not empty has a mark at least. "" where all are empty.
std::string memory_bar(const std::vector<BarPart>& parts);

// "31%", "<1%"; "" of nothing.
std::string share_text(uint64_t part, uint64_t whole);

}  // namespace spillway::tools
