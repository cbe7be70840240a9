// Copies the segment by `pread`: what is cut short meanwhile is an error then, and not a fault of the reader.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "processes/ledger_shown.h"

namespace spillway {
namespace {

using ledger::kSlots;
using ledger::offset_of;
using ledger::Segment;
using ledger::Slot;

class File {
 public:
  explicit File(const std::string& name)
      : descriptor_(ledger::is_path(name) ? ::open(name.c_str(), O_RDONLY | O_CLOEXEC)
                                          : ::shm_open(("/" + name).c_str(), O_RDONLY, 0)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }

  bool read(size_t offset, void* to, size_t bytes) const {
    return ::pread(descriptor_, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
  }
  template <typename Value>
  Value value(size_t offset) const {
    Value value{};
    return read(offset, &value, sizeof value) ? value : Value{};
  }
  uint64_t word_at(size_t offset) const { return value<uint64_t>(offset); }

 private:
  const int descriptor_;
};

std::string defect(const File& file) {
  struct stat status{};
  if (::fstat(file.descriptor(), &status) != 0 || status.st_size != static_cast<off_t>(sizeof(Segment)))
    return "its size is not a ledger's of this version";
  if (file.value<uint64_t>(offsetof(Segment, magic)) != ledger::kMagic) return "it does not begin as one";
  const auto layout = file.value<uint32_t>(offsetof(Segment, layout));
  if (layout != ledger::kLayout || file.value<uint32_t>(offsetof(Segment, bytes)) != sizeof(Segment))
    return "its layout is " + std::to_string(layout) + ", and this version's is " +
           std::to_string(ledger::kLayout);
  return "";
}

void read_need(const File& file, size_t slot, LedgerMember* member) {
  const size_t at = offset_of(slot);
  const auto number = file.value<uint64_t>(at + offsetof(Slot, number));
  const auto bytes = file.value<uint64_t>(at + offsetof(Slot, bytes));
  const auto device = file.value<DeviceUuid>(at + offsetof(Slot, device));
  if (number == 0 || file.value<uint64_t>(at + offsetof(Slot, number)) != number) return;
  member->need_bytes = bytes;
  member->need_device = device;
}

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

LedgerMember read_member(const File& file, size_t slot, uint64_t owner) {
  LedgerMember member;
  member.process = ledger::unpacked(owner).id;
  member.has_entry = ledger::read_shown(file, slot, owner, &member.entry);
  if (!member.has_entry) member.entry = {};
  const uint64_t now = now_ns();
  if (member.has_entry && member.entry.written_ns < now) member.age_ns = now - member.entry.written_ns;
  read_need(file, slot, &member);
  return member;
}

}  // namespace

LedgerRead read_ledger(const std::string& name, std::vector<LedgerMember>* members, std::string* why_not) {
  members->clear();
  const File file(name);
  if (file.descriptor() < 0) {
    if (errno == ENOENT) return LedgerRead::kNone;
    *why_not = std::generic_category().message(errno);
    return LedgerRead::kRefused;
  }
  if (!ledger::is_this_users(file.descriptor(), why_not)) return LedgerRead::kRefused;
  *why_not = defect(file);
  if (!why_not->empty()) return LedgerRead::kBroken;
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const auto owner = file.value<uint64_t>(offset_of(slot) + offsetof(Slot, owner));
    if (ledger::lives(owner)) members->push_back(read_member(file, slot, owner));
  }
  return LedgerRead::kRead;
}

}  // namespace spillway
