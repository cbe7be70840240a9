// Spillway's other libraries, which lie beside this one.
#pragma once

namespace spillway::interpose {

// Loads it for ever; null, and dlerror() says why not.
void* open_beside(const char* name);

}  // namespace spillway::interpose
