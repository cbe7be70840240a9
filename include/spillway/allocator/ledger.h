// What the processes of one user on one machine ask of each other: a process that is short of device memory
// asks, the others give back what they only cache and answer. In a segment of shared memory in which nobody
// ever waits for a lock: a process that is killed leaves a slot that no longer counts.
//
// Thread-safety: `ask` and `peers` from any thread, one `ask` at a time waits for another; `wait_for_need`
// and `answer` by one thread. Ownership: the slot is given up by the destructor or by the process's end; the
// segment stays. A forked child is no member. Errors: `join` says why not. Nothing that another process wrote
// is trusted beyond its own answers: a segment of another layout is replaced. Units: bytes.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace spillway {

using DeviceUuid = std::array<uint8_t, 16>;

class Ledger {
 public:
  struct Need {
    size_t asker = 0;     // its slot
    uint64_t number = 0;  // of the need, never the same twice in a segment
    DeviceUuid device{};
    uint64_t bytes = 0;
  };

  // `name`: of the segment, without slashes. Null: `why_not`.
  static std::unique_ptr<Ledger> join(const std::string& name, std::string* why_not);
  virtual ~Ledger() = default;

  // Other members that are alive.
  virtual size_t peers() const = 0;
  // Asks every peer for memory of a device, and waits until all that live have answered, `enough` says so
  // after an answer, or the deadline. Returns what the answers claim.
  virtual uint64_t ask(const DeviceUuid& device, uint64_t bytes,
                       std::chrono::steady_clock::time_point deadline,
                       const std::function<bool()>& enough) = 0;
  // Waits until another member asks what this one has not answered; false at the timeout.
  virtual bool wait_for_need(Need* need, std::chrono::milliseconds timeout) = 0;
  virtual void answer(const Need& need, uint64_t given_bytes) = 0;
};

// The segment's name for this user and the processes that it can see: "" where SPILLWAY_LEDGER is "off".
std::string ledger_name();

}  // namespace spillway
