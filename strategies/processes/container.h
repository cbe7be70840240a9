// Which container a process is in, as the kernel's files about it tell.
//
// Thread-safety: a pure function.
#pragma once
#include <string>
#include <string_view>

namespace spillway {

// The beginning of the container's id from the text of /proc/self/cgroup or /proc/self/mountinfo; "": none.
std::string container_in(std::string_view text);

}  // namespace spillway
