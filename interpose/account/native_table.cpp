// Open addressing with linear probing; a removal moves entries back, so that nothing marks the removed.
#include "interpose/account/native_table.h"

#include <cstdlib>

namespace spillway::interpose {
namespace {
constexpr size_t kFirstSlots = 1024;
}

size_t NativeTable::home_of(Native kind, uint64_t key) const {
  uint64_t mixed = (key ^ static_cast<uint64_t>(kind) << 60) * 0x9E3779B97F4A7C15;
  mixed ^= mixed >> 32;
  return mixed & (size_ - 1);
}

NativeEntry* NativeTable::find(Native kind, uint64_t key) {
  if (size_ == 0) return nullptr;
  for (size_t at = home_of(kind, key); slots_[at].kind != Native::kNone; at = (at + 1) & (size_ - 1))
    if (slots_[at].kind == kind && slots_[at].key == key) return &slots_[at];
  return nullptr;
}

bool NativeTable::grow() {
  NativeTable larger;
  larger.size_ = size_ == 0 ? kFirstSlots : 2 * size_;
  larger.slots_ = static_cast<NativeEntry*>(std::calloc(larger.size_, sizeof(NativeEntry)));
  if (larger.slots_ == nullptr) return false;
  each([&](const NativeEntry& entry) { larger.add(entry); });
  std::free(slots_);
  *this = larger;
  return true;
}

bool NativeTable::add(const NativeEntry& entry) {
  if (2 * (count_ + 1) > size_ && !grow()) return false;
  size_t at = home_of(entry.kind, entry.key);
  while (slots_[at].kind != Native::kNone) at = (at + 1) & (size_ - 1);
  slots_[at] = entry;
  ++count_;
  ++counts_[static_cast<size_t>(entry.kind)];
  return true;
}

void NativeTable::remove(NativeEntry* entry) {
  --count_;
  --counts_[static_cast<size_t>(entry->kind)];
  size_t hole = static_cast<size_t>(entry - slots_);
  for (size_t at = (hole + 1) & (size_ - 1); slots_[at].kind != Native::kNone; at = (at + 1) & (size_ - 1)) {
    const size_t home = home_of(slots_[at].kind, slots_[at].key);
    // It may go where the hole is if that is not before its home, counted around the table.
    if (((at - home) & (size_ - 1)) < ((at - hole) & (size_ - 1))) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
}

// The slots stay where they are: another thread of the parent's may have been in the middle of growing them.
void NativeTable::forget_all() {
  *this = {};
}

}  // namespace spillway::interpose
