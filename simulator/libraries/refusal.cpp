#include "simulator/libraries/refusal.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace spillway::stand_in {
namespace {

std::string described(const void* address) {
  Dl_info where{};
  if (dladdr(address, &where) == 0 || where.dli_fname == nullptr) return "an unknown place";
  const char* slash = std::strrchr(where.dli_fname, '/');
  const std::string library = slash == nullptr ? where.dli_fname : slash + 1;
  return where.dli_sname == nullptr ? library : library + " (" + where.dli_sname + ")";
}

}  // namespace

void say_refused(const char* function, const char* answer, const void* caller) {
  static std::mutex mutex;
  static auto* const said = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (!said->insert(function).second) return;
  std::fprintf(stderr, "spillway simulator: %s, called from %s, is not simulated: returning %s\n", function,
               described(caller).c_str(), answer);
}

}  // namespace spillway::stand_in
