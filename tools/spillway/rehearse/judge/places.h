// Memory by the place in the program's source that asked for it.
//
// Thread-safety: pure functions. Units: bytes.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/spillway/rehearse/judge/observation.h"

namespace spillway::tools {

struct PlaceShare {
  std::string where;   // "model.py:47 forward", or the label
  std::string caller;  // the user's own line that led there, "" if it is the same
  uint64_t bytes = 0, blocks = 0;
};

// "pytorch_utils.py:122 forward", with enough of its path to find it.
std::string frame_text(const Frame& frame);
// "pytorch_utils.py:122 forward": the innermost frame that is not PyTorch's own.
std::string where_of(const Place& place);
// The innermost line of the program itself, in no installed package, that is not `where_of`: of a library's
// line the program's that led there, of the program's own who called it; "" if there is none.
std::string caller_of(const Place& place);

// "model.py:47 forward  from train.py:9 main"
std::string place_text(const Place& place);

// Grouped by `where` and `caller`, largest first; what no place is known for is "small places".
std::vector<PlaceShare> share_by_place(const std::vector<Held>& held,
                                       const std::map<uint32_t, Place>& places);

}  // namespace spillway::tools
