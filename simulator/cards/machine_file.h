// The file of a machine that several processes share, as it lies in memory: what each process has charged
// against each card, and the most that it had. Programs end by a signal or by _exit and leave nothing else,
// so what is written here stays when they have ended.
//
// Thread-safety: fields are read and written as relaxed atomics; entries are taken under a lock of the file.
// Ownership: plain data. Errors: whoever has the file can write to it, so a reader trusts no number. Units:
// bytes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace spillway::simulator {

constexpr uint64_t kMachineMagic = 0x334d59414c495053;  // "SPILAYM3"
constexpr size_t kMachineCards = 16, kMachineProcesses = 256;

struct MachineFile {
  // What a process did with a card.
  struct Use {
    uint64_t charged_bytes, peak_bytes;
    // Of the peak, what PyTorch's allocator had; the most that all others had, at whatever moment.
    uint64_t allocator_at_peak_bytes, outside_peak_bytes;
    uint64_t refused, refused_bytes;  // requests for which there was no room; what the first asked for
    uint64_t ordinal;                 // the card's number in the process
  };
  struct Process {
    uint64_t id, start;  // 0: free
    uint64_t ended;      // its place may be taken; then its figures go into the cards'
    Use uses[kMachineCards];
  };
  struct Card {
    uint64_t capacity_bytes;
    uint64_t peak_bytes;  // the most that all processes had together
    // Of ended processes that gave up their places: how many used it, the most that one had, its refusals.
    uint64_t gone, gone_peak_bytes, gone_refused;
  };
  uint64_t magic, size;
  uint64_t places;  // of `processes` that were ever taken; the others are free
  char kind[32];    // the cards' name in the table, "" for none
  Card cards[kMachineCards];
  Process processes[kMachineProcesses];
};

}  // namespace spillway::simulator
