#include "interpose/libraries.h"

#include <dlfcn.h>

#include <cstdio>

#include "interpose/process.h"

namespace spillway::interpose {

void* open_beside(const char* name) {
  char path[1280];
  std::snprintf(path, sizeof path, "%s%s", library_folder(), name);
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

}  // namespace spillway::interpose
