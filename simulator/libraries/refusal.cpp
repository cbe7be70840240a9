#include "simulator/libraries/refusal.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <string>

#include "base/mutex.h"

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
  static Mutex<LockOrder::kLeaf> mutex;
  static auto* const said SPILLWAY_PT_GUARDED_BY(mutex) = new std::set<std::string>;
  const Locked lock(mutex);
  if (!said->insert(function).second) return;
  std::fprintf(stderr, "spillway simulator: %s, called from %s, is not simulated: returning %s\n", function,
               described(caller).c_str(), answer);
}

}  // namespace spillway::stand_in
