#include "simulator/driver/shared_machine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "simulator/driver/config.h"

namespace spillway::simulator {
namespace {

constexpr uint64_t kMagic = 0x314d53594c495053;  // "SPILYSM1"
constexpr size_t kEntries = 256;

uint64_t load(const uint64_t& field) {
  return std::atomic_ref(const_cast<uint64_t&>(field)).load(std::memory_order_relaxed);
}
void store(uint64_t& field, uint64_t value) {
  std::atomic_ref(field).store(value, std::memory_order_relaxed);
}

// Saturates: a file that somebody wrote to says what it wants.
uint64_t sum(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? UINT64_MAX : result;
}

// The state letter and the start time of a process; 0 if there is none.
uint64_t start_of(uint64_t id, char* state) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string line = text.str();
  const size_t name_end = line.rfind(')');  // a process may have any name
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  constexpr int kBetween = 18;  // fields between the state, the third, and the start time, the 22nd
  uint64_t start = 0;
  fields >> *state;
  for (int i = 0; i < kBetween; ++i) fields >> skipped;
  fields >> start;
  return fields ? start : 0;
}

bool set_lock(int descriptor, short type) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  while (fcntl(descriptor, F_SETLKW, &range) != 0)
    if (errno != EINTR) return false;
  return true;
}

}  // namespace

struct SharedMachine::File {
  struct Entry {
    uint64_t process = 0, start = 0;  // 0: free
    uint64_t charged_bytes[kMaxDevices] = {};
  };
  uint64_t magic = 0, size = 0;
  uint64_t peak_bytes[kMaxDevices] = {};
  Entry entries[kEntries];
};

Process this_process() {
  char state = 0;
  const auto id = static_cast<uint64_t>(getpid());
  return {id, start_of(id, &state)};
}

bool is_alive(const Process& process) {
  char state = 0;
  return process.start != 0 && start_of(process.id, &state) == process.start && state != 'Z' && state != 'X';
}

// Not the locks of open file descriptions: a forked child would hold those on after this process has died.
SharedMachine::Lock::Lock(const SharedMachine* machine) {
  if (machine && machine->is_open() && set_lock(machine->descriptor_, F_WRLCK))
    descriptor_ = machine->descriptor_;
}

SharedMachine::Lock::~Lock() {
  if (descriptor_ >= 0) set_lock(descriptor_, F_UNLCK);
}

std::string SharedMachine::open(const std::string& path) {
  const std::string where = "SPILLWAY_SIM_MACHINE: the file " + path;
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor_ < 0) return where + " can not be opened: " + std::strerror(errno);
  struct stat status = {};
  if (!set_lock(descriptor_, F_WRLCK) || fstat(descriptor_, &status) != 0)
    return where + " can not be locked: " + std::strerror(errno);
  const bool is_new = status.st_size == 0;
  if (is_new && ftruncate(descriptor_, sizeof(File)) != 0)
    return where + " can not be written: " + std::strerror(errno);
  if (!is_new && static_cast<uint64_t>(status.st_size) != sizeof(File))
    return where + " is no machine of this simulator: name an empty file";
  void* mapped = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (mapped == MAP_FAILED) return where + " can not be mapped: " + std::strerror(errno);
  auto* file = static_cast<File*>(mapped);
  if (is_new) {
    file->magic = kMagic;
    file->size = sizeof(File);
  }
  if (file->magic != kMagic || file->size != sizeof(File)) {
    munmap(mapped, sizeof(File));
    return where + " is no machine of this simulator: name an empty file";
  }
  file_ = file;
  const std::string wrong = take_entry();
  set_lock(descriptor_, F_UNLCK);
  return wrong.empty() ? "" : where + wrong;
}

std::string SharedMachine::take_entry() {
  const Process self = this_process();
  forget_the_dead();
  size_t chosen = kEntries;
  for (size_t i = kEntries; i-- > 0;) {
    const File::Entry& entry = file_->entries[i];
    if (load(entry.process) == 0) chosen = i;
  }
  for (size_t i = 0; i < kEntries; ++i)  // the program that became this one
    if (load(file_->entries[i].process) == self.id) chosen = i;
  if (chosen == kEntries) return " has no room for more than " + std::to_string(kEntries) + " processes";
  entry_ = chosen;
  for (uint64_t& bytes : file_->entries[chosen].charged_bytes) store(bytes, 0);
  store(file_->entries[chosen].start, self.start);
  store(file_->entries[chosen].process, self.id);
  return "";
}

uint64_t SharedMachine::others_bytes(int card) const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < kEntries; ++i)
    if (i != entry_ && load(file_->entries[i].process) != 0)
      bytes = sum(bytes, load(file_->entries[i].charged_bytes[card]));
  return bytes;
}

void SharedMachine::forget_the_dead() {
  for (File::Entry& entry : file_->entries) {
    const Process process{load(entry.process), load(entry.start)};
    if (process.id != 0 && !is_alive(process)) store(entry.process, 0);
  }
}

std::vector<Share> SharedMachine::shares(int card) const {
  std::vector<Share> found;
  for (const File::Entry& entry : file_->entries) {
    const Process process{load(entry.process), load(entry.start)};
    const uint64_t bytes = load(entry.charged_bytes[card]);
    if (process.id != 0 && bytes > 0 && is_alive(process)) found.push_back({process.id, bytes});
  }
  return found;
}

void SharedMachine::publish(int card, uint64_t bytes) {
  store(file_->entries[entry_].charged_bytes[card], bytes);
  uint64_t& peak = file_->peak_bytes[card];
  const uint64_t now = sum(bytes, others_bytes(card));
  if (now > load(peak)) store(peak, now);
}

uint64_t SharedMachine::peak_bytes(int card) const {
  return load(file_->peak_bytes[card]);
}

}  // namespace spillway::simulator
