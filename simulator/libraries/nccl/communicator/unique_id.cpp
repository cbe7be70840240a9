#include "simulator/libraries/nccl/communicator/unique_id.h"

#include <sys/random.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace spillway::nccl {
namespace {

constexpr char kMagic[8] = {'S', 'P', 'W', 'N', 'C', 'C', 'L', 'I'};

struct Contents {
  char magic[8];
  uint64_t random[2];
  ProcessIdentity creator;
  char folder[NCCL_UNIQUE_ID_BYTES - 8 - 16 - sizeof(ProcessIdentity)];
};
static_assert(sizeof(Contents) == NCCL_UNIQUE_ID_BYTES);

std::string name_of(uint64_t first, uint64_t second) {
  char text[48];
  std::snprintf(text, sizeof text, "nccl-%016" PRIx64 "%016" PRIx64, first, second);
  return text;
}

// FNV-1a.
uint64_t hash(const std::string& text, uint64_t seed) {
  uint64_t value = 0xcbf29ce484222325u ^ seed;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return value;
}

struct Numbers {
  uint64_t first, second;
};

Numbers derived_numbers(const Place& parent, const std::string& what) {
  const std::string text = parent.name + "/" + what;
  return {hash(text, 0), hash(text, 0x9e3779b97f4a7c15u)};
}

bool write_id(const std::string& folder, Numbers numbers, ncclUniqueId* out, std::string* why) {
  Contents contents = {};
  if (folder.size() >= sizeof contents.folder)
    return *why =
               "the folder's name is too long: set SPILLWAY_SIM_NCCL_FOLDER to a shorter one than " + folder,
           false;
  std::memcpy(contents.magic, kMagic, sizeof kMagic);
  contents.random[0] = numbers.first;
  contents.random[1] = numbers.second;
  contents.creator = this_process();
  std::memcpy(contents.folder, folder.c_str(), folder.size() + 1);
  std::memcpy(out->internal, &contents, sizeof contents);
  return true;
}

}  // namespace

bool make_unique_id(bool computes, ncclUniqueId* out, std::string* why) {
  const std::string folder = own_folder(computes, why);
  if (folder.empty()) return false;
  static std::once_flag swept;
  std::call_once(swept, [&] { sweep(folder); });
  Numbers numbers = {};
  if (getrandom(&numbers, sizeof numbers, 0) != sizeof numbers)
    return *why = "the system gives no random numbers", false;
  return write_id(folder, numbers, out, why);
}

bool make_derived_id(const Place& parent, const std::string& what, ncclUniqueId* out, std::string* why) {
  return write_id(parent.folder, derived_numbers(parent, what), out, why);
}

std::optional<Meeting> read_unique_id(const ncclUniqueId& id) {
  Contents contents;
  std::memcpy(&contents, id.internal, sizeof contents);
  const bool ended = std::memchr(contents.folder, 0, sizeof contents.folder) != nullptr;
  if (std::memcmp(contents.magic, kMagic, sizeof kMagic) != 0 || !ended) return std::nullopt;
  return Meeting{{contents.folder, name_of(contents.random[0], contents.random[1])}, contents.creator};
}

Place derived_place(const Place& parent, const std::string& what) {
  const Numbers numbers = derived_numbers(parent, what);
  return {parent.folder, name_of(numbers.first, numbers.second)};
}

}  // namespace spillway::nccl
