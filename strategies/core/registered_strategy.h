// A strategy of the program's own, behind the C interface.
#pragma once
#include <memory>
#include <string>

#include "allocator/request/strategy.h"
#include "spillway/spillway.h"

namespace spillway {

// Null and what is wrong with `strategy`, which is copied.
std::unique_ptr<Strategy> make_registered(const spillway_strategy* strategy, std::string* wrong);

}  // namespace spillway
