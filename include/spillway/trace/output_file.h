// Writes a whole text where the user asked for it. A file is replaced at once, so that nobody reads half of
// one; what is no file (a pipe, a device, the standard output) is written to and stays what it is; a link is
// followed.
//
// Thread-safety: any thread; two writers of one file should agree. Ownership: none kept. Errors: errno, 0
// when all went well; the unfinished file is removed. Units: none.
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

namespace spillway::trace {
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

inline std::string draft_of(const std::string& path) {
  return path + "." + std::to_string(::getpid()) + ".part";
}

inline int open_draft(const std::string& path) {
  return ::open(draft_of(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
}

inline int replace(const std::string& path, int descriptor, std::string_view text) {
  const std::string draft = draft_of(path);
  int error = write_all(descriptor, text);
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(draft.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(draft.c_str());
  return error;
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

// Whether `write_text` could write there now; what is there stays as it is.
inline int can_write(const std::string& path) {
  const output_file::Target target = output_file::find_target(path);
  if (target.standard >= 0) return 0;
  if (target.exists && S_ISDIR(target.status.st_mode)) return EISDIR;
  if (target.exists) return ::access(path.c_str(), W_OK) == 0 ? 0 : errno;
  std::string made = path;
  if (!target.replaceable) {
    char named[PATH_MAX];
    const ssize_t size = ::readlink(path.c_str(), named, sizeof named);
    if (size <= 0) return errno;
    made.assign(named, static_cast<size_t>(size));
    if (made[0] != '/') made.insert(0, path.substr(0, path.rfind('/') + 1));
  }
  const int descriptor = output_file::open_draft(made);
  if (descriptor < 0) return errno;
  ::close(descriptor);
  ::unlink(output_file::draft_of(made).c_str());
  return 0;
}

inline int write_text(const std::string& path, std::string_view text) {
  const output_file::Target target = output_file::find_target(path);
  if (target.standard >= 0) {
    std::fflush(target.standard == STDOUT_FILENO ? stdout : stderr);
    return output_file::write_all(target.standard, text);
  }
  if (!target.replaceable) return output_file::write_through(path, text);
  const int descriptor = output_file::open_draft(target.path);
  // The file may be ours where the folder is not.
  if (descriptor < 0) return target.exists ? output_file::write_through(target.path, text) : errno;
  if (target.exists) ::fchmod(descriptor, target.status.st_mode & 07777);
  return output_file::replace(target.path, descriptor, text);
}

}  // namespace spillway::trace
