// The memory of a pool from a library that throws when it is told to: cudaMalloc otherwise.
#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>

namespace {

bool throws_now = false;

template <typename Function>
Function runtime(const char* name) {
  void* library = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
  return reinterpret_cast<Function>(library == nullptr ? nullptr : dlsym(library, name));
}

}  // namespace

extern "C" void source_throws(int now) {
  throws_now = now != 0;
}

extern "C" void* source_malloc(size_t bytes, int, void*) {
  if (throws_now) throw std::runtime_error("the library has lost its way");
  void* address = nullptr;
  const auto allocate = runtime<int (*)(void**, size_t)>("cudaMalloc");
  return allocate != nullptr && allocate(&address, bytes) == 0 ? address : nullptr;
}

extern "C" void source_free(void* address, size_t, int, void*) {
  const auto release = runtime<int (*)(void*)>("cudaFree");
  if (release != nullptr) release(address);
  if (throws_now) throw std::runtime_error("the library does not want it back");
}
