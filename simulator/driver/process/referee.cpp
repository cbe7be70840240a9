#include "simulator/driver/process/referee.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace spillway::simulator {
namespace {

constexpr size_t kRemembered = 4096;
constexpr size_t kTextLimit = size_t{1} << 20;

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text ? text.get() : name;
}

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

const char* word(Referee::Went how) {
  switch (how) {
    case Referee::Went::kReleased:
      return "released";
    case Referee::Went::kUnmapped:
      return "unmapped";
    case Referee::Went::kFreed:
      return "freed";
  }
  return "taken";
}

}  // namespace

std::string describe_site(Site site) {
  Dl_info info;
  if (!site || !dladdr(site, &info)) return hex(reinterpret_cast<uintptr_t>(site));
  const auto address = reinterpret_cast<uintptr_t>(site);
  const char* slash = info.dli_fname ? std::strrchr(info.dli_fname, '/') : nullptr;
  const std::string file = slash ? slash + 1 : "?";
  std::string place = file + "+" + hex(address - reinterpret_cast<uintptr_t>(info.dli_fbase));
  if (!info.dli_sname) return place;
  return demangled(info.dli_sname) + "+" + hex(address - reinterpret_cast<uintptr_t>(info.dli_saddr)) + " (" +
         place + ")";
}

std::string describe_range(uint64_t address, uint64_t bytes) {
  return "[" + hex(address) + ", +" + std::to_string(bytes) + ")";
}

void Referee::violation(const std::string& text) {
  ++count_;
  if (text_.size() >= kTextLimit) return;
  text_ += text;
  if (captured_at_) text_ += "; in a graph, captured at " + describe_site(captured_at_);
  text_ += "\n";
}

void Referee::in_flight(const std::string& what, Site site, const Use& use, uint64_t now) {
  violation(what + " at " + describe_site(site) + " while '" + (use.name ? use.name : "work") +
            "' on stream " + std::to_string(use.stream) + ", submitted at " + describe_site(use.site) +
            ", touches it for " + std::to_string(use.end - now) + " ns more");
}

void Referee::went(Went how, uint64_t address, uint64_t bytes, Site site) {
  const Gone gone{how, address, bytes, site};
  if (gone_.size() < kRemembered)
    gone_.push_back(gone);
  else
    gone_[next_gone_ % kRemembered] = gone;
  ++next_gone_;
}

std::string Referee::who_took(uint64_t address, uint64_t bytes) const {
  for (size_t back = 1; back <= gone_.size(); ++back) {
    const Gone& gone = gone_[(next_gone_ - back) % kRemembered];
    if (gone.how != Went::kReleased && gone.address < address + bytes && address < gone.address + gone.bytes)
      return std::string("; ") + word(gone.how) + " at " + describe_site(gone.site);
  }
  return "";
}

std::string Referee::who_released(uint64_t handle) const {
  for (size_t back = 1; back <= gone_.size(); ++back) {
    const Gone& gone = gone_[(next_gone_ - back) % kRemembered];
    if (gone.how == Went::kReleased && gone.address == handle)
      return "; released at " + describe_site(gone.site);
  }
  return "";
}

const char* Referee::intern(const char* name) {
  return names_.emplace(name ? name : "kernel").first->c_str();
}

void Referee::reset() {
  text_.clear();
  count_ = 0;
}

}  // namespace spillway::simulator
