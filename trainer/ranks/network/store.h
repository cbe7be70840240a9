// The c10d store where ranks meet: connections to it, and what each rank says there under a key of its own.
//
// Thread-safety: a connection is one thread's. Errors: RanksError; SilentRank where one does not say in time
// what all say; c10d's exceptions.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/ranks/launch.h"

namespace spillway::trainer {

struct RanksError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The others wait for it in vain.
struct SilentRank : RanksError {
  SilentRank(uint32_t which, const std::string& text) : RanksError(text), rank(which) {}
  uint32_t rank;
};

using StorePointer = c10::intrusive_ptr<c10d::Store>;

std::string place_of(const Launch& launch);
// `keeps_store`: in this process.
StorePointer connect_to_store(const Launch& launch, bool keeps_store, std::chrono::milliseconds timeout);
// The same to another process's, which may accept the connection and be no store.
StorePointer connect_within(const Launch& launch, std::chrono::milliseconds timeout);

std::vector<uint8_t> bytes_in_store(const std::string& text);
std::string text_in_store(const std::vector<uint8_t>& bytes);
// "WHAT/0", "WHAT/1", ...
std::vector<std::string> keys_of_ranks(const std::string& what, uint32_t size);
// `failing`: what those have not done that are missing; `hint`: what to look at.
void wait_for_all(c10d::Store& store, const std::vector<std::string>& keys, std::chrono::milliseconds timeout,
                  const std::string& failing, const std::string& hint = "");

}  // namespace spillway::trainer
