#include "processes/ledger_segment.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/interprocess/file_mapping.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <thread>

namespace spillway::ledger {
namespace {

namespace ipc = boost::interprocess;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kMadeByNow = milliseconds(200);
constexpr int kTries = 3;

struct Opened {
  Region region;
  bool replace = false;  // another layout, or what is left of one
};

bool refuse(int code, std::string* why_not) {
  *why_not =
      std::to_string(sizeof(Segment)) + " bytes of shared memory: " + std::generic_category().message(code);
  return false;
}

// A file larger than the process may write would end it by a signal.
bool set_size(int descriptor, std::string* why_not) {
  rlimit most{};
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < sizeof(Segment)) return refuse(EFBIG, why_not);
  return ::ftruncate(descriptor, sizeof(Segment)) == 0 || refuse(errno, why_not);
}

// All of its memory, whoever made it: a store to what a full file system has no page for would end the
// process by a signal.
bool take_memory(int descriptor, std::string* why_not) {
  while (::fallocate(descriptor, 0, 0, sizeof(Segment)) != 0) {
    if (errno == EINTR) continue;
    return errno == EOPNOTSUPP || refuse(errno, why_not);
  }
  return true;
}

void make(Segment& segment) {
  segment.layout = kLayout;
  segment.bytes = sizeof(Segment);
  segment.magic.store(kMagic, std::memory_order_release);
}

bool wait_until_made(const Segment& segment) {
  const Clock::time_point deadline = Clock::now() + kMadeByNow;
  while (segment.magic.load(std::memory_order_acquire) != kMagic) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return segment.layout == kLayout && segment.bytes == sizeof(Segment);
}

// The one that makes it is the one whose creation succeeds; the others wait for it a moment.
Opened open_once(const std::string& name, std::string* why_not) {
  Opened opened;
  try {
    bool made = true;
    std::unique_ptr<ipc::shared_memory_object> memory;
    try {
      memory = std::make_unique<ipc::shared_memory_object>(ipc::create_only, name.c_str(), ipc::read_write,
                                                           ipc::permissions(0600));
      const int descriptor = memory->get_mapping_handle().handle;
      if (!set_size(descriptor, why_not) || !take_memory(descriptor, why_not)) {
        ipc::shared_memory_object::remove(name.c_str());
        return opened;
      }
    } catch (const ipc::interprocess_exception& error) {
      if (error.get_error_code() != ipc::already_exists_error) throw;
      made = false;
      memory = std::make_unique<ipc::shared_memory_object>(ipc::open_only, name.c_str(), ipc::read_write);
    }
    if (!is_this_users(memory->get_mapping_handle().handle, why_not)) return opened;
    ipc::offset_t size = 0;
    for (const Clock::time_point deadline = Clock::now() + kMadeByNow;
         memory->get_size(size) && size == 0 && Clock::now() < deadline;)
      std::this_thread::sleep_for(milliseconds(1));
    if (size != static_cast<ipc::offset_t>(sizeof(Segment))) {
      opened.replace = true;
      return opened;
    }
    if (!take_memory(memory->get_mapping_handle().handle, why_not)) return opened;
    opened.region = std::make_unique<ipc::mapped_region>(*memory, ipc::read_write, 0, sizeof(Segment));
    Segment& segment = segment_in(opened.region);
    if (made) make(segment);
    opened.replace = !made && !wait_until_made(segment);
  } catch (const ipc::interprocess_exception& error) {
    *why_not = std::string("no shared memory: ") + error.what();
    opened.region.reset();
  }
  return opened;
}

// A ledger in a file, which is never made anew: it is another process's. Null: `why_not`.
Region open_file(const std::string& path, std::string* why_not) {
  try {
    const ipc::file_mapping file(path.c_str(), ipc::read_write);
    const int descriptor = file.get_mapping_handle().handle;
    if (!is_this_users(descriptor, why_not)) return nullptr;
    struct stat status{};
    if (::fstat(descriptor, &status) == 0 && status.st_size == static_cast<off_t>(sizeof(Segment))) {
      if (!take_memory(descriptor, why_not)) return nullptr;
      auto region = std::make_unique<ipc::mapped_region>(file, ipc::read_write, 0, sizeof(Segment));
      if (wait_until_made(segment_in(region))) return region;
    }
    *why_not = path + " is no ledger of this version";
  } catch (const ipc::interprocess_exception& error) {
    *why_not = path + ": " + error.what();
  }
  return nullptr;
}

// Of all segments together: by which process of this program, which an exec ends and a fork doubles.
std::array<std::atomic<pid_t>, kSlots> claimed_by{};

void clear(Slot& slot) {
  slot.number.store(0);
  for (Answer& answer : slot.answered) answer.number.store(0);
  slot.shown.version.store(0);
}

}  // namespace

bool is_this_users(int descriptor, std::string* why_not) {
  struct stat status{};
  if (::fstat(descriptor, &status) == 0 && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0)
    return true;
  *why_not = "the shared memory of that name belongs to another user, or others may use it";
  return false;
}

Region open_segment(const std::string& name, std::string* why_not) {
  if (is_path(name)) return open_file(name, why_not);
  for (int tried = 0; tried < kTries; ++tried) {
    Opened opened = open_once(name, why_not);
    if (!opened.replace) return std::move(opened.region);
    ipc::shared_memory_object::remove(name.c_str());
  }
  *why_not = "the shared memory of that name is no ledger, and could not be replaced";
  return nullptr;
}

// An exec keeps the process, so that its slot stays alive, with nobody who answers.
size_t claim_slot(Segment& segment) {
  const uint64_t self = packed(this_process());
  const pid_t id = ::getpid();
  for (const bool replaced : {true, false}) {
    for (size_t i = 0; i < kSlots; ++i) {
      Slot& slot = segment.slots[i];
      uint64_t owner = slot.owner.load();
      if ((replaced ? owner != self : lives(owner)) || claimed_by[i].exchange(id) == id) continue;
      if (slot.owner.compare_exchange_strong(owner, self)) {
        clear(slot);
        return i;
      }
      claimed_by[i].store(0);
    }
  }
  return kSlots;
}

void give_up_slot(Segment& segment, size_t slot) {
  segment.slots[slot].owner.store(0);
  claimed_by[slot].store(0);
}

}  // namespace spillway::ledger

namespace spillway {

uint64_t ledger_bytes() {
  return sizeof(ledger::Segment);
}

bool make_ledger(const std::string& path, std::string* why_not) {
  try {
    const boost::interprocess::file_mapping file(path.c_str(), boost::interprocess::read_write);
    const int descriptor = file.get_mapping_handle().handle;
    if (::fchmod(descriptor, 0600) != 0) return ledger::refuse(errno, why_not);
    if (!ledger::set_size(descriptor, why_not) || !ledger::take_memory(descriptor, why_not)) return false;
    const ledger::Region region = std::make_unique<boost::interprocess::mapped_region>(
        file, boost::interprocess::read_write, 0, sizeof(ledger::Segment));
    ledger::make(ledger::segment_in(region));
    return true;
  } catch (const boost::interprocess::interprocess_exception& error) {
    *why_not = error.what();
    return false;
  }
}

// Processes whose ids mean nothing to each other, and versions with other layouts, have ledgers of their own.
std::string ledger_name() {
  const char* named = std::getenv("SPILLWAY_LEDGER");
  if (named != nullptr && *named != '\0') return std::string_view(named) == "off" ? "" : named;
  struct stat pids{};
  const uint64_t space = ::stat("/proc/self/ns/pid", &pids) == 0 ? pids.st_ino : 0;
  return "spillway-ledger-" + std::to_string(::geteuid()) + "-" + std::to_string(space) + "-" +
         std::to_string(ledger::kLayout);
}

}  // namespace spillway
