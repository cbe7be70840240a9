// What a device has no room for, as a text: which device, how much is missing, and what to change.
#pragma once
#include <stdexcept>

namespace spillway::trainer::serve {

struct NoRoomError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace spillway::trainer::serve
