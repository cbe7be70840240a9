#include "trace/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <system_error>

#include "trace/writing_process.h"

namespace spillway::trace {
namespace {

std::string reason(int code) {
  return std::generic_category().message(code);
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string open_failure(const std::string& path, int code) {
  std::string text = "trace file '" + path + "' cannot be created: " + reason(code);
  if (code == ENOENT) text += " (is there a folder '" + folder_of(path) + "'?)";
  return text;
}

enum class Existing { kNone, kOldTrace, kLiveTrace, kForeign, kNotRegular };

bool read_at(int fd, uint64_t offset, void* to, size_t bytes) {
  return ::pread(fd, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

Existing judge(int fd) {
  Header header;
  Writer writer;
  if (!read_at(fd, 0, &header, sizeof header)) return Existing::kForeign;
  if (header.magic == 0) return Existing::kLiveTrace;  // an older version is just making it
  if (header.magic != kMagic) return Existing::kForeign;
  if (header.closed != 0) return Existing::kOldTrace;
  if (!read_at(fd, kWriterOffset, &writer, sizeof writer)) writer = {};
  return may_live(header.process, writer) ? Existing::kLiveTrace : Existing::kOldTrace;
}

// What stands at `path`: only a trace may be replaced, and none that may be written still.
Existing look(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return Existing::kNone;
  if (!S_ISREG(status.st_mode)) return Existing::kNotRegular;
  if (status.st_size == 0) return Existing::kOldTrace;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Existing::kOldTrace;  // to replace it tells what is wrong
  const Existing existing = judge(fd);
  ::close(fd);
  return existing;
}

uint64_t unix_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// In the folder of `path`, and nobody else's, whatever machines share that. Its length does not depend on
// that of `path`.
std::string own_name(const std::string& path) {
  utsname machine{};
  ::uname(&machine);
  return folder_of(path) + "/.spillway-" + static_cast<const char*>(machine.nodename) + "-" +
         std::to_string(::getpid()) + "-" + std::to_string(unix_ns()) + ".tmp";
}

// Puts what has the name `made` at `path`, where nothing stands; EEXIST: something does. 0 or an errno.
int put(const std::string& made, const std::string& path) {
  if (::link(made.c_str(), path.c_str()) == 0) return ::unlink(made.c_str()) == 0 ? 0 : errno;
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) return errno;
  return ::rename(made.c_str(), path.c_str()) == 0 ? 0 : errno;  // a file system without links
}

// It is taken aside and looked at once more: another process may have replaced it meanwhile, by what it
// writes. A new file each time: another process may still have the old one mapped, and truncating that would
// kill it.
int remove_old(const std::string& path) {
  const std::string aside = own_name(path);
  if (::rename(path.c_str(), aside.c_str()) != 0) return errno == ENOENT ? 0 : errno;
  if (look(aside) == Existing::kLiveTrace) {
    const int code = put(aside, path);
    return code == EEXIST ? 0 : code;  // a third one was faster: it keeps that name
  }
  return ::unlink(aside.c_str()) == 0 ? 0 : errno;
}

// 0 or an errno; EBUSY: a trace stands there that may be written still.
int put_in_place(const std::string& made, const std::string& path) {
  for (;;) {
    const Existing existing = look(path);
    if (existing == Existing::kLiveTrace) return EBUSY;
    if (existing == Existing::kForeign || existing == Existing::kNotRegular) return EEXIST;
    if (existing == Existing::kOldTrace)
      if (const int code = remove_old(path); code != 0) return code;
    if (const int code = put(made, path); code != EEXIST) return code;
  }
}

// A program started by one that traces inherits its setting: it gets a file beside the other's.
std::string path_beside(const std::string& wanted, int number) {
  const std::string path = wanted + "." + std::to_string(::getpid());
  return number == 0 ? path : path + "." + std::to_string(number);
}

// Where it stands then, or "".
std::string put_in_place_or_beside(const std::string& made, const std::string& wanted, std::string* error) {
  constexpr int kMostBeside = 1000;
  std::string path = wanted;
  int code = put_in_place(made, path);
  for (int number = 0; code == EBUSY && number < kMostBeside; ++number) {
    path = path_beside(wanted, number);
    code = put_in_place(made, path);
  }
  if (code == 0) return path;
  *error = open_failure(path, code);
  return "";
}

// Under a name of its own, which others do not look at.
int create_file(const std::string& made, const std::string& path, std::string* error) {
  *error = obstacle_at(path);
  if (!error->empty()) return -1;
  const int fd = ::open(made.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) *error = open_failure(path, errno);
  return fd;
}

int write_zeros(int fd, uint64_t bytes) {
  static constexpr char kZeros[1 << 16] = {};
  for (uint64_t done = 0; done < bytes;) {
    const size_t part = bytes - done < sizeof(kZeros) ? bytes - done : sizeof(kZeros);
    const ssize_t written = ::pwrite(fd, kZeros, part, static_cast<off_t>(done));
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) done += static_cast<uint64_t>(written);
  }
  return 0;
}

// 0 or an errno. Afterwards a store to the mapped file cannot run out of space. A file larger than the
// process may write would end it by a signal.
int allocate_space(int fd, uint64_t bytes) {
  rlimit most{};
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && bytes > most.rlim_cur)
    return EFBIG;
  while (::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EOPNOTSUPP) return write_zeros(fd, bytes);
    if (errno != EINTR) return errno;
  }
  return 0;
}

unsigned char* map_file(int fd, const std::string& path, uint64_t bytes, std::string* error) {
  if (const int code = allocate_space(fd, bytes); code != 0) {
    *error = "trace file '" + path + "' needs " + std::to_string(bytes) + " bytes of disk: " + reason(code);
    return nullptr;
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    *error = "trace file '" + path + "' cannot be mapped: " + reason(errno);
    return nullptr;
  }
  return static_cast<unsigned char*>(base);
}

uint64_t next_id() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

std::string obstacle_at(const std::string& path) {
  const std::string start = "trace file '" + path + "' cannot be created: ";
  const Existing existing = look(path);
  if (existing == Existing::kNotRegular) return start + "it exists and is not a regular file";
  if (existing == Existing::kForeign) return start + "what stands there is not a trace file";
  if (::access(folder_of(path).c_str(), W_OK | X_OK) != 0) return open_failure(path, errno);
  return "";
}

std::shared_ptr<File> File::create(const std::string& wanted, const Shape& shape, std::string* error) {
  const std::string made = own_name(wanted);
  const int fd = create_file(made, wanted, error);
  if (fd < 0) return nullptr;
  unsigned char* base = map_file(fd, wanted, shape.file_bytes(), error);
  ::close(fd);
  auto file = base == nullptr ? nullptr : std::make_shared<File>(made, shape, base);
  const std::string path = file == nullptr ? "" : put_in_place_or_beside(made, wanted, error);
  if (path.empty()) {
    ::unlink(made.c_str());
    return nullptr;
  }
  file->path_ = path;
  close_at_exit(file);
  return file;
}

// A list without a lock, since a thread of the parent's could hold one at a fork. Files are few; its nodes
// stay.
void File::close_at_exit(const std::shared_ptr<File>& file) {
  struct Node {
    std::weak_ptr<File> file;
    Node* next;
  };
  struct List {
    std::atomic<Node*> head{nullptr};
    ~List() {
      for (Node* node = head.load(); node != nullptr; node = node->next) {
        if (const auto open = node->file.lock()) open->mark_closed();
      }
    }
  };
  static List list;
  auto* node = new Node{file, list.head.load()};
  while (!list.head.compare_exchange_weak(node->next, node)) {
  }
}

File::File(std::string path, const Shape& shape, unsigned char* base)
    : path_(std::move(path)),
      shape_(shape),
      base_(base),
      id_(next_id()),
      process_(::getpid()),
      rings_(shape.rings) {
  auto* directory = reinterpret_cast<DirectoryEntry*>(base_ + shape_.directory_offset());
  for (uint32_t i = 0; i < shape_.rings; ++i) {
    rings_[i] = {&directory[i], reinterpret_cast<Record*>(base_ + shape_.ring_offset(i)),
                 shape_.records_per_ring - 1};
  }
  directory[kRareRing].owner = kAllThreads;
  publish_header();
}

File::~File() {
  mark_closed();
  ::munmap(base_, shape_.file_bytes());
}

void File::mark_closed() noexcept {
  if (ours()) std::atomic_ref<uint64_t>(header().closed).store(1, std::memory_order_release);
}

bool File::ours() const noexcept {
  return ::getpid() == process_;
}

void File::publish_header() {
  Header image;
  image.magic = kMagic;
  image.version = kVersion;
  image.header_bytes = sizeof(Header);
  image.rings = shape_.rings;
  image.records_per_ring = shape_.records_per_ring;
  image.side_bytes = shape_.side_bytes;
  image.process = static_cast<uint64_t>(process_);
  image.started_ns = unix_ns();
  image.check = header_check(image);
  image.magic = 0;
  *reinterpret_cast<Writer*>(base_ + kWriterOffset) = this_writer();
  header() = image;
  std::atomic_ref<uint64_t>(header().magic).store(kMagic, std::memory_order_release);
}

Ring* File::acquire() noexcept {
  const auto self = static_cast<uint32_t>(::gettid());
  for (Ring& ring : rings_) {
    std::atomic_ref<uint32_t> owner(ring.entry->owner);
    uint32_t nobody = 0;
    if (owner.load(std::memory_order_relaxed) != 0) continue;
    if (!owner.compare_exchange_strong(nobody, self, std::memory_order_acquire)) continue;
#ifdef MADV_POPULATE_WRITE
    // Page faults now, not one for every 64 records later; best effort, older kernels lack it.
    if (shape_.ring_bytes() % kPageBytes == 0) {
      ::madvise(ring.records, shape_.ring_bytes(), MADV_POPULATE_WRITE);
    }
#endif
    return &ring;
  }
  return nullptr;
}

void File::release(Ring* ring) noexcept {
  if (ours()) std::atomic_ref<uint32_t>(ring->entry->owner).store(0, std::memory_order_release);
}

void File::drop() noexcept {
  std::atomic_ref<uint64_t>(header().dropped).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace spillway::trace
