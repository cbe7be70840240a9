// Waiting until nothing runs on any device that the allocator uses, and no longer than until a deadline: the
// work may be waiting for another process, or for a launch of this one.
//
// Thread-safety: any thread. One after the other. Ownership: the allocator outlives what was not waited for
// to the end; another wait is the way to know. Errors: false, also once the process exits, or when `stop`,
// asked every few milliseconds, says so.
#pragma once
#include <chrono>
#include <functional>

#include "allocator/allocator.h"

namespace spillway {

bool wait_until_idle(Allocator& allocator, std::chrono::steady_clock::time_point deadline,
                     const std::function<bool()>& stop = nullptr);

}  // namespace spillway
