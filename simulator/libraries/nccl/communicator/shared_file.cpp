#include "simulator/libraries/nccl/communicator/shared_file.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <map>

#include "base/mutex.h"

namespace spillway::nccl {
namespace {

constexpr char kMagic[8] = {'S', 'P', 'W', 'N', 'C', 'C', 'L', '1'};
constexpr uint64_t kHeaderBytes = 4096;
static_assert(sizeof(FileHeader) <= kHeaderBytes);

uint64_t shared_bytes(int ranks) {
  const auto count = static_cast<uint64_t>(ranks);
  const uint64_t bytes = kHeaderBytes + count * sizeof(RankPart) + count * count * sizeof(PairPart);
  return (bytes + 4095) / 4096 * 4096;
}

uint64_t file_bytes(int ranks) {
  return shared_bytes(ranks) + static_cast<uint64_t>(ranks) * kPayloadBytes;
}

std::string system_error(const std::string& what) {
  return what + ": " + std::strerror(errno);
}

// Ranks in one process have one mapping.
Mutex<LockOrder::kNcclFiles> open_mutex;
std::map<std::string, std::weak_ptr<SharedFile>>& open_files() SPILLWAY_REQUIRES(open_mutex) {
  static auto* const files = new std::map<std::string, std::weak_ptr<SharedFile>>;
  return *files;
}

bool write_header(int descriptor, int ranks, bool computes) {
  struct {
    char magic[8];
    int32_t ranks, computes;
    ProcessIdentity creator;
  } start = {{}, ranks, computes, this_process()};
  std::memcpy(start.magic, kMagic, sizeof kMagic);
  return pwrite(descriptor, &start, sizeof start, 0) == static_cast<ssize_t>(sizeof start);
}

// Makes the file under another name first, so that nobody sees it half made. False: `why`, or somebody was
// faster.
bool make(const std::string& path, int ranks, bool computes, std::string* why) {
  const std::string draft = path + "." + std::to_string(getpid()) + "." + std::to_string(gettid());
  const int descriptor = ::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return *why = system_error("cannot make " + draft), false;
  const bool made = ftruncate(descriptor, static_cast<off_t>(file_bytes(ranks))) == 0 &&
                    write_header(descriptor, ranks, computes) &&
                    (link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
  if (!made) *why = system_error("cannot make " + path);
  ::unlink(draft.c_str());
  ::close(descriptor);
  return made;
}

}  // namespace

std::shared_ptr<SharedFile> SharedFile::map(const Place& place, int descriptor, int ranks, std::string* why) {
  const uint64_t bytes = shared_bytes(ranks);
  FileHeader start{};
  struct stat status{};
  const ssize_t read = pread(descriptor, &start, sizeof start.magic + 2 * sizeof(int32_t), 0);
  if (read < static_cast<ssize_t>(sizeof start.magic + 2 * sizeof(int32_t)) ||
      std::memcmp(start.magic, kMagic, sizeof kMagic) != 0 || fstat(descriptor, &status) != 0 ||
      (start.ranks == ranks && status.st_size < static_cast<off_t>(file_bytes(ranks)))) {
    *why = place.folder + "/" + place.name + " is damaged: remove it and start all ranks again";
    ::close(descriptor);
    return nullptr;
  }
  if (start.ranks != ranks) {
    *why = "the ranks do not agree on their number: this one says " + std::to_string(ranks) +
           ", another one " + std::to_string(start.ranks);
    ::close(descriptor);
    return nullptr;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    *why = system_error("cannot map " + place.folder + "/" + place.name);
    ::close(descriptor);
    return nullptr;
  }
  return std::shared_ptr<SharedFile>(new SharedFile(place, descriptor, memory, bytes));
}

std::shared_ptr<SharedFile> SharedFile::open(const Place& place, int ranks, bool computes, std::string* why) {
  const std::string path = place.folder + "/" + place.name;
  const Locked lock(open_mutex);
  std::shared_ptr<SharedFile> file = open_files()[path].lock();
  if (!file) {
    int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) {
      if (!make(path, ranks, computes, why)) return nullptr;
      descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    }
    if (descriptor < 0) return *why = system_error("cannot open " + path), nullptr;
    file = map(place, descriptor, ranks, why);
    if (!file) return nullptr;
    open_files()[path] = file;
  }
  if (file->header().ranks != ranks)
    return *why = "the ranks do not agree on their number: this one says " + std::to_string(ranks) +
                  ", another one " + std::to_string(file->header().ranks),
           nullptr;
  if ((file->header().computes != 0) != computes)
    return *why = "some ranks run with SPILLWAY_SIM_VALUES=compute and some without", nullptr;
  return file;
}

SharedFile::~SharedFile() {
  munmap(memory_, mapped_bytes_);
  ::close(descriptor_);
}

RankPart& SharedFile::rank(int number) const {
  return reinterpret_cast<RankPart*>(static_cast<char*>(memory_) + kHeaderBytes)[number];
}

PairPart& SharedFile::pair(int from, int to) const {
  const int ranks = header().ranks;
  char* pairs = static_cast<char*>(memory_) + kHeaderBytes + static_cast<size_t>(ranks) * sizeof(RankPart);
  return reinterpret_cast<PairPart*>(pairs)[from * ranks + to];
}

void SharedFile::unlink() const {
  ::unlink((place_.folder + "/" + place_.name).c_str());
}

bool SharedFile::write(int rank, uint64_t offset, const void* bytes, uint64_t size, std::string* why) const {
  const uint64_t start = shared_bytes(header().ranks) + static_cast<uint64_t>(rank) * kPayloadBytes + offset;
  for (uint64_t done = 0; done < size;) {
    const ssize_t count = pwrite(descriptor_, static_cast<const char*>(bytes) + done, size - done,
                                 static_cast<off_t>(start + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return *why = system_error("no room for " + std::to_string(size) + " bytes in " + place_.folder) +
                    ": set SPILLWAY_SIM_NCCL_FOLDER to a folder with more",
             false;
    done += static_cast<uint64_t>(count);
  }
  return true;
}

bool SharedFile::read(int rank, uint64_t offset, void* bytes, uint64_t size, std::string* why) const {
  const uint64_t start = shared_bytes(header().ranks) + static_cast<uint64_t>(rank) * kPayloadBytes + offset;
  for (uint64_t done = 0; done < size;) {
    const ssize_t count =
        pread(descriptor_, static_cast<char*>(bytes) + done, size - done, static_cast<off_t>(start + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return *why = system_error("cannot read what rank " + std::to_string(rank) + " sent"), false;
    done += static_cast<uint64_t>(count);
  }
  return true;
}

// Where the file system cannot take memory back, it stays until the file goes.
void SharedFile::forget(int rank, uint64_t offset, uint64_t size) const {
  const uint64_t start = shared_bytes(header().ranks) + static_cast<uint64_t>(rank) * kPayloadBytes + offset;
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(start),
            static_cast<off_t>(size));
}

void SharedFile::changed() const {
  header().changes.fetch_add(1);
  if (header().waiters.load() == 0) return;
  syscall(SYS_futex, &header().changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedFile::wait(uint32_t seen, int64_t ms) const {
  const timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1'000'000};
  header().waiters.fetch_add(1);
  if (changes() == seen) syscall(SYS_futex, &header().changes, FUTEX_WAIT, seen, &limit, nullptr, 0);
  header().waiters.fetch_sub(1);
}

}  // namespace spillway::nccl
