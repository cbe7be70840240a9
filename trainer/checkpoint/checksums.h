// Checksums of what a checkpoint holds, as a tensor of its own: a bit that a disk or a copy has changed is no
// number of the training.
//
// `kChecksums` has one U64 for the metadata and one for each other tensor, in the order of their names. A
// file without it, as earlier versions wrote, is taken as it is.
//
// Thread-safety: one thread. Errors: none; `damaged` says what is.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace spillway::trainer {

inline constexpr const char* kChecksums = "checksums";

// Adds that tensor behind the items, whose fills it follows: they are called once each, in their order.
void add_checksums(const std::map<std::string, std::string>& metadata, std::vector<safetensors::Item>* items);

// The first of these tensors, or "__metadata__", whose bytes are not those that were written; "" where all
// are.
std::string damaged(const safetensors::File& file, const std::set<std::string>& names);

}  // namespace spillway::trainer
