#include "trainer/ranks/network/store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <exception>
#include <future>
#include <optional>

#include "base/service_thread.h"
#include "trainer/ranks/network/reach.h"

namespace spillway::trainer {
namespace {

constexpr std::chrono::milliseconds kLongestAnswerOfStore{5'000}, kLongestTry{10'000}, kLongestConnect{1'000};

RanksError not_reached(const Launch& launch, const std::string& why) {
  return RanksError("the ranks do not meet: rank " + std::to_string(launch.rank) + " does not reach " +
                    place_of(launch) +
                    " (MASTER_ADDR and MASTER_PORT; is rank 0 there, and is the port free?): " + why);
}

}  // namespace

std::string place_of(const Launch& launch) {
  return launch.address + ":" + std::to_string(launch.port);
}

StorePointer connect_to_store(const Launch& launch, bool keeps_store, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = launch.port;
  options.isServer = keeps_store;
  options.waitWorkers = false;  // `wait_for_all` says who is missing
  options.timeout = timeout;
  try {
    StorePointer store = c10::make_intrusive<c10d::TCPStore>(launch.address, options);
    // As torch.distributed does it: what ranks of an earlier start left is not ours.
    return c10::make_intrusive<c10d::PrefixStore>("/spillway/attempt_" + std::to_string(launch.restart),
                                                  std::move(store));
  } catch (const std::exception& error) {
    throw not_reached(launch, error.what());
  }
}

// What accepts the connection may not be the store, and answer nothing: c10d waits for ever then. Each try is
// a thread of its own, and is left behind where it takes too long.
StorePointer connect_within(const Launch& launch, std::chrono::milliseconds timeout) {
  for (auto left = timeout; left.count() > 0; left -= kLongestTry) {
    const auto result = std::make_shared<std::promise<StorePointer>>();
    std::future<StorePointer> connected = result->get_future();
    const bool tries = start_service_thread([result, launch, left] {
      try {
        result->set_value(connect_to_store(launch, false, left));
      } catch (...) {
        result->set_exception(std::current_exception());
      }
    });
    if (!tries) return connect_to_store(launch, false, timeout);
    // The last one ends by itself where nobody is there.
    const auto longest = left > kLongestTry ? kLongestTry : left + kLongestAnswerOfStore;
    if (connected.wait_for(longest) == std::future_status::ready) return connected.get();
  }
  // c10d is late with its answer on a busy machine.
  if (!accepts_connections(launch.address, launch.port, kLongestConnect))
    throw not_reached(launch, "nobody accepts connections");
  throw RanksError("the ranks do not meet: what is at " + place_of(launch) +
                   " accepts connections and does not answer rank " + std::to_string(launch.rank) +
                   " (MASTER_ADDR and MASTER_PORT; is the port another program's?)");
}

std::vector<uint8_t> bytes_in_store(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text_in_store(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<std::string> keys_of_ranks(const std::string& what, uint32_t size) {
  std::vector<std::string> keys;
  keys.reserve(size);
  for (uint32_t rank = 0; rank < size; ++rank) keys.push_back(what + "/" + std::to_string(rank));
  return keys;
}

void wait_for_all(c10d::Store& store, const std::vector<std::string>& keys, std::chrono::milliseconds timeout,
                  const std::string& failing, const std::string& hint) {
  try {
    store.wait(keys, timeout);
  } catch (const std::exception&) {
    std::string missing;
    std::optional<uint32_t> first;
    for (uint32_t rank = 0; rank < keys.size(); ++rank)
      if (!store.check({keys[rank]})) {
        if (first) missing += ", ";
        missing += std::to_string(rank);
        if (!first) first = rank;
      }
    if (!first) throw;
    throw SilentRank(*first, "of " + std::to_string(keys.size()) + " ranks these did not " + failing +
                                 " within " + std::to_string(timeout.count() / 1000) +
                                 " seconds (run.ranks_timeout): " + missing + hint);
  }
}

}  // namespace spillway::trainer
