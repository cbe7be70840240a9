// What the processes of one user on one machine ask of each other: a process that is short of device memory
// asks, the others give back what they only cache and answer; and each shows what it holds. In a segment of
// shared memory in which nobody ever waits for a lock: a process that is killed leaves a slot that no longer
// counts.
//
// Fairness. Needs are numbered as they are asked, and a member gets them in that order. A member that waits
// for answers itself answers earlier needs for the same card with nothing, since its own caches went first,
// and gets later ones only when its own is over; so the later one does not take what is freed for the
// earlier. Who was given memory keeps it for `kKept`: until then no need for that card reaches it. So of
// several askers the first is served first, and none gives back at once what it was just given.
//
// Thread-safety: `ask`, `peers`, `peers_on` and `spare_elsewhere` from any thread, one `ask` at a time waits
// for another; `wait_for_need`, `answer` and `show` by one thread. Ownership: the slot is given up by the
// destructor or by the process's end; the segment stays. A forked child is no member. Errors: `join` says why
// not. Nothing that another process wrote is trusted beyond its own answers: a segment of another layout is
// replaced. Units: bytes.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "processes/ledger_entry.h"

namespace spillway {

// Virtual for the tests of what asks: they say what other processes answer, and when.
class Ledger {
 public:
  static constexpr std::chrono::milliseconds kKept{250};

  struct Need {
    size_t asker = 0;     // its slot
    uint64_t number = 0;  // of the need, never the same twice in a segment
    DeviceUuid device{};
    uint64_t bytes = 0;
  };

  // `name`: of the segment, without slashes, or the path of a file that `make_ledger` has begun. Null:
  // `why_not`.
  static std::unique_ptr<Ledger> join(const std::string& name, std::string* why_not);
  virtual ~Ledger() = default;

  // Other members that are alive.
  virtual size_t peers() const = 0;
  // Of these those that may have memory of a device: that show it, that keep memory on devices
  // which they do not use themselves, or that have shown nothing of late.
  virtual size_t peers_on(const DeviceUuid& device) const = 0;
  // What those would give of a device by what they have shown within the last second, counted up to `most`.
  virtual uint64_t spare_elsewhere(const DeviceUuid& device, uint64_t most) const = 0;
  // Asks every peer for memory of a device, and waits until all that live have answered, `enough` says so
  // after an answer, or the deadline. Returns what the answers claim.
  virtual uint64_t ask(const DeviceUuid& device, uint64_t bytes,
                       std::chrono::steady_clock::time_point deadline,
                       const std::function<bool()>& enough) = 0;
  // Whether some thread waits in `ask` now.
  virtual bool asks() const = 0;
  // Waits until another member asks what this one has not answered and may answer now; false at the timeout,
  // and sooner when a need came that is not for it yet.
  virtual bool wait_for_need(Need* need, std::chrono::milliseconds timeout) = 0;
  // Ends that wait, of every member.
  virtual void wake_members() = 0;
  virtual void answer(const Need& need, uint64_t given_bytes) = 0;
  // What others see of this process from now on; `written_ns` is set here.
  virtual void show(const LedgerEntry& entry) = 0;
};

// The segment's name for this user and the processes that it can see: "" where SPILLWAY_LEDGER is "off".
std::string ledger_name();

// What a ledger takes of shared memory.
uint64_t ledger_bytes();

// Makes a file that nobody uses a ledger of its user's; its path is then a name for `join`. False: `why_not`.
bool make_ledger(const std::string& path, std::string* why_not);

}  // namespace spillway
