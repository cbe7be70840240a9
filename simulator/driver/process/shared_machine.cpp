#include "simulator/driver/process/shared_machine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "simulator/driver/machine/config.h"

namespace spillway::simulator {

static_assert(kMachineCards == kMaxDevices);

namespace {

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

void raise(uint64_t& field, uint64_t value) {
  if (value > load(field)) store(field, value);
}

struct flock whole_file(short type) {
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  return range;
}

bool set_lock(int descriptor, short type) {
  struct flock range = whole_file(type);
  while (fcntl(descriptor, F_SETLKW, &range) != 0)
    if (errno != EINTR) return false;
  return true;
}

// A file that anybody may name can be locked by anybody, for ever. Returns "" or what is wrong.
std::string lock_in_time(int descriptor) {
  constexpr int kTries = 500;
  constexpr timespec kPause = {0, 10'000'000};
  struct flock range = whole_file(F_WRLCK);
  for (int i = 0; i < kTries; ++i) {
    if (fcntl(descriptor, F_SETLK, &range) == 0) return "";
    if (errno != EAGAIN && errno != EACCES && errno != EINTR)
      return std::string(" cannot be locked: ") + std::strerror(errno);
    nanosleep(&kPause, nullptr);
  }
  const bool known = fcntl(descriptor, F_GETLK, &range) == 0 && range.l_type != F_UNLCK && range.l_pid > 0;
  return " has been locked for 5 s by " +
         (known ? "process " + std::to_string(range.l_pid) : "another process") +
         ": end that one, or name another file";
}

}  // namespace

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
  if (descriptor_ < 0) return where + " cannot be opened: " + std::strerror(errno);
  std::string wrong = lock_in_time(descriptor_);
  if (wrong.empty()) {
    wrong = map();
    if (wrong.empty()) wrong = take_entry();
    set_lock(descriptor_, F_UNLCK);
  }
  if (wrong.empty()) return "";
  close();
  return where + wrong;
}

std::string SharedMachine::map() {
  constexpr const char* kOther = " is no machine of this simulator: name an empty file";
  struct stat status = {};
  if (fstat(descriptor_, &status) != 0) return std::string(" cannot be read: ") + std::strerror(errno);
  const bool is_new = status.st_size == 0;
  if (is_new && ftruncate(descriptor_, sizeof(MachineFile)) != 0)
    return std::string(" cannot be written: ") + std::strerror(errno);
  if (!is_new && static_cast<uint64_t>(status.st_size) != sizeof(MachineFile)) return kOther;
  void* mapped = mmap(nullptr, sizeof(MachineFile), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (mapped == MAP_FAILED) return std::string(" cannot be mapped: ") + std::strerror(errno);
  file_ = static_cast<MachineFile*>(mapped);
  if (is_new) {
    file_->magic = kMachineMagic;
    file_->size = sizeof(MachineFile);
  }
  return file_->magic == kMachineMagic && file_->size == sizeof(MachineFile) ? "" : kOther;
}

void SharedMachine::close() {
  if (file_) munmap(file_, sizeof(MachineFile));
  ::close(descriptor_);
  file_ = nullptr;
  entry_ = nullptr;
  descriptor_ = -1;
}

std::span<MachineFile::Process> SharedMachine::taken() const {
  return {file_->processes, std::min<size_t>(load(file_->places), kMachineProcesses)};
}

std::string SharedMachine::take_entry() {
  const ProcessIdentity self = this_process();
  forget_the_dead();
  // The program that became this one: the process is the same, and so is what it needed.
  for (MachineFile::Process& one : taken()) {
    if (load(one.id) != self.id || load(one.ended) != 0) continue;
    entry_ = &one;
    for (MachineFile::Use& use : one.uses) store(use.charged_bytes, 0);
    return "";
  }
  entry_ = free_entry();
  if (!entry_)
    return " has no room for more than " + std::to_string(kMachineProcesses) + " processes at once";
  for (MachineFile::Use& use : entry_->uses)
    for (uint64_t* field : {&use.charged_bytes, &use.peak_bytes, &use.allocator_at_peak_bytes,
                            &use.outside_peak_bytes, &use.refused, &use.refused_bytes, &use.ordinal})
      store(*field, 0);
  store(entry_->start, self.start);
  store(entry_->ended, 0);
  store(entry_->id, self.id);
  return "";
}

MachineFile::Process* SharedMachine::free_entry() {
  const std::span<MachineFile::Process> all = taken();
  if (all.size() < kMachineProcesses) {
    store(file_->places, all.size() + 1);
    return &file_->processes[all.size()];
  }
  for (MachineFile::Process& one : all) {
    if (load(one.ended) == 0) continue;
    fold(one);
    return &one;
  }
  return nullptr;
}

// What an ended process needed goes into the cards' figures.
void SharedMachine::fold(const MachineFile::Process& ended) {
  for (size_t card = 0; card < kMachineCards; ++card) {
    const uint64_t peak = load(ended.uses[card].peak_bytes), refused = load(ended.uses[card].refused);
    if (peak == 0 && refused == 0) continue;
    MachineFile::Card& sums = file_->cards[card];
    store(sums.gone, sum(load(sums.gone), 1));
    raise(sums.gone_peak_bytes, peak);
    store(sums.gone_refused, sum(load(sums.gone_refused), refused));
  }
}

void SharedMachine::describe(int card, int ordinal, uint64_t capacity_bytes, std::string_view kind) {
  store(file_->cards[card].capacity_bytes, capacity_bytes);
  store(entry_->uses[card].ordinal, static_cast<uint64_t>(ordinal));
  if (kind.size() < sizeof file_->kind) kind.copy(file_->kind, kind.size());
}

uint64_t SharedMachine::others_bytes(int card) const {
  uint64_t bytes = 0;
  for (const MachineFile::Process& one : taken())
    if (&one != entry_ && load(one.ended) == 0) bytes = sum(bytes, load(one.uses[card].charged_bytes));
  return bytes;
}

void SharedMachine::forget_the_dead() {
  for (MachineFile::Process& one : taken()) {
    if (load(one.ended) != 0 || is_alive({load(one.id), load(one.start)})) continue;
    for (MachineFile::Use& use : one.uses) store(use.charged_bytes, 0);
    store(one.ended, 1);
  }
}

std::vector<Share> SharedMachine::shares(int card) const {
  std::vector<Share> found;
  for (const MachineFile::Process& one : taken()) {
    const ProcessIdentity process{load(one.id), load(one.start)};
    const uint64_t bytes = load(one.uses[card].charged_bytes);
    if (load(one.ended) == 0 && bytes > 0 && is_alive(process)) found.push_back({process.id, bytes});
  }
  return found;
}

void SharedMachine::publish(int card, uint64_t bytes, uint64_t allocator_bytes) {
  MachineFile::Use& use = entry_->uses[card];
  store(use.charged_bytes, bytes);
  raise(use.outside_peak_bytes, bytes - allocator_bytes);
  if (bytes >= load(use.peak_bytes)) store(use.allocator_at_peak_bytes, allocator_bytes);
  raise(use.peak_bytes, bytes);
  raise(file_->cards[card].peak_bytes, sum(bytes, others_bytes(card)));
}

void SharedMachine::refused(int card, uint64_t bytes) {
  MachineFile::Use& use = entry_->uses[card];
  if (load(use.refused) == 0) store(use.refused_bytes, bytes);
  store(use.refused, sum(load(use.refused), 1));
}

uint64_t SharedMachine::peak_bytes(int card) const {
  return load(file_->cards[card].peak_bytes);
}

}  // namespace spillway::simulator
