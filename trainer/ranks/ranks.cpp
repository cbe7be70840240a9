#include "trainer/ranks/ranks.h"

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <sstream>

namespace spillway::trainer {
namespace {

using Milliseconds = std::chrono::milliseconds;
constexpr Milliseconds kLongestGoodbye{60'000};
using StorePointer = c10::intrusive_ptr<c10d::Store>;

std::string name_of(uint32_t rank) {
  return "rank " + std::to_string(rank);
}

std::string place_of(const Launch& launch) {
  return launch.address + ":" + std::to_string(launch.port);
}

StorePointer connect(const Launch& launch, Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = launch.port;
  options.isServer = launch.rank == 0 && !launch.store_is_there;
  options.waitWorkers = false;  // `wait_for_all` says who is missing
  options.timeout = timeout;
  try {
    StorePointer store = c10::make_intrusive<c10d::TCPStore>(launch.address, options);
    // As torch.distributed does it: what ranks of an earlier start left is not ours.
    return c10::make_intrusive<c10d::PrefixStore>("/spillway/attempt_" + std::to_string(launch.restart),
                                                  std::move(store));
  } catch (const std::exception& error) {
    throw RanksError(
        "the ranks do not meet: " + name_of(launch.rank) + " does not reach " + place_of(launch) +
        " (MASTER_ADDR and MASTER_PORT; is rank 0 there, and is the port free?): " + error.what());
  }
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

// The key of each rank, in order.
std::vector<std::string> keys_of(const std::string& what, uint32_t size) {
  std::vector<std::string> keys;
  keys.reserve(size);
  for (uint32_t rank = 0; rank < size; ++rank) keys.push_back(what + "/" + std::to_string(rank));
  return keys;
}

void wait_for_all(c10d::Store& store, const std::string& what, uint32_t size, Milliseconds timeout) {
  const std::vector<std::string> keys = keys_of(what, size);
  try {
    store.wait(keys, timeout);
  } catch (const std::exception& error) {
    std::string missing;
    for (uint32_t rank = 0; rank < size; ++rank)
      if (!store.check({keys[rank]})) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    if (missing.empty()) throw;
    throw RanksError("of " + std::to_string(size) + " ranks these did not come within " +
                     std::to_string(timeout.count() / 1000) + " seconds (run.ranks_timeout): " + missing +
                     "; look at their output, and at whether all were started with the same size");
  }
}

// The first line that differs, or "".
std::string difference(const std::string& mine, const std::string& other) {
  std::istringstream here(mine), there(other);
  std::string a, b;
  while (true) {
    const bool has_a = bool(std::getline(here, a)), has_b = bool(std::getline(there, b));
    if (!has_a && !has_b) return "";
    if (!has_a || !has_b || a != b) return "'" + (has_a ? a : "") + "' and '" + (has_b ? b : "") + "'";
  }
}

c10::intrusive_ptr<c10d::Backend> over_gloo(const StorePointer& store, const Launch& launch,
                                            Milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->timeout = timeout;
  options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, int(launch.rank), int(launch.size), options);
}

c10::intrusive_ptr<c10d::Backend> over_nccl(const StorePointer& store, const Launch& launch,
                                            Milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, int(launch.rank), int(launch.size), options);
}

}  // namespace

struct Ranks::Communication {
  StorePointer store;
  c10::intrusive_ptr<c10d::Backend> group;
  Milliseconds timeout;
  at::Tensor number;  // [1], for `sum`: a full device must not end a run between its steps
};

Ranks::Ranks() = default;

Ranks::Ranks(const Launch& launch, at::Device device, std::chrono::seconds timeout)
    : rank_(launch.rank), size_(launch.size) {
  if (is_alone()) return;
  StorePointer store = connect(launch, timeout);
  store->set("here/" + std::to_string(rank_), bytes_of("yes"));
  wait_for_all(*store, "here", size_, timeout);
  auto group = device.is_cuda() ? over_nccl(store, launch, timeout) : over_gloo(store, launch, timeout);
  keeps_store_ = leads() && !launch.store_is_there;
  at::Tensor number = at::empty({1}, at::device(device).dtype(at::kDouble));
  communication_.reset(new Communication{std::move(store), std::move(group), timeout, std::move(number)});
  sum(0);  // makes the communicators, while there is memory for them
}

Ranks::~Ranks() = default;

Ranks::Share Ranks::share_of(uint32_t rows) const {
  const uint32_t each = rows / size_, more = rows % size_;
  return {.first = rank_ * each + std::min(rank_, more), .count = each + (rank_ < more ? 1 : 0)};
}

void Ranks::check_same(const std::string& what, const std::string& mine) {
  if (is_alone()) return;
  c10d::Store& store = *communication_->store;
  store.set(what + "/" + std::to_string(rank_), bytes_of(mine));
  wait_for_all(store, what, size_, communication_->timeout);
  const std::vector<std::string> keys = keys_of(what, size_);
  const std::vector<uint8_t> bytes = store.get(keys[0]);
  const std::string first(bytes.begin(), bytes.end());
  for (uint32_t rank = 1; rank < size_; ++rank) {
    const std::vector<uint8_t> other = store.get(keys[rank]);
    const std::string differs = difference(first, std::string(other.begin(), other.end()));
    if (!differs.empty())
      throw RanksError("rank 0 and " + name_of(rank) + " do not go together, their " + what +
                       " differ: " + differs);
  }
}

void Ranks::add_up(std::vector<at::Tensor> tensors) {
  if (is_alone() || tensors.empty()) return;
  communication_->group->allreduce_coalesced(tensors)->wait();
}

void Ranks::leave() {
  if (is_alone()) return;
  c10d::Store& store = *communication_->store;
  store.set("left/" + std::to_string(rank_), bytes_of("yes"));
  if (!keeps_store_) return;
  try {
    wait_for_all(store, "left", size_, std::min<Milliseconds>(communication_->timeout, kLongestGoodbye));
  } catch (const RanksError&) {  // who does not leave is no fault of this rank's
  }
}

at::Tensor Ranks::own_part(const at::Tensor& flat) {
  const int64_t part = flat.numel() / size_;
  bytes_sent_ += uint64_t(part) * flat.element_size() * (size_ - 1);
  return flat.narrow(0, part * rank_, part);
}

void Ranks::reduce_scatter(const at::Tensor& flat) {
  if (is_alone()) return;
  at::Tensor mine = own_part(flat), all = flat;
  if (flat.is_cuda())
    communication_->group->_reduce_scatter_base(mine, all)->wait();
  else
    sum_by_messages(flat, mine);
}

// Gloo of PyTorch 2.11 adds up all parts on all ranks and drops most of them. A part that is sent to its rank
// alone is half the traffic, and is added up in the order of the ranks: in floats, and rounded once.
void Ranks::sum_by_messages(const at::Tensor& flat, at::Tensor mine) {
  at::Tensor sent = flat.view(at::kByte), received = at::empty_like(sent);
  std::vector<int64_t> equal;
  communication_->group->alltoall_base(received, sent, equal, equal)->wait();
  const at::Tensor parts = received.view(flat.scalar_type()).view({int64_t{size_}, -1});
  at::Tensor sum = parts[0].to(at::kFloat);
  for (int64_t rank = 1; rank < int64_t{size_}; ++rank) sum.add_(parts[rank].to(at::kFloat));
  mine.copy_(sum);
}

void Ranks::all_gather(const at::Tensor& flat) {
  if (is_alone()) return;
  at::Tensor mine = own_part(flat), all = flat;
  communication_->group->_allgather_base(all, mine)->wait();
}

double Ranks::sum(double mine) {
  if (is_alone()) return mine;
  at::Tensor& all = communication_->number;
  all.fill_(mine);
  add_up({all});
  return all.item().toDouble();
}

}  // namespace spillway::trainer
