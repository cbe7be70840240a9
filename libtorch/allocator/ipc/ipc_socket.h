// The way around a system that forbids pidfd_getfd: a process gives descriptors of its shared pages away at a
// Unix socket in the abstract namespace.
//
// A request is the serials of pages; the answer comes in batches: how many descriptors are in this one, with
// the descriptors themselves, or -1: a page is not shared any more. Only processes of the same user, or root,
// are answered. Thread-safety: every function may be called from any thread. Errors: texts; every wait is
// bounded.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::libtorch {

using SocketName = std::array<uint64_t, 2>;

// Starts the thread that answers for this process, once; all zeros where there can be none.
SocketName start_descriptor_server();

// Appends the descriptors of `process`'s pages. "" or why not.
std::string ask_descriptor_server(const SocketName& name, int process, const std::vector<uint64_t>& serials,
                                  std::vector<int>* descriptors);

}  // namespace spillway::libtorch
