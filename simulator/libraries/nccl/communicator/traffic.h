// What one rank calls and what has become of it: writes its calls where the others see them, and finishes
// those that everybody has joined: compares them, and in computing mode moves the bytes.
//
// Thread-safety: none of its own: the communicator's lock. Ownership: holds the works whose calls are not
// done. Errors: a Trouble, after which nothing more is done here. Units: bytes.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "simulator/libraries/nccl/communicator/shared_file.h"
#include "simulator/libraries/nccl/communicator/work.h"

namespace spillway::nccl {

struct Trouble {
  ncclResult_t result = ncclSuccess;
  std::string why;
};

class Traffic {
 public:
  Traffic(SharedFile& file, int rank);

  // Whether the slowest rank, or the peer, is near enough for one more such call.
  bool has_room(const Call& call) const;
  // Shows the call to the others. The work waits for it until `progress` finds that they came.
  bool publish(const std::shared_ptr<Work>& work, const Call& call, Trouble* trouble);
  // Finishes what can be finished.
  bool progress(Trouble* trouble);
  // The first rank that will never join a call of this one, and what it is missing from; -1: none.
  int missing_rank(std::string* from_what) const;
  bool idle() const;
  void drop_all();

 private:
  struct Part {
    std::shared_ptr<Work> work;
    Call call;
    uint64_t number;
  };
  struct Payload {
    int peer;  // kNoRoot: of a collective
    uint64_t number, offset, bytes;
  };

  bool put_payload(const Call& call, uint64_t number, Record& record, Trouble* trouble);
  bool all_told(const Part& part) const;
  bool move(Part part, Trouble* trouble);
  void drop_payloads();

  bool all_joined(const Part& part) const;
  bool agrees(const Part& part, Trouble* trouble) const;
  bool agrees(const Part& part, const Signature& theirs, Trouble* trouble) const;
  bool finish_collectives(bool* any, Trouble* trouble);
  bool finish_sends(int to, Trouble* trouble);
  bool finish_receives(int from, bool* any, Trouble* trouble);
  bool move_collective(const Part& part, Trouble* trouble);
  bool move_reduction(const Part& part, Trouble* trouble);
  bool move_message(const Part& part, Trouble* trouble);
  bool copy_part(const Part& part, int from, uint64_t offset, uint64_t bytes, uint64_t to, Trouble* trouble);
  bool read(int from, uint64_t payload, void* out, uint64_t bytes, Trouble* trouble) const;
  bool lost(int peer) const;
  std::string number_text(uint64_t number) const;

  SharedFile& file_;
  int rank_, ranks_;
  uint64_t submitted_ = 0;
  std::vector<uint64_t> sent_, posted_;  // by peer
  std::deque<Part> collectives_;
  std::vector<std::deque<Part>> sends_, receives_;  // by peer
  std::deque<Payload> payloads_;
  uint64_t next_payload_ = 0;
};

}  // namespace spillway::nccl
