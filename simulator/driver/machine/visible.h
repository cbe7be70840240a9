// Which cards of the machine a program sees: CUDA_VISIBLE_DEVICES.
//
// Thread-safety: pure. Ownership: values. Errors: none; what is wrong hides the rest, as in the real driver.
#pragma once
#include <vector>

namespace spillway::simulator {

// The visible cards of a machine with `count`, by their place in it and in the program's order. `setting` is
// the variable's text, null when it is not set: then all. It lists places and beginnings of UUIDs
// ("GPU-53..."); the first entry that is neither, or that names no or several cards, hides itself and the
// rest; a card named twice hides all.
std::vector<int> visible_devices(const char* setting, int count);

}  // namespace spillway::simulator
