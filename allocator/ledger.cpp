#include "spillway/allocator/ledger.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>

#include "spillway/process_identity.h"

namespace spillway {
namespace {

namespace ipc = boost::interprocess;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kMagic = 0x53504c6564676572;  // "SPLedger"
constexpr uint32_t kLayout = 1;
constexpr size_t kSlots = 64;
constexpr auto kLookAgain = milliseconds(20);
constexpr auto kMadeByNow = milliseconds(200);
constexpr int kTries = 3;

// A process in one word: what another reads is never half of it. Process ids have at most 22 bits.
constexpr unsigned kIdBits = 22;
uint64_t packed(const ProcessIdentity& process) {
  return process.start << kIdBits | process.id;
}
ProcessIdentity unpacked(uint64_t owner) {
  return {owner & ((uint64_t{1} << kIdBits) - 1), owner >> kIdBits};
}
bool lives(uint64_t owner) {
  return owner != 0 && is_alive(unpacked(owner));
}

struct Answer {
  std::atomic<uint64_t> number, given_bytes;
};

struct Slot {
  std::atomic<uint64_t> owner;  // packed; 0: free
  // The owner's need: `number` is 0 while the rest is written.
  std::atomic<uint64_t> number, bytes;
  std::atomic<uint64_t> device[2];
  std::atomic<uint32_t> answers;  // grows with each answer to the owner; waited on
  Answer answered[kSlots];        // the owner's, to each slot
};

struct Segment {
  std::atomic<uint64_t> magic;  // written last by who makes it
  uint32_t layout, bytes;
  std::atomic<uint64_t> last_number;
  std::atomic<uint32_t> asked;  // grows with each need; waited on
  Slot slots[kSlots];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

void wait_on(std::atomic<uint32_t>& word, uint32_t seen, Clock::duration time) {
  const auto ns = std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  const timespec limit{ns / 1'000'000'000, ns % 1'000'000'000};
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void wake(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

struct Opened {
  std::unique_ptr<ipc::mapped_region> region;
  bool replace = false;  // another layout, or what is left of one
};

bool is_this_users(int descriptor, std::string* why_not) {
  struct stat status{};
  if (::fstat(descriptor, &status) == 0 && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0)
    return true;
  *why_not = "the shared memory of that name belongs to another user, or others may use it";
  return false;
}

void make(Segment& segment) {
  segment.layout = kLayout;
  segment.bytes = sizeof(Segment);
  segment.magic.store(kMagic, std::memory_order_release);
}

bool wait_until_made(const Segment& segment) {
  const Clock::time_point deadline = Clock::now() + kMadeByNow;
  while (segment.magic.load(std::memory_order_acquire) != kMagic) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return segment.layout == kLayout && segment.bytes == sizeof(Segment);
}

// The one that makes it is the one whose creation succeeds; the others wait for it a moment.
Opened open_segment(const std::string& name, std::string* why_not) {
  Opened opened;
  try {
    bool made = true;
    std::unique_ptr<ipc::shared_memory_object> memory;
    try {
      memory = std::make_unique<ipc::shared_memory_object>(ipc::create_only, name.c_str(), ipc::read_write,
                                                           ipc::permissions(0600));
      memory->truncate(sizeof(Segment));
    } catch (const ipc::interprocess_exception& error) {
      if (error.get_error_code() != ipc::already_exists_error) throw;
      made = false;
      memory = std::make_unique<ipc::shared_memory_object>(ipc::open_only, name.c_str(), ipc::read_write);
    }
    if (!is_this_users(memory->get_mapping_handle().handle, why_not)) return opened;
    ipc::offset_t size = 0;
    for (const Clock::time_point deadline = Clock::now() + kMadeByNow;
         memory->get_size(size) && size == 0 && Clock::now() < deadline;)
      std::this_thread::sleep_for(milliseconds(1));
    if (size != static_cast<ipc::offset_t>(sizeof(Segment))) {
      opened.replace = true;
      return opened;
    }
    opened.region = std::make_unique<ipc::mapped_region>(*memory, ipc::read_write, 0, sizeof(Segment));
    auto& segment = *static_cast<Segment*>(opened.region->get_address());
    if (made) make(segment);
    opened.replace = !made && !wait_until_made(segment);
  } catch (const ipc::interprocess_exception& error) {
    *why_not = std::string("no shared memory: ") + error.what();
    opened.region.reset();
  }
  return opened;
}

class SharedLedger final : public Ledger {
 public:
  SharedLedger(std::unique_ptr<ipc::mapped_region> region, size_t slot)
      : region_(std::move(region)), slot_(slot), self_(::getpid()) {}
  ~SharedLedger() override {
    if (is_member()) own().owner.store(0);
  }

  size_t peers() const override;
  uint64_t ask(const DeviceUuid& device, uint64_t bytes, Clock::time_point deadline,
               const std::function<bool()>& enough) override;
  bool wait_for_need(Need* need, milliseconds timeout) override;
  void answer(const Need& need, uint64_t given_bytes) override;

 private:
  Segment& segment() const { return *static_cast<Segment*>(region_->get_address()); }
  Slot& own() const { return segment().slots[slot_]; }
  bool is_member() const { return ::getpid() == self_; }
  bool read_need(size_t asker, Need* need) const;
  bool find_need(Need* need);
  bool all_have_answered(uint64_t number) const;
  uint64_t given(uint64_t number) const;

  std::unique_ptr<ipc::mapped_region> region_;
  const size_t slot_;
  const pid_t self_;
  std::mutex asking_;
};

size_t SharedLedger::peers() const {
  size_t count = 0;
  if (!is_member()) return 0;
  for (size_t i = 0; i < kSlots; ++i) count += i != slot_ && lives(segment().slots[i].owner.load()) ? 1 : 0;
  return count;
}

uint64_t SharedLedger::ask(const DeviceUuid& device, uint64_t bytes, Clock::time_point deadline,
                           const std::function<bool()>& enough) {
  if (!is_member()) return 0;
  std::lock_guard guard(asking_);
  const uint64_t number = segment().last_number.fetch_add(1) + 1;
  uint64_t words[2];
  std::memcpy(words, device.data(), sizeof words);
  own().number.store(0);
  own().bytes.store(bytes);
  own().device[0].store(words[0]);
  own().device[1].store(words[1]);
  own().number.store(number);
  wake(segment().asked);
  while (Clock::now() < deadline) {
    const uint32_t seen = own().answers.load();
    if (all_have_answered(number) || (given(number) != 0 && enough())) break;
    wait_on(own().answers, seen, std::min<Clock::duration>(kLookAgain, deadline - Clock::now()));
  }
  own().number.store(0);
  return given(number);
}

bool SharedLedger::all_have_answered(uint64_t number) const {
  for (size_t i = 0; i < kSlots; ++i) {
    const Slot& slot = segment().slots[i];
    if (i != slot_ && slot.answered[slot_].number.load() != number && lives(slot.owner.load())) return false;
  }
  return true;
}

uint64_t SharedLedger::given(uint64_t number) const {
  uint64_t bytes = 0;
  for (const Slot& slot : segment().slots)
    if (slot.answered[slot_].number.load() == number) bytes += slot.answered[slot_].given_bytes.load();
  return bytes;
}

bool SharedLedger::read_need(size_t asker, Need* need) const {
  const Slot& slot = segment().slots[asker];
  const uint64_t number = slot.number.load();
  if (asker == slot_ || number == 0 || own().answered[asker].number.load() == number) return false;
  *need = {.asker = asker, .number = number, .device = {}, .bytes = slot.bytes.load()};
  const uint64_t words[2] = {slot.device[0].load(), slot.device[1].load()};
  std::memcpy(need->device.data(), words, sizeof words);
  return slot.number.load() == number;
}

bool SharedLedger::find_need(Need* need) {
  for (size_t i = 0; i < kSlots; ++i)
    if (read_need(i, need) && lives(segment().slots[i].owner.load())) return true;
  return false;
}

bool SharedLedger::wait_for_need(Need* need, milliseconds timeout) {
  if (!is_member()) return false;
  const uint32_t seen = segment().asked.load();
  if (find_need(need)) return true;
  wait_on(segment().asked, seen, timeout);
  return find_need(need);
}

void SharedLedger::answer(const Need& need, uint64_t given_bytes) {
  if (!is_member() || need.asker >= kSlots) return;
  Answer& answer = own().answered[need.asker];
  answer.given_bytes.store(given_bytes);
  answer.number.store(need.number);
  wake(segment().slots[need.asker].answers);
}

// What an earlier owner left in the slot is no need and no answer of this one's.
void clear(Slot& slot) {
  slot.number.store(0);
  for (Answer& answer : slot.answered) answer.number.store(0);
}

size_t claim(Segment& segment) {
  const uint64_t self = packed(this_process());
  for (size_t i = 0; i < kSlots; ++i) {
    Slot& slot = segment.slots[i];
    uint64_t owner = slot.owner.load();
    if (lives(owner) || !slot.owner.compare_exchange_strong(owner, self)) continue;
    clear(slot);
    return i;
  }
  return kSlots;
}

}  // namespace

std::unique_ptr<Ledger> Ledger::join(const std::string& name, std::string* why_not) {
  for (int tried = 0; tried < kTries; ++tried) {
    Opened opened = open_segment(name, why_not);
    if (opened.replace) {
      ipc::shared_memory_object::remove(name.c_str());
      continue;
    }
    if (opened.region == nullptr) return nullptr;
    if (this_process().start == 0) {
      *why_not = "/proc does not tell when this process began";
      return nullptr;
    }
    const size_t slot = claim(*static_cast<Segment*>(opened.region->get_address()));
    if (slot != kSlots) return std::make_unique<SharedLedger>(std::move(opened.region), slot);
    *why_not = std::to_string(kSlots) + " processes take part already";
    return nullptr;
  }
  *why_not = "the shared memory of that name is no ledger, and could not be replaced";
  return nullptr;
}

std::string ledger_name() {
  const char* named = std::getenv("SPILLWAY_LEDGER");
  if (named != nullptr && *named != '\0') return std::string_view(named) == "off" ? "" : named;
  struct stat pids{};  // processes whose ids mean nothing to each other have ledgers of their own
  const uint64_t space = ::stat("/proc/self/ns/pid", &pids) == 0 ? pids.st_ino : 0;
  return "spillway-ledger-" + std::to_string(::geteuid()) + "-" + std::to_string(space);
}

}  // namespace spillway
