#include "allocator/sharing/exports.h"

#include <fcntl.h>
#include <unistd.h>

namespace spillway {

std::vector<driver::Page> pages_of(const Arena& arena, const Block* block, uint64_t* offset) {
  if (!arena.has_pages()) {
    *offset = block->address - arena.segment_of(block->address)->given.begin;
    return {};
  }
  const uint64_t begin = arena.handle_at(block->address).begin;
  *offset = block->address - begin;
  return handles_in(arena, {begin, block->end()});
}

void Exports::add(Block* block, std::span<const driver::Page> pages, Map& made, SharedBlock* out) {
  const bool again = (block->shared & kOtherProcesses) != 0;
  block->shared |= kOtherProcesses;
  for (const driver::Page& page : pages) {
    if (auto fresh = made.extract(page.handle); !fresh.empty()) exports_.insert(std::move(fresh));
    Export& shared = exports_.at(page.handle);
    if (!again) ++shared.blocks;
    out->pages.push_back({page.bytes, shared.serial, shared.descriptor});
  }
}

std::vector<int> Exports::withdraw(const Tiling& tiling, const Block* block) {
  std::vector<int> descriptors;
  if ((block->shared & kOtherProcesses) == 0) return descriptors;
  uint64_t offset = 0;
  for (const driver::Page& page : pages_of(tiling.arena_of(block), block, &offset)) {
    const auto shared = exports_.find(page.handle);
    if (shared == exports_.end() || --shared->second.blocks != 0) continue;
    descriptors.push_back(shared->second.descriptor);
    exports_.erase(shared);
  }
  return descriptors;
}

int Exports::duplicate(uint64_t serial) const {
  for (const auto& [page, shared] : exports_)
    if (shared.serial == serial) return fcntl(shared.descriptor, F_DUPFD_CLOEXEC, 0);
  return -1;
}

void Exports::close_all() {
  for (const auto& [page, shared] : exports_) close(shared.descriptor);
}

std::string Exports::check(const Tiling& tiling) const {
  std::unordered_map<CUmemGenericAllocationHandle, unsigned> found;
  for (const Block* block : tiling.blocks()) {
    if (block->state != BlockState::kLive || (block->shared & kOtherProcesses) == 0) continue;
    uint64_t offset = 0;
    for (const driver::Page& page : pages_of(tiling.arena_of(block), block, &offset)) ++found[page.handle];
  }
  if (found.size() != exports_.size()) return "shared pages do not agree with the blocks on them";
  for (const auto& [page, shared] : exports_) {
    const auto blocks = found.find(page);
    if (blocks == found.end() || blocks->second != shared.blocks)
      return "a page is shared for another number of blocks than lie on it";
  }
  return "";
}

}  // namespace spillway
