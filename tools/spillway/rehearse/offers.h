// What a user can change so that a program fits, as runs to be tried.
//
// Thread-safety: pure functions.
#pragma once
#include <string>
#include <vector>

#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

struct Offer {
  std::string what;  // "with --batch 8 in place of 16"
  RunOptions options;
};

// Those that are not in force already.
std::vector<Offer> other_allocators(const RunOptions& options);
// By halves, from the largest on: where the command has one argument of a batch's size ("--batch-size 16",
// "--per_device_train_batch_size=16", "train.batch_size=16"). None where it has several, since their meaning
// is not known.
std::vector<Offer> smaller_batches(const RunOptions& options);
// Activations computed again in the backward pass.
Offer checkpointing(const RunOptions& options);
// `spillway run --mode replace`; its report goes to `folder`.
Offer memory_moved_to_host(const RunOptions& options, const std::string& folder);

}  // namespace spillway::tools
