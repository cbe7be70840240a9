#include "interpose/own_libraries.h"

#include "base/this_library.h"

namespace spillway::interpose {

void* open_beside(const char* name) {
  return open_library(path_beside(&open_beside, name));
}

}  // namespace spillway::interpose
