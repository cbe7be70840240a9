// Which process writes a trace, and whether it still may. Its id alone does not say: machines and containers
// that share a volume give out the same ids, and one machine gives an id out again.
//
// Thread-safety: any thread. Errors: what the system does not tell is 0. A trace of an older version says
// nothing of all this: then the id alone counts.
#pragma once
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "base/process_identity.h"
#include "trace/layout.h"

namespace spillway::trace {

inline uint64_t writer_check(const Writer& writer) {
  Check check;
  check.add(&writer, offsetof(Writer, check));
  return check.value();
}

inline Writer this_writer() {
  Writer writer;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  Check machine;
  machine.add(boot.data(), boot.size());
  if (!boot.empty()) writer.machine = machine.value();
  struct stat ids{};
  if (::stat("/proc/self/ns/pid", &ids) == 0) writer.id_space = ids.st_ino;
  writer.process_start = this_process().start;
  writer.check = writer_check(writer);
  return writer;
}

// By another process than this one.
inline bool is_taken(pid_t id) {
  return id != ::getpid() && (::kill(id, 0) == 0 || errno == EPERM);
}

// For a reader of a trace that was not closed.
enum class Liveness : uint8_t { kEnded, kRuns, kUnknown };

inline Liveness liveness(uint64_t process, const Writer& writer) {
  const bool is_told = writer.check == writer_check(writer) && writer.machine != 0;
  const Writer here = this_writer();
  if (is_told && (writer.machine != here.machine || writer.id_space != here.id_space))
    return Liveness::kUnknown;
  const bool is_number = process > 0 && process <= INT32_MAX;
  if (!is_number || (::kill(static_cast<pid_t>(process), 0) != 0 && errno != EPERM)) return Liveness::kEnded;
  const bool is_shown = ::access(("/proc/" + std::to_string(process)).c_str(), F_OK) == 0;
  if (!is_told || !is_shown) return Liveness::kUnknown;
  return is_alive({process, writer.process_start}) ? Liveness::kRuns : Liveness::kEnded;
}

// Of a trace that was not closed. One that was made on another machine, in another container or before the
// machine's start may be written still.
inline bool may_live(uint64_t process, const Writer& writer) {
  const auto id = static_cast<pid_t>(process);
  if (id <= 0) return false;
  if (writer.check != writer_check(writer) || writer.machine == 0) return is_taken(id);
  const Writer here = this_writer();
  if (writer.machine != here.machine || writer.id_space != here.id_space) return true;
  if (!is_taken(id)) return false;
  const uint64_t start = start_of(process);  // 0: /proc hides it, or it is a zombie
  return start == 0 || start == writer.process_start;
}

}  // namespace spillway::trace
