// A machine that several processes share: a small mapped file in which each says what it has charged against
// each card, so that all see how much is free.
//
// Thread-safety: used under the simulator's lock; between processes `Lock` orders what must not mix.
// Ownership: owns its mapping and its entry. An entry counts as long as the process that it names lives (by
// its id and start time), so nothing has to be cleaned up after a crash; what it needed stays to be read. A
// forked child has no entry until it starts the driver itself. Errors: a text that says what is wrong with
// the file. Units: bytes.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/process_identity.h"
#include "simulator/cards/machine_file.h"

namespace spillway::simulator {

// What a process has charged against a card.
struct Share {
  uint64_t process = 0, bytes = 0;
};

class SharedMachine {
 public:
  SharedMachine() = default;
  SharedMachine(const SharedMachine&) = delete;
  SharedMachine& operator=(const SharedMachine&) = delete;

  // Maps the file, which may be empty, and takes an entry in it. Returns "" or what is wrong, after which
  // nothing of the file is held.
  std::string open(const std::string& path);
  bool is_open() const { return file_ != nullptr; }
  // As if it had never been opened; the entry stays.
  void close();

  // Held while room is looked for and taken. The system releases it when the process dies.
  class Lock {
   public:
    explicit Lock(const SharedMachine* machine);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    int descriptor_ = -1;
  };

  // What other processes have charged, the dead included until `forget_the_dead`.
  uint64_t others_bytes(int card) const;
  void forget_the_dead();
  // The living processes that have charged something, this one too.
  std::vector<Share> shares(int card) const;
  // For whoever reads the file when the processes are gone. `kind`: the card's name in the table.
  void describe(int card, int ordinal, uint64_t capacity_bytes, std::string_view kind);
  // What this process has charged now, and what of that PyTorch's allocator has.
  void publish(int card, uint64_t bytes, uint64_t allocator_bytes);
  // There was no room for `bytes`.
  void refused(int card, uint64_t bytes);
  // The most that all processes had charged together.
  uint64_t peak_bytes(int card) const;

 private:
  std::string map();
  std::string take_entry();
  std::span<MachineFile::Process> taken() const;
  MachineFile::Process* free_entry();
  void fold(const MachineFile::Process& ended);

  MachineFile* file_ = nullptr;
  MachineFile::Process* entry_ = nullptr;  // in `file_`
  int descriptor_ = -1;
};

}  // namespace spillway::simulator
