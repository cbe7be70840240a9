// Files of loaded libraries, and what lies beside them: Spillway's libraries find each other that way.
//
// Thread-safety: any thread. Ownership: a view is the loader's, as long as the library is loaded. Errors: ""
// where nothing is loaded at an address. Needs no C++ runtime.
#pragma once
#include <dlfcn.h>
#include <limits.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace spillway {

// The path of the library, or of the program, that `inside` lies in.
inline const char* library_path(const void* inside) {
  Dl_info info{};
  return dladdr(inside, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// The same without its folder.
inline std::string_view library_name(const void* inside) {
  const char* path = library_path(inside);
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

struct PathText {
  char text[PATH_MAX] = "";
};

// The file `name` beside that library, or `name` alone where its place is not known. An installation has a
// link to the core where linkers look, and the other libraries beside the file itself.
inline PathText path_beside(const void* inside, const char* name) {
  PathText file, out;
  const char* path = library_path(inside);
  const bool resolved = ::realpath(path, file.text) != nullptr;
  const char* whole = resolved ? file.text : path;
  const char* slash = std::strrchr(whole, '/');
  const int folder = slash == nullptr ? 0 : static_cast<int>(slash + 1 - whole);
  std::snprintf(out.text, sizeof out.text, "%.*s%s", folder, folder == 0 ? "" : whole, name);
  return out;
}

template <class Result, class... Arguments>
PathText path_beside(Result (*inside)(Arguments...), const char* name) {
  return path_beside(reinterpret_cast<const void*>(inside), name);
}

// A symbol of the library of that name, if the process has loaded it, or of any global one.
inline void* loaded_symbol(const char* library, const char* name) {
  if (void* symbol = dlsym(RTLD_DEFAULT, name)) return symbol;
  // Python loads its extensions, and what they need, outside the global scope.
  void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* symbol = dlsym(handle, name);
  dlclose(handle);
  return symbol;
}

// Loads it for ever; null, and dlerror() says why not.
inline void* open_library(const PathText& path) {
  return dlopen(path.text, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

}  // namespace spillway
