#include "libtorch/rehearsal/site_table.h"

#include <algorithm>

namespace spillway::rehearsal {
namespace {

constexpr size_t kMostSteps = 1024;  // of which the peaks are kept

// FNV-1a over the bytes of `value`.
uint64_t mixed(uint64_t hash, uint64_t value) {
  for (int i = 0; i < 8; ++i, value >>= 8) hash = (hash ^ (value & 0xff)) * 1099511628211u;
  return hash;
}

std::vector<Holding> largest_first(std::vector<Holding> held) {
  std::sort(held.begin(), held.end(), [](const Holding& a, const Holding& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.site < b.site;
  });
  return held;
}

}  // namespace

// What the events say, without address and clock, so that equal runs hash alike. Frees with nothing between
// them count in any order, because PyTorch makes some in the order of host addresses.
void Ledger::mix(Word word) {
  hash_ = mixed(stream_hash(), word);
  frees_ = 0;
}

void Ledger::mix(uint64_t value) {
  hash_ = mixed(hash_, value);
}

uint64_t Ledger::stream_hash() const {
  return frees_ == 0 ? hash_ : mixed(mixed(hash_, kFreed), frees_);
}

void Ledger::observe(Levels levels) {
  retries_ += levels.retries - (levels.retries < levels_.retries ? 0 : levels_.retries);
  levels_ = levels;
  peak_reserved_ = std::max({peak_reserved_, levels.reserved, levels.peak_reserved});
  step_.allocated = std::max(step_.allocated, levels.allocated);
  step_.reserved = std::max(step_.reserved, levels.reserved);
  if (const uint64_t peak = std::max(levels.allocated, levels.peak_allocated); peak > peak_allocated_) {
    peak_allocated_ = peak;
    peak_event_ = events_;
    peak_step_ = steps_.size() + 1;
    peak_allocations_ = allocations_;
    ++epoch_;
  }
}

void Ledger::begin_event(Levels levels) {
  observe(levels);
  if (events_ > 0) timeline_.add(events_, levels.allocated, levels.reserved);
  ++events_;
}

Ledger::Entry& Ledger::change(Site site) {
  if (site >= sites_.size()) sites_.resize(std::max<size_t>(site + 1, 2 * sites_.size()));
  return change(sites_[site]);
}

Ledger::Entry& Ledger::change(Kind kind) {
  return change(kinds_[static_cast<size_t>(kind)]);
}

Ledger::Entry& Ledger::change(Entry& entry) const {
  if (entry.epoch != epoch_) {
    entry.peak_bytes = entry.bytes;
    entry.peak_blocks = entry.blocks;
    entry.epoch = epoch_;
  }
  return entry;
}

void Ledger::forget(const Block& block) {
  Entry& entry = change(block.site);
  entry.bytes -= block.bytes;
  --entry.blocks;
  change(block.kind).bytes -= block.bytes;
  live_bytes_ -= block.bytes;
}

void Ledger::allocated(uint64_t address, uint64_t bytes, uint64_t stream, Site site, Levels levels) {
  begin_event(levels);
  mix(kAllocated);
  mix(bytes);
  last_stream_ = streams_.try_emplace(stream, streams_.size()).first->second;
  mix(last_stream_);
  Block& block = blocks_[address];
  if (block.ordinal != 0) forget(block);  // given back on a way that tells no event
  block = {bytes, ++allocations_, site};
  Entry& entry = change(site);
  entry.bytes += bytes;
  ++entry.blocks;
  change(Kind::kOther).bytes += bytes;
  live_bytes_ += bytes;
}

void Ledger::classify(uint64_t address, Kind kind) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.kind == kind) return;
  Block& block = found->second;
  Entry &from = change(block.kind), &to = change(kind);
  from.bytes -= block.bytes;
  to.bytes += block.bytes;
  if (block.ordinal <= peak_allocations_) {  // still there, so it was there then
    from.peak_bytes -= block.bytes;
    to.peak_bytes += block.bytes;
  }
  block.kind = kind;
}

std::array<uint64_t, kKinds> Ledger::bytes_by_kind_at_peak() const {
  std::array<uint64_t, kKinds> bytes{};
  for (size_t i = 0; i < kKinds; ++i)
    bytes[i] = kinds_[i].epoch == epoch_ ? kinds_[i].peak_bytes : kinds_[i].bytes;
  return bytes;
}

uint64_t Ledger::freed(uint64_t address, Levels levels) {
  const auto block = blocks_.find(address);
  if (block == blocks_.end()) return 0;  // from before the probe
  const uint64_t ordinal = block->second.ordinal;
  levels.allocated += block->second.bytes;
  begin_event(levels);
  frees_ += mixed(0, ordinal);
  forget(block->second);
  blocks_.erase(block);
  return ordinal;
}

void Ledger::segment(bool grows, uint64_t bytes, Levels levels) {
  begin_event(levels);
  mix(grows ? kGrew : kShrank);
  mix(bytes);
  if (!grows) ++segments_freed_;
}

void Ledger::failed(uint64_t bytes, Levels levels) {
  begin_event(levels);
  ++failures_;
  mix(kFailed);
  mix(bytes);
}

void Ledger::step_ended(Levels levels) {
  observe(levels);
  step_.last_event = events_;
  if (steps_.size() < kMostSteps) steps_.push_back(step_);
  step_ = {0, levels.allocated, levels.reserved};
}

std::vector<Holding> Ledger::held_at_peak() const {
  std::vector<Holding> held;
  for (size_t i = 0; i < sites_.size(); ++i) {
    const Entry& entry = sites_[i];
    const bool kept = entry.epoch == epoch_;
    const uint64_t bytes = kept ? entry.peak_bytes : entry.bytes;
    if (bytes > 0) held.push_back({static_cast<Site>(i), bytes, kept ? entry.peak_blocks : entry.blocks});
  }
  return largest_first(std::move(held));
}

std::vector<Holding> Ledger::held_now() const {
  std::vector<Holding> held;
  for (size_t i = 0; i < sites_.size(); ++i) {
    if (sites_[i].bytes > 0) held.push_back({static_cast<Site>(i), sites_[i].bytes, sites_[i].blocks});
  }
  return largest_first(std::move(held));
}

}  // namespace spillway::rehearsal
