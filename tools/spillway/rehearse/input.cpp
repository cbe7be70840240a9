#include "tools/spillway/rehearse/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace spillway::tools {
namespace {

// How far a file had been read when the first run began; -1: it has no places, or cannot go back.
off_t start_of_input() {
  static const off_t start = ::lseek(STDIN_FILENO, 0, SEEK_CUR);
  return start;
}

bool read_only_once() {
  struct stat status{};
  return ::fstat(STDIN_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

}  // namespace

int input_of_next_run() {
  static int runs = 0;
  const off_t start = start_of_input();
  if (++runs == 1) return -1;
  if (!read_only_once()) {
    if (start >= 0) ::lseek(STDIN_FILENO, start, SEEK_SET);
    return -1;
  }
  if (runs == 2)
    std::fputs(
        "spillway: the standard input can be read only once: the first run had it, and the further runs find "
        "it empty; give a file (< FILE) for all of them to read\n",
        stderr);
  return ::open("/dev/null", O_RDONLY | O_CLOEXEC);
}

}  // namespace spillway::tools
