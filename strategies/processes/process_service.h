// This process in the ledger: a thread that gives idle memory back when another process asks, and shows four
// times a second what the process holds.
//
// Thread-safety: any thread. Ownership: never destroyed; the slot is given up by the process's end. Errors:
// `start` says why this process takes no part.
#pragma once
#include <cstdint>
#include <string>

#include "processes/ledger.h"

namespace spillway {

class ProcessService {
 public:
  // Joins and starts the thread, once. `captures`: how many streams are being captured now.
  static bool start(uint32_t (*captures)(), std::string* why_not);
  // Null while this process is in none.
  static Ledger* ledger();
  // Others see soon what this process holds now: not only when the next quarter of a second is over.
  static void show_soon();
};

}  // namespace spillway
