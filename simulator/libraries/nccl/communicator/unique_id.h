// ncclUniqueId: where the ranks of a communicator meet, and who said so.
//
// Thread-safety: values. Ownership: none. Errors: words in `why`. Units: none.
#pragma once
#include <nccl.h>

#include <optional>
#include <string>

#include "base/process_identity.h"
#include "simulator/libraries/nccl/communicator/shared_file.h"

namespace spillway::nccl {

struct Meeting {
  Place place;
  ProcessIdentity creator;
};

bool make_unique_id(bool computes, ncclUniqueId* out, std::string* why);
// None for bytes that no `make_unique_id` wrote.
std::optional<Meeting> read_unique_id(const ncclUniqueId& id);

// The place of a communicator that ranks of another one make together, and the id that brings new ranks
// there.
Place derived_place(const Place& parent, const std::string& what);
bool make_derived_id(const Place& parent, const std::string& what, ncclUniqueId* out, std::string* why);

}  // namespace spillway::nccl
