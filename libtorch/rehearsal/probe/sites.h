// Allocation sites: a Python stack, or the autograd node that ran without one.
//
// Thread-safety: Sites is used under the probe's lock; `frames_of` needs Python's interpreter lock (GIL),
// which is not waited for with the probe's held. Ownership: a site keeps the code objects of its stack alive,
// so that an address never comes to mean other code. Errors: a stack that cannot be named says so in its
// label.
#pragma once
#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libtorch/rehearsal/site_table.h"

namespace spillway::rehearsal {

struct Frame {
  std::string function, file;
  uint64_t line = 0;
};

struct SiteText {
  std::string label;          // where there is no Python stack
  std::vector<Frame> frames;  // innermost first
};

class Sites {
 public:
  // `context` is what a recorder gathered for the allocation: ours or the program's own, both are
  // torch::CapturedTraceback. It may be null. Takes no lock and calls no Python: it runs under the
  // allocator's lock, whose holder may not wait for the GIL.
  Site of(const std::shared_ptr<c10::GatheredContext>& context);
  Site of_label(std::string_view label);

  // Sites whose frames are still addresses.
  bool all_symbolized() const { return symbolized_ == entries_.size(); }
  size_t symbolized() const { return symbolized_; }  // the first so many have names
  // The stacks of the others, up to the site `end`.
  struct Unnamed {
    std::vector<Site> sites;
    std::vector<std::shared_ptr<c10::GatheredContext>> stacks;
    size_t end = 0;
  };
  Unnamed unnamed() const;
  void name(const Unnamed& those, std::vector<std::vector<Frame>> frames);

  size_t size() const { return entries_.size(); }
  const SiteText& text(Site site) const { return entries_[site].text; }

 private:
  struct Entry {
    uint64_t hash = 0;
    std::shared_ptr<c10::GatheredContext> context;
    SiteText text;
  };
  Site add(uint64_t hash, std::shared_ptr<c10::GatheredContext> context, std::string label);

  std::vector<Entry> entries_;
  std::unordered_map<uint64_t, std::vector<Site>> by_hash_;
  size_t symbolized_ = 0;
};

// The frames of each. Throws what PyTorch throws.
std::vector<std::vector<Frame>> frames_of(const Sites::Unnamed& those);

// Gathers the Python stack of this thread, as PyTorch's own recorder does. For recordHistory: it runs before
// the allocator takes its lock.
std::shared_ptr<c10::GatheredContext> gather_stack();

}  // namespace spillway::rehearsal
