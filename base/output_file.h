// Files that take the place of others at once, so that nobody reads half of one. `DraftFile` is the
// mechanism; `write_text` writes a whole text where the user asked for it: what is no file (a pipe, a device,
// the standard output) is written to and stays what it is; a link is followed. It belongs to no folder:
// everybody may use it.
//
// Thread-safety: any thread; two writers of one file should agree. Ownership: DraftFile owns its descriptor
// and its unfinished file, which it removes. Errors: errno, 0 when all went well. Units: none.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace spillway {

namespace output_file {

inline bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

inline int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

// A pipe that nobody reads is an error: waiting for a reader might be for ever.
inline int write_through(const std::string& path, std::string_view text) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor < 0) return errno;
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  const int error = write_all(descriptor, text);
  return ::close(descriptor) != 0 && error == 0 ? errno : error;
}

// What a device says before anything is given to it: a full one refuses even nothing.
inline int offer_nothing(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return errno;
  const int error = ::write(descriptor, "", 0) < 0 ? errno : 0;
  ::close(descriptor);
  return error;
}

inline std::string draft_of(const std::string& path) {
  return path + "." + std::to_string(::getpid()) + ".part";
}

// What `path` is once links are followed. `standard`: the standard output or error that it is, or -1.
struct Target {
  std::string path;
  bool exists = false, replaceable = false;
  struct stat status{};
  int standard = -1;
};

inline Target find_target(const std::string& path) {
  Target target{.path = path};
  struct stat itself{}, open{};
  target.exists = ::stat(path.c_str(), &target.status) == 0;
  if (!target.exists) {  // a link to nothing is written through: that makes what it names
    target.replaceable = ::lstat(path.c_str(), &itself) != 0;
    return target;
  }
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO})
    if (::fstat(descriptor, &open) == 0 && same_file(open, target.status)) target.standard = descriptor;
  char real[PATH_MAX];
  target.replaceable = S_ISREG(target.status.st_mode) && ::realpath(path.c_str(), real) != nullptr;
  if (target.replaceable) target.path = real;
  return target;
}

}  // namespace output_file

// A file that is removed unless it was kept.
class DraftFile {
 public:
  // `name`: its own while it is unfinished, in the folder where it is to be kept. What stands there goes.
  explicit DraftFile(std::string name)
      : name_(std::move(name)),
        descriptor_(::open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666)),
        error_(descriptor_ < 0 ? errno : 0) {}
  ~DraftFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(name_.c_str());
  }
  DraftFile(const DraftFile&) = delete;
  DraftFile& operator=(const DraftFile&) = delete;

  int error() const { return error_; }  // of opening it
  int descriptor() const { return descriptor_; }
  int write(std::string_view bytes) { return output_file::write_all(descriptor_, bytes); }
  // On the disk before it has the name, so that a crash of the machine leaves the old file or the whole new
  // one.
  int sync() { return ::fsync(descriptor_) == 0 ? 0 : errno; }
  // Nothing more can be written then.
  int keep_as(const std::string& path) {
    if (::close(std::exchange(descriptor_, -1)) != 0 || ::rename(name_.c_str(), path.c_str()) != 0) {
      const int error = errno;
      ::unlink(name_.c_str());
      return error;
    }
    return 0;
  }

 private:
  std::string name_;
  int descriptor_, error_;
};

// Whether `write_text` could write there now; what is there stays as it is.
inline int can_write(const std::string& path) {
  const output_file::Target target = output_file::find_target(path);
  if (target.standard >= 0) return 0;
  if (target.exists && S_ISDIR(target.status.st_mode)) return EISDIR;
  if (target.exists && S_ISCHR(target.status.st_mode)) return output_file::offer_nothing(path);
  if (target.exists) return ::access(path.c_str(), W_OK) == 0 ? 0 : errno;
  std::string made = path;
  if (!target.replaceable) {
    char named[PATH_MAX];
    const ssize_t size = ::readlink(path.c_str(), named, sizeof named);
    if (size <= 0) return errno;
    made.assign(named, static_cast<size_t>(size));
    if (made[0] != '/') made.insert(0, path.substr(0, path.rfind('/') + 1));
  }
  return DraftFile(output_file::draft_of(made)).error();
}

inline int write_text(const std::string& path, std::string_view text) {
  const output_file::Target target = output_file::find_target(path);
  if (target.standard >= 0) {
    std::fflush(target.standard == STDOUT_FILENO ? stdout : stderr);
    return output_file::write_all(target.standard, text);
  }
  if (!target.replaceable) return output_file::write_through(path, text);
  DraftFile draft(output_file::draft_of(target.path));
  // The file may be ours where the folder is not.
  if (draft.error() != 0)
    return target.exists ? output_file::write_through(target.path, text) : draft.error();
  if (target.exists) ::fchmod(draft.descriptor(), target.status.st_mode & 07777);
  const int error = draft.write(text);
  return error != 0 ? error : draft.keep_as(target.path);
}

}  // namespace spillway
