#include "trainer/ranks/ranks.h"

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <exception>
#include <sstream>

#include "trainer/ranks/network/own_address.h"
#include "trainer/ranks/network/store.h"
#include "trainer/runtime/out_of_memory.h"

namespace spillway::trainer {
namespace {

using Milliseconds = std::chrono::milliseconds;
constexpr Milliseconds kLongestGoodbye{60'000}, kLongestRead{5'000};
// Messages that have not gone, before a rank waits for the first of them.
constexpr size_t kMostSent = 2;

// A connection of the watch's own.
class StoreOfWatch : public WatchStore {
 public:
  StoreOfWatch(const Launch& launch, Milliseconds timeout)
      : store_(connect_to_store(launch, false, timeout)) {}
  void set(const std::string& key, const std::string& text) override {
    store_->set(key, bytes_in_store(text));
  }
  std::optional<std::string> get(const std::string& key) override {
    if (!store_->check({key})) return std::nullopt;
    return text_in_store(store_->get(key));
  }
  std::string claim(const std::string& key, const std::string& text) override {
    return text_in_store(store_->compareSet(key, {}, bytes_in_store(text)));
  }

 private:
  StorePointer store_;
};

// The number of an incident of this start, the same on all ranks, which are there.
std::string agreed_number(c10d::Store& store) {
  return text_in_store(store.get("number"));
}

std::shared_ptr<Watch> make_watch(const Launch& launch, const StorePointer& store, const RanksTimes& times) {
  if (times.bound.count() == 0) return nullptr;
  const bool keeps_store = launch.rank == 0 && !launch.store_is_there;
  return std::make_shared<Watch>(
      WatchSettings{.judge = {.rank = launch.rank,
                              .size = launch.size,
                              .store = place_of(launch),
                              .rank_0_keeps_store = !launch.store_is_there,
                              .bound = times.bound,
                              .longest = std::max(times.timeout, times.bound)},
                    .beat = std::min(times.beat, times.bound / 3),
                    .number = agreed_number(*store),
                    .keeps_store = keeps_store},
      // The store of this process lives as long as the watch.
      [launch, bound = times.bound, kept = store] { return std::make_unique<StoreOfWatch>(launch, bound); });
}

void wait_until_met(c10d::Store& store, const std::string& what, uint32_t size, Milliseconds timeout) {
  wait_for_all(store, keys_of_ranks(what, size), timeout, "come",
               "; look at their output, and at whether all were started with the same size");
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

// PyTorch takes the address of this machine's name, which on many machines is a loopback one that others do
// not reach.
std::shared_ptr<gloo::transport::Device> gloo_device(const Launch& launch) {
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != 0)
    return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
  const std::string address = own_address_towards(launch.address, launch.port);
  return address.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                         : c10d::ProcessGroupGloo::createDeviceForHostname(address);
}

// `launch`: where the ranks meet; of a part of them it has another rank and size.
c10::intrusive_ptr<c10d::Backend> group_of(at::Device device, const StorePointer& store, const Launch& launch,
                                           Milliseconds timeout) {
  const auto rank = int(launch.rank), size = int(launch.size);
  if (device.is_cuda()) {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
  }
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->timeout = timeout;
  options->devices.push_back(gloo_device(launch));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

// Before there is a watch that says why a rank has gone.
void meet(c10d::Store& store, const Launch& launch, const RanksTimes& times) {
  const std::string rank = std::to_string(launch.rank);
  try {
    if (launch.rank == 0) store.set("number", bytes_in_store(new_incident_number()));
    if (times.bound.count() > 0) store.set("beat/" + rank, bytes_in_store(Watch::first_beat()));
    store.set("here/" + rank, bytes_in_store("yes"));
    wait_until_met(store, "here", launch.size, times.timeout);
  } catch (const RanksError&) {
    throw;
  } catch (const std::exception& error) {
    const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
    throw RanksError("the ranks do not meet: rank " + rank + " has lost the store at " + place_of(launch) +
                     ", perhaps because the rank that keeps it has ended; look at that one's output: " +
                     (of_torch ? of_torch->what_without_backtrace() : error.what()));
  }
}

struct SentMessage {
  c10::intrusive_ptr<c10d::Work> work;
  at::Tensor tensor;
};

}  // namespace

struct Ranks::Communication {
  Launch launch;
  StorePointer store;
  c10::intrusive_ptr<c10d::Backend> group;
  Milliseconds timeout;
  at::Tensor numbers;  // for `add_up`: a full device must not end a run between its steps
  StoreRounds rounds;
  std::deque<SentMessage> sent{};  // that may not have gone

  // NCCL has it on the communicator of these ranks, which is there then, where it is one of a group of calls;
  // by itself c10d would make another communicator, for the two.
  c10::intrusive_ptr<c10d::Work> pass(const at::Tensor& message, bool sends, uint32_t other) const {
    std::vector<at::Tensor> one{message};
    const auto call = [&] {
      return sends ? group->send(one, int(other), 0) : group->recv(one, int(other), 0);
    };
    if (!message.is_cuda()) return call();
    group->startCoalescing();
    call();
    return group->endCoalescing();
  }
};

Ranks::Ranks() = default;

Ranks::Ranks(const Launch& launch, at::Device device, const RanksTimes& times,
             const std::function<void(std::shared_ptr<Watch>)>& watched)
    : rank_(launch.rank), size_(launch.size), keeps_store_(leads() && !launch.store_is_there) {
  if (is_alone()) return;
  const Milliseconds timeout = times.timeout;
  StorePointer store =
      keeps_store_ ? connect_to_store(launch, true, timeout) : connect_within(launch, timeout);
  meet(*store, launch, times);
  watch_ = make_watch(launch, store, times);
  if (watched) watched(watch_);
  at::Tensor numbers = at::empty({kMostNumbers}, at::device(device).dtype(at::kDouble));
  communication_.reset(new Communication{launch, store, nullptr, timeout, std::move(numbers),
                                         StoreRounds(*store, rank_, size_, timeout)});
  together("the start of the ranks' communication",
           [&] { communication_->group = group_of(device, store, launch, timeout); });
  warm_up();
}

Ranks::Ranks(const Ranks& whole, const std::string& name, const std::vector<uint32_t>& members,
             at::Device device)
    : rank_(uint32_t(std::ranges::find(members, whole.rank()) - members.begin())),
      size_(uint32_t(members.size())),
      watch_(whole.watch_) {
  const Communication& all = *whole.communication_;
  Launch launch = all.launch;
  launch.rank = rank_, launch.size = size_;
  StorePointer store = c10::make_intrusive<c10d::PrefixStore>(name, all.store);
  communication_.reset(new Communication{launch, store, nullptr, all.timeout,
                                         all.numbers.to(device, at::kDouble, false, true),
                                         StoreRounds(*store, rank_, size_, all.timeout)});
  together("the start of the ranks' communication",
           [&] { communication_->group = group_of(device, store, launch, all.timeout); });
}

std::shared_ptr<Ranks> Ranks::among(const std::string& name, const std::vector<uint32_t>& members,
                                    std::optional<at::Device> device) const {
  if (members.size() == 1) return std::make_shared<Ranks>();
  return std::shared_ptr<Ranks>(new Ranks(*this, name, members, device.value_or(this->device())));
}

// A group whose other ranks are gone may wait for them when it is destroyed: it goes with the process.
void Ranks::warm_up() {
  if (is_alone()) return;
  const at::Tensor flat = at::zeros({int64_t{size_}}, communication_->numbers.options().dtype(at::kFloat));
  reduce_scatter(flat);
  all_gather(flat);
  sum(0);
  bytes_sent_ = 0;
}

Ranks::~Ranks() {
  if (watch_ && watch_->incident()) static_cast<void>(communication_.release());
}

template <typename Work>
void Ranks::together(const char* what, const Work& work, Ends ends) {
  if (watch_) watch_->check(), watch_->waits(what);
  const auto start = std::chrono::steady_clock::now();
  std::string failed;
  std::exception_ptr thrown;
  try {
    work();
  } catch (const SilentRank& silent) {
    if (!watch_) throw;
    throw RanksEnded(watch_->say_why(silent.what(), silent.rank));
  } catch (const std::exception& error) {
    thrown = std::current_exception();
    const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
    failed = of_torch ? of_torch->what_without_backtrace() : error.what();
    if (!watch_) throw;
  }
  if (!watch_) return;
  watch_->has_waited(
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start),
      ends == Ends::kNow);
  if (says_out_of_memory(failed)) std::rethrow_exception(thrown);
  if (!failed.empty()) watch_->lost_connection(failed);
}

void Ranks::works(const char* doing, uint64_t step, bool may_be_long) {
  if (watch_) watch_->works(doing, step, may_be_long);
}

void Ranks::changes_plan(uint64_t step) {
  if (watch_) watch_->changes_plan(step);
}

void Ranks::wait_for_sums(const std::function<void()>& wait) {
  is_alone() ? wait() : together("a sum over the ranks", wait);
}

Ranks::Share Ranks::share_of(uint32_t rows) const {
  const uint32_t each = rows / size_, more = rows % size_;
  return {.first = rank_ * each + std::min(rank_, more), .count = each + (rank_ < more ? 1 : 0)};
}

void Ranks::check_same(const std::string& what, const std::string& mine) {
  if (is_alone()) return;
  c10d::Store& store = *communication_->store;
  std::string fault;
  together("a comparison of the ranks", [&] {
    store.set(what + "/" + std::to_string(rank_), bytes_in_store(mine));
    wait_until_met(store, what, size_, communication_->timeout);
    const std::vector<std::string> keys = keys_of_ranks(what, size_);
    const std::string first = text_in_store(store.get(keys[0]));
    for (uint32_t rank = 1; rank < size_ && fault.empty(); ++rank) {
      const std::string differs = difference(first, text_in_store(store.get(keys[rank])));
      if (!differs.empty())
        fault = "rank 0 and rank " + std::to_string(rank) + " do not go together, their " + what +
                " differ: " + differs;
    }
    store.set(what + "-read/" + std::to_string(rank_), bytes_in_store("yes"));
  });
  if (fault.empty()) return;
  wait_until_read(what);
  throw RanksError(fault);
}

// The store goes with the rank that keeps it: not before the others have compared.
void Ranks::wait_until_read(const std::string& what) {
  if (!keeps_store_) return;
  try {
    wait_until_met(*communication_->store, what + "-read", size_, kLongestRead);
  } catch (const SilentRank&) {  // who does not read has a fault of its own
  }
}

void Ranks::end_together() {
  if (watch_) watch_->leave();
}

void Ranks::leave() {
  if (is_alone()) return;
  end_together();
  c10d::Store& store = *communication_->store;
  store.set("left/" + std::to_string(rank_), bytes_in_store("yes"));
  if (!keeps_store_) return;
  try {
    wait_until_met(store, "left", size_, std::min(communication_->timeout, kLongestGoodbye));
  } catch (const SilentRank&) {  // who does not leave is no fault of this rank's
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
  together(
      "a sum over the ranks",
      [&] {
        if (flat.is_cuda())
          communication_->group->_reduce_scatter_base(mine, all)->wait();
        else
          sum_by_messages(flat, mine);
      },
      flat.is_cuda() ? Ends::kQueued : Ends::kNow);
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
  together(
      "the shares of all ranks", [&] { communication_->group->_allgather_base(all, mine)->wait(); },
      flat.is_cuda() ? Ends::kQueued : Ends::kNow);
}

at::Device Ranks::device() const {
  return is_alone() ? at::Device(at::kCPU) : communication_->numbers.device();
}

void Ranks::send(const at::Tensor& message, uint32_t to) {
  std::deque<SentMessage>& sent = communication_->sent;
  together(
      "a message to another rank",
      [&] {
        while (!sent.empty() && sent.front().work->isCompleted()) sent.pop_front();
        for (; sent.size() >= kMostSent; sent.pop_front()) sent.front().work->wait();
        sent.push_back({communication_->pass(message, true, to), message});
      },
      message.is_cuda() ? Ends::kQueued : Ends::kNow);
}

void Ranks::receive(const at::Tensor& message, uint32_t from) {
  together(
      "a message of another rank", [&] { communication_->pass(message, false, from)->wait(); },
      message.is_cuda() ? Ends::kQueued : Ends::kNow);
}

void Ranks::wait_for_sent() {
  if (is_alone() || communication_->sent.empty()) return;
  together(
      "a message to another rank",
      [&] {
        for (const SentMessage& one : communication_->sent) one.work->wait();
        communication_->sent.clear();
      },
      communication_->numbers.is_cuda() ? Ends::kQueued : Ends::kNow);
}

double Ranks::sum(double mine) {
  add_up({&mine, 1});
  return mine;
}

void Ranks::add_up(std::span<double> numbers) {
  if (is_alone()) return;
  const at::Tensor here = at::from_blob(numbers.data(), {int64_t(numbers.size())}, at::kDouble);
  const at::Tensor there = communication_->numbers.narrow(0, 0, here.numel());
  together("a sum over the ranks", [&] {
    there.copy_(here);
    std::vector<at::Tensor> all = {there};
    communication_->group->allreduce_coalesced(all)->wait();
    here.copy_(there);  // a GPU comes to it here
  });
}

std::string Ranks::decide(const std::string& mine, const Decide& decide) {
  if (is_alone()) return decide({mine});
  std::string made;
  together("an agreement of the ranks", [&] { made = communication_->rounds.decide(mine, decide); });
  return made;
}

}  // namespace spillway::trainer
