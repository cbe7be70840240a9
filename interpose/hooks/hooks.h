// The exported hooks, one for each function of the driver.
#pragma once
#include "interpose/hooks/functions.h"

namespace spillway::interpose {

// The address of the hook, as a program that links it sees it.
void* hook_of(Function function);

}  // namespace spillway::interpose
