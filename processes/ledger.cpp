#include "processes/ledger.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>

#include "base/mutex.h"
#include "processes/ledger_shown.h"

namespace spillway {
namespace {

using ledger::Answer;
using ledger::kSlots;
using ledger::lives;
using ledger::Segment;
using ledger::Slot;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kLookAgain = milliseconds(20);

void wait_on(std::atomic<uint32_t>& word, uint32_t seen, Clock::duration time) {
  const auto ns = std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  const timespec limit{ns / 1'000'000'000, ns % 1'000'000'000};
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void wake(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

constexpr auto kFresh = std::chrono::seconds(1);
constexpr uint64_t kMostShown = uint64_t{1} << 50;  // more is no card's, and sums of these do not overflow

bool is_fresh(const LedgerEntry& entry) {
  const auto now = static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  return now < entry.written_ns ||
         now - entry.written_ns < static_cast<uint64_t>(Clock::duration(kFresh).count());
}

uint64_t spare_in(const LedgerEntry& entry, const DeviceUuid& device) {
  for (size_t i = 0; i < entry.device_count; ++i)
    if (entry.devices[i].uuid == device) return std::min(entry.devices[i].spare_bytes, kMostShown);
  return 0;
}

bool may_be_on(const LedgerEntry& entry, const DeviceUuid& device) {
  if (entry.device_count >= LedgerEntry::kMostDevices) return true;  // there may be more
  for (size_t i = 0; i < entry.device_count; ++i)
    if (entry.devices[i].uuid == device || entry.devices[i].spilled_peer_bytes != 0) return true;
  return false;
}

class SharedLedger final : public Ledger {
 public:
  SharedLedger(ledger::Region region, size_t slot)
      : region_(std::move(region)), slot_(slot), self_(::getpid()) {}
  ~SharedLedger() override {
    if (is_member()) ledger::give_up_slot(segment(), slot_);
  }

  size_t peers() const override;
  size_t peers_on(const DeviceUuid& device) const override;
  uint64_t spare_elsewhere(const DeviceUuid& device, uint64_t most) const override;
  uint64_t ask(const DeviceUuid& device, uint64_t bytes, Clock::time_point deadline,
               const std::function<bool()>& enough) override;
  bool asks() const override { return is_member() && own().number.load() != 0; }
  bool wait_for_need(Need* need, milliseconds timeout) override;
  void wake_members() override;
  void answer(const Need& need, uint64_t given_bytes) override;
  void show(const LedgerEntry& entry) override;

 private:
  Segment& segment() const { return ledger::segment_in(region_); }
  Slot& own() const { return segment().slots[slot_]; }
  bool is_member() const { return ::getpid() == self_; }
  uint64_t place_need(const DeviceUuid& device, uint64_t bytes);
  bool all_have_answered(uint64_t number) const;
  bool read_need(size_t asker, Need* need) const;
  bool find_need(Need* need);
  bool keeps(const DeviceUuid& device);
  uint64_t given(uint64_t number) const;

  ledger::Region region_;
  const size_t slot_;
  const pid_t self_;
  Mutex<LockOrder::kLedgerAsk> asking_;
  Mutex<LockOrder::kLedgerKept> kept_mutex_;  // never held while waiting
  DeviceUuid kept_device_ SPILLWAY_GUARDED_BY(kept_mutex_){};
  Clock::time_point kept_until_ SPILLWAY_GUARDED_BY(kept_mutex_);
  bool some_must_wait_ = false;  // needs that this member may not answer yet
};

size_t SharedLedger::peers() const {
  size_t count = 0;
  if (!is_member()) return 0;
  for (size_t i = 0; i < kSlots; ++i) count += i != slot_ && lives(segment().slots[i].owner.load()) ? 1 : 0;
  return count;
}

size_t SharedLedger::peers_on(const DeviceUuid& device) const {
  size_t count = 0;
  LedgerEntry entry;
  for (size_t i = 0; is_member() && i < kSlots; ++i) {
    const uint64_t owner = segment().slots[i].owner.load();
    if (i == slot_ || !lives(owner)) continue;
    const bool shown = ledger::read_shown(ledger::Mapped(segment()), i, owner, &entry) && is_fresh(entry);
    count += !shown || may_be_on(entry, device) ? 1 : 0;
  }
  return count;
}

uint64_t SharedLedger::spare_elsewhere(const DeviceUuid& device, uint64_t most) const {
  uint64_t bytes = 0;
  LedgerEntry entry;
  for (size_t i = 0; is_member() && i < kSlots && bytes < most; ++i) {
    const uint64_t owner = segment().slots[i].owner.load();
    if (i != slot_ && lives(owner) && ledger::read_shown(ledger::Mapped(segment()), i, owner, &entry) &&
        is_fresh(entry))
      bytes += spare_in(entry, device);
  }
  return std::min(bytes, most);
}

uint64_t SharedLedger::place_need(const DeviceUuid& device, uint64_t bytes) {
  uint64_t number = 0;
  while (number == 0) number = segment().last_number.fetch_add(1) + 1;  // 0 is no need's
  uint64_t words[2];
  std::memcpy(words, device.data(), sizeof words);
  own().number.store(0);
  own().bytes.store(bytes);
  own().device[0].store(words[0]);
  own().device[1].store(words[1]);
  own().number.store(number);
  wake(segment().asked);
  return number;
}

uint64_t SharedLedger::ask(const DeviceUuid& device, uint64_t bytes, Clock::time_point deadline,
                           const std::function<bool()>& enough) {
  if (!is_member()) return 0;
  const Locked guard(asking_);
  const uint64_t number = place_need(device, bytes);
  while (Clock::now() < deadline) {
    const uint32_t seen = own().answers.load();
    if (all_have_answered(number) || (given(number) != 0 && enough())) break;
    wait_on(own().answers, seen, std::min<Clock::duration>(kLookAgain, deadline - Clock::now()));
  }
  const uint64_t bytes_given = given(number);
  if (bytes_given != 0) {
    const Locked kept(kept_mutex_);
    kept_device_ = device;
    kept_until_ = Clock::now() + kKept;
  }
  own().number.store(0);
  wake(segment().asked);  // who waits for this need to be over
  return bytes_given;
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
  if (number == 0) return false;
  *need = {.asker = asker, .number = number, .device = ledger::device_of(slot), .bytes = slot.bytes.load()};
  return slot.number.load() == number;
}

bool SharedLedger::keeps(const DeviceUuid& device) {
  const Locked kept(kept_mutex_);
  return kept_device_ == device && Clock::now() < kept_until_;
}

// The earliest need that may be answered now.
bool SharedLedger::find_need(Need* need) {
  Need mine, other;
  const bool asks = read_need(slot_, &mine);
  uint64_t earliest = UINT64_MAX;
  some_must_wait_ = false;
  for (size_t i = 0; i < kSlots; ++i) {
    if (i == slot_ || !read_need(i, &other) || other.number >= earliest) continue;
    if (own().answered[i].number.load() == other.number || !lives(segment().slots[i].owner.load())) continue;
    if (asks && mine.device == other.device) {
      if (other.number < mine.number)
        answer(other, 0);
      else
        some_must_wait_ = true;
      continue;
    }
    if (keeps(other.device)) {
      some_must_wait_ = true;
      continue;
    }
    earliest = other.number;
    *need = other;
  }
  return earliest != UINT64_MAX;
}

bool SharedLedger::wait_for_need(Need* need, milliseconds timeout) {
  if (!is_member()) return false;
  const uint32_t seen = segment().asked.load();
  if (find_need(need)) return true;
  wait_on(segment().asked, seen, some_must_wait_ ? std::min(timeout, kLookAgain) : timeout);
  return find_need(need);
}

void SharedLedger::wake_members() {
  if (is_member()) wake(segment().asked);
}

void SharedLedger::answer(const Need& need, uint64_t given_bytes) {
  if (!is_member() || need.asker >= kSlots) return;
  Answer& answer = own().answered[need.asker];
  answer.given_bytes.store(given_bytes);
  answer.number.store(need.number);
  wake(segment().slots[need.asker].answers);
}

// A reader that sees one new word sees the odd version too: each word is a release, and each read of it an
// acquire.
void SharedLedger::show(const LedgerEntry& entry) {
  if (!is_member()) return;
  LedgerEntry written = entry;
  written.written_ns = static_cast<uint64_t>(Clock::now().time_since_epoch().count());
  uint64_t words[ledger::kEntryWords];
  std::memcpy(words, &written, sizeof written);
  ledger::Shown& shown = own().shown;
  const uint64_t version = shown.version.load(std::memory_order_relaxed) & ~uint64_t{1};
  shown.version.store(version + 1, std::memory_order_relaxed);
  shown.writer.store(own().owner.load(), std::memory_order_release);
  for (size_t i = 0; i < ledger::kEntryWords; ++i) shown.words[i].store(words[i], std::memory_order_release);
  shown.version.store(version + 2, std::memory_order_release);
}

}  // namespace

std::unique_ptr<Ledger> Ledger::join(const std::string& name, std::string* why_not) {
  ledger::Region region = ledger::open_segment(name, why_not);
  if (region == nullptr) return nullptr;
  if (this_process().start == 0) {
    *why_not = "/proc does not tell when this process began";
    return nullptr;
  }
  const size_t slot = ledger::claim_slot(ledger::segment_in(region));
  if (slot != kSlots) return std::make_unique<SharedLedger>(std::move(region), slot);
  *why_not = std::to_string(kSlots) + " processes take part already";
  return nullptr;
}

}  // namespace spillway
