#include "simulator/driver/process/destroyed.h"

#include <csignal>
#include <cstdio>
#include <utility>

namespace spillway::simulator {

void DestroyedHandles::note(const void* handle, const char* kind, Site site, std::shared_ptr<void> object) {
  handles_[handle] = {kind, site, std::move(object)};
}

void DestroyedHandles::check(const void* handle, const char* call, Site site) const {
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return;
  std::fprintf(stderr,
               "spillway simulator: %s, called at %s, was given the %s %p, which was destroyed at %s: a real "
               "driver crashes here\n",
               call, describe_site(site).c_str(), found->second.kind, handle,
               describe_site(found->second.site).c_str());
  std::signal(SIGSEGV, SIG_DFL);
  std::raise(SIGSEGV);
}

}  // namespace spillway::simulator
