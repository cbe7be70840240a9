#include "simulator/libraries/nccl/communicator/traffic.h"

#include <algorithm>

#include "simulator/libraries/nccl/device.h"
#include "simulator/libraries/nccl/reduce.h"

namespace spillway::nccl {
namespace {

constexpr uint64_t kPayloadAlignment = 4096;
constexpr uint64_t kMostTold = uint64_t{1} << 20;  // what null mode knows at once

uint64_t aligned(uint64_t bytes) {
  return (bytes + kPayloadAlignment - 1) / kPayloadAlignment * kPayloadAlignment;
}

std::string pair_text(int from, int to, uint64_t number) {
  return "message " + std::to_string(number + 1) + " from rank " + std::to_string(from) + " to rank " +
         std::to_string(to);
}

}  // namespace

Traffic::Traffic(SharedFile& file, int rank)
    : file_(file),
      rank_(rank),
      ranks_(file.header().ranks),
      sent_(ranks_),
      posted_(ranks_),
      sends_(ranks_),
      receives_(ranks_) {}

std::string Traffic::number_text(uint64_t number) const {
  return "collective " + std::to_string(number + 1) + " of communicator " + file_.place().name;
}

bool Traffic::has_room(const Call& call) const {
  const int peer = call.peer;
  switch (call.signature.kind) {
    case Kind::kSend:
      return sent_[peer] - file_.pair(rank_, peer).received.load() < kPairCallsKept;
    case Kind::kReceive:
      return posted_[peer] - file_.pair(peer, rank_).send_checked.load() < kPairCallsKept;
    default:
      for (int other = 0; other < ranks_; ++other)
        if (submitted_ - file_.rank(other).consumed.load() >= kCallsKept) return false;
      return true;
  }
}

bool Traffic::publish(const std::shared_ptr<Work>& work, const Call& call, Trouble* trouble) {
  const Signature& signature = call.signature;
  const int peer = call.peer;
  Record record{.signature = signature, .scalar = call.scalar, .payload = 0};
  if (!call.pairwise()) {
    if (!put_payload(call, submitted_, record, trouble)) return false;
    RankPart& mine = file_.rank(rank_);
    mine.calls[submitted_ % kCallsKept] = record;
    collectives_.push_back({work, call, submitted_});
    mine.submitted.store(++submitted_);
  } else if (signature.kind == Kind::kSend) {
    if (!put_payload(call, sent_[peer], record, trouble)) return false;
    PairPart& pair = file_.pair(rank_, peer);
    pair.sends[sent_[peer] % kPairCallsKept] = record;
    sends_[peer].push_back({work, call, sent_[peer]});
    pair.sent.store(++sent_[peer]);
  } else {
    PairPart& pair = file_.pair(peer, rank_);
    pair.receives[posted_[peer] % kPairCallsKept] = record;
    receives_[peer].push_back({work, call, posted_[peer]});
    pair.posted.store(++posted_[peer]);
  }
  file_.changed();
  return true;
}

bool Traffic::put_payload(const Call& call, uint64_t number, Record& record, Trouble* trouble) {
  const uint64_t bytes = source_bytes(call.signature, rank_, ranks_);
  std::vector<char> asked;
  const void* source = call.source;
  if (!computes()) {
    if (bytes == 0 || bytes > kMostTold || call.device_scalar) return true;
    asked.resize(bytes);
    if (!control()->ask(reinterpret_cast<CUdeviceptr>(source), asked.data(), bytes)) return true;
    source = asked.data();
  }
  drop_payloads();
  record.told = 1;
  if (call.device_scalar) record.scalar = read_scalar(call.signature.type, call.device_scalar);
  if (bytes == 0) return true;
  if (next_payload_ + bytes > kPayloadBytes) next_payload_ = 0;
  const uint64_t end = next_payload_ + bytes;
  const bool full = std::any_of(payloads_.begin(), payloads_.end(), [&](const Payload& other) {
    return other.offset < end && next_payload_ < other.offset + other.bytes;
  });
  if (full || bytes > kPayloadBytes) {
    *trouble = {ncclSystemError, "more than 64 GiB are on their way from rank " + std::to_string(rank_)};
    return false;
  }
  record.payload = next_payload_;
  trouble->result = ncclSystemError;
  if (!file_.write(rank_, record.payload, source, bytes, &trouble->why)) return false;
  payloads_.push_back({call.peer, number, record.payload, bytes});
  next_payload_ = aligned(end);
  return true;
}

// What everybody has read.
void Traffic::drop_payloads() {
  uint64_t consumed = UINT64_MAX;
  for (int other = 0; other < ranks_; ++other)
    consumed = std::min(consumed, file_.rank(other).consumed.load());
  std::erase_if(payloads_, [&](const Payload& payload) {
    const uint64_t read =
        payload.peer == kNoRoot ? consumed : file_.pair(rank_, payload.peer).received.load();
    if (payload.number >= read) return false;
    file_.forget(rank_, payload.offset, payload.bytes);
    return true;
  });
}

bool Traffic::all_joined(const Part& part) const {
  for (int other = 0; other < ranks_; ++other)
    if (file_.rank(other).submitted.load() <= part.number) return false;
  return true;
}

bool Traffic::agrees(const Part& part, Trouble* trouble) const {
  const Signature& mine = part.call.signature;
  for (int other = 0; other < ranks_; ++other) {
    const Signature theirs = file_.rank(other).calls[part.number % kCallsKept].signature;
    if (theirs == mine) continue;
    *trouble = {ncclInvalidUsage, number_text(part.number) + " differs between its ranks: rank " +
                                      std::to_string(rank_) + " called " + describe(mine) + ", rank " +
                                      std::to_string(other) + " called " + describe(theirs)};
    return false;
  }
  return true;
}

bool Traffic::agrees(const Part& part, const Signature& theirs, Trouble* trouble) const {
  const Signature& mine = part.call.signature;
  if (theirs.type == mine.type && theirs.count == mine.count) return true;
  const int peer = part.call.peer;
  const bool sends = mine.kind == Kind::kSend;
  *trouble = {ncclInvalidUsage, pair_text(sends ? rank_ : peer, sends ? peer : rank_, part.number) +
                                    " of communicator " + file_.place().name + " differs: rank " +
                                    std::to_string(rank_) + " called " + describe(mine) + ", rank " +
                                    std::to_string(peer) + " called " + describe(theirs)};
  return false;
}

bool Traffic::progress(Trouble* trouble) {
  bool any = false;
  bool well = finish_collectives(&any, trouble);
  for (int peer = 0; well && peer < ranks_; ++peer)
    well = finish_sends(peer, trouble) && finish_receives(peer, &any, trouble);
  if (any) file_.changed();  // there is room for more
  return well;
}

bool Traffic::finish_collectives(bool* any, Trouble* trouble) {
  for (; !collectives_.empty() && all_joined(collectives_.front()); collectives_.pop_front()) {
    const Part& part = collectives_.front();
    if (!agrees(part, trouble) || !move(part, trouble)) return false;
    file_.rank(rank_).consumed.store(part.number + 1);
    --part.work->left;
    *any = true;
  }
  return true;
}

bool Traffic::finish_sends(int to, Trouble* trouble) {
  auto& parts = sends_[to];
  PairPart& pair = file_.pair(rank_, to);
  for (; !parts.empty() && pair.posted.load() > parts.front().number; parts.pop_front()) {
    const Part& part = parts.front();
    if (!agrees(part, pair.receives[part.number % kPairCallsKept].signature, trouble)) return false;
    pair.send_checked.store(part.number + 1);
    --part.work->left;
  }
  return true;
}

bool Traffic::finish_receives(int from, bool* any, Trouble* trouble) {
  auto& parts = receives_[from];
  PairPart& pair = file_.pair(from, rank_);
  for (; !parts.empty() && pair.sent.load() > parts.front().number; parts.pop_front()) {
    const Part& part = parts.front();
    if (!agrees(part, pair.sends[part.number % kPairCallsKept].signature, trouble)) return false;
    if (!move(part, trouble)) return false;
    pair.received.store(part.number + 1);
    --part.work->left;
    *any = true;
  }
  return true;
}

// All ranks that send something have shown it.
bool Traffic::all_told(const Part& part) const {
  const Signature& signature = part.call.signature;
  if (part.call.pairwise())
    return file_.pair(part.call.peer, rank_).sends[part.number % kPairCallsKept].told != 0;
  for (int from = 0; from < ranks_; ++from)
    if (source_bytes(signature, from, ranks_) > 0 && !file_.rank(from).calls[part.number % kCallsKept].told)
      return false;
  return true;
}

// In null mode only bytes that are known move.
bool Traffic::move(Part part, Trouble* trouble) {
  const bool message = part.call.pairwise();
  if (computes()) return message ? move_message(part, trouble) : move_collective(part, trouble);
  const uint64_t bytes = target_bytes(part.call.signature, rank_, ranks_);
  if (bytes == 0) return true;
  const auto target = reinterpret_cast<CUdeviceptr>(part.call.target);
  if (bytes > kMostTold || !all_told(part)) return control()->tell(target, nullptr, bytes), true;
  std::vector<char> out(bytes);
  part.call.target = out.data();
  if (!(message ? move_message(part, trouble) : move_collective(part, trouble))) return false;
  control()->tell(target, out.data(), bytes);
  return true;
}

bool Traffic::read(int from, uint64_t payload, void* out, uint64_t bytes, Trouble* trouble) const {
  trouble->result = ncclSystemError;
  return bytes == 0 || file_.read(from, payload, out, bytes, &trouble->why);
}

bool Traffic::copy_part(const Part& part, int from, uint64_t offset, uint64_t bytes, uint64_t to,
                        Trouble* trouble) {
  const uint64_t payload = file_.rank(from).calls[part.number % kCallsKept].payload;
  return read(from, payload + offset, static_cast<char*>(part.call.target) + to, bytes, trouble);
}

bool Traffic::move_collective(const Part& part, Trouble* trouble) {
  const Signature& signature = part.call.signature;
  const uint64_t bytes = signature.count * element_bytes(signature.type);
  const auto place = static_cast<uint64_t>(rank_) * bytes;
  const bool is_root = rank_ == signature.root;
  switch (signature.kind) {
    case Kind::kBroadcast:
      return copy_part(part, signature.root, 0, bytes, 0, trouble);
    case Kind::kScatter:
      return copy_part(part, signature.root, place, bytes, 0, trouble);
    case Kind::kAllGather:
    case Kind::kAlltoAll:
    case Kind::kGather: {
      if (signature.kind == Kind::kGather && !is_root) return true;
      const uint64_t offset = signature.kind == Kind::kAlltoAll ? place : 0;
      for (int from = 0; from < ranks_; ++from)
        if (!copy_part(part, from, offset, bytes, static_cast<uint64_t>(from) * bytes, trouble)) return false;
      return true;
    }
    default:
      return signature.kind == Kind::kReduce && !is_root ? true : move_reduction(part, trouble);
  }
}

// In pieces, so that a large tensor takes little memory of the host.
bool Traffic::move_reduction(const Part& part, Trouble* trouble) {
  constexpr uint64_t kPiece = uint64_t{1} << 18;
  const Signature& signature = part.call.signature;
  const uint64_t size = element_bytes(signature.type);
  const uint64_t first =
      signature.kind == Kind::kReduceScatter ? static_cast<uint64_t>(rank_) * signature.count : 0;
  std::vector<char> bytes(std::min(kPiece, signature.count) * size);
  for (uint64_t done = 0; done < signature.count; done += kPiece) {
    const uint64_t count = std::min(kPiece, signature.count - done);
    const auto sum = make_accumulator(signature.type, signature.reduction, count);
    for (int from = 0; from < ranks_; ++from) {
      const Record& record = file_.rank(from).calls[part.number % kCallsKept];
      if (!read(from, record.payload + (first + done) * size, bytes.data(), count * size, trouble))
        return false;
      sum->add(bytes.data(), record.scalar);
    }
    sum->finish(static_cast<char*>(part.call.target) + done * size, ranks_);
  }
  return true;
}

bool Traffic::move_message(const Part& part, Trouble* trouble) {
  const uint64_t bytes = part.call.signature.count * element_bytes(part.call.signature.type);
  const Record& record = file_.pair(part.call.peer, rank_).sends[part.number % kPairCallsKept];
  return read(part.call.peer, record.payload, part.call.target, bytes, trouble);
}

bool Traffic::lost(int peer) const {
  const RankPart& part = file_.rank(peer);
  return part.presence.load() == Presence::kLeft || !is_alive(part.process.load());
}

// The counters are read after the rank was found to be gone: they do not change any more.
int Traffic::missing_rank(std::string* from_what) const {
  for (int peer = 0; peer < ranks_; ++peer) {
    const bool waits_for_message = !sends_[peer].empty() || !receives_[peer].empty();
    if (peer == rank_ || (collectives_.empty() && !waits_for_message) || !lost(peer)) continue;
    if (!collectives_.empty() && file_.rank(peer).submitted.load() <= collectives_.back().number) {
      const auto first = std::find_if(collectives_.begin(), collectives_.end(), [&](const Part& part) {
        return file_.rank(peer).submitted.load() <= part.number;
      });
      *from_what = describe(first->call.signature) + ", " + number_text(first->number);
      return peer;
    }
    if (!sends_[peer].empty() && file_.pair(rank_, peer).posted.load() <= sends_[peer].back().number) {
      *from_what = "receiving " + pair_text(rank_, peer, sends_[peer].back().number);
      return peer;
    }
    if (!receives_[peer].empty() && file_.pair(peer, rank_).sent.load() <= receives_[peer].back().number) {
      *from_what = "sending " + pair_text(peer, rank_, receives_[peer].back().number);
      return peer;
    }
  }
  return -1;
}

bool Traffic::idle() const {
  const auto empty = [](const std::deque<Part>& parts) { return parts.empty(); };
  return collectives_.empty() && std::all_of(sends_.begin(), sends_.end(), empty) &&
         std::all_of(receives_.begin(), receives_.end(), empty);
}

void Traffic::drop_all() {
  collectives_.clear();
  for (auto& parts : sends_) parts.clear();
  for (auto& parts : receives_) parts.clear();
}

}  // namespace spillway::nccl
