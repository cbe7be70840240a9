// The closing equation of a request that is none of Spillway's allocator: a call of the driver that failed,
// or a request that LibTorch's own allocator refused for a limit of its own. Told by the driver, and by
// LibTorch's allocator as far as it tells what it holds.
//
// Thread-safety: any thread; of a request inside LibTorch's allocator, its own. Errors: terms that nobody
// tells are left out.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "allocator/allocator.h"
#include "trace/record.h"

namespace spillway {

using Terms = std::vector<std::pair<trace::Term, uint64_t>>;  // bytes; the card before what is in use

Terms driver_equation(const Allocator& allocator, const OomEvent& event);

}  // namespace spillway
