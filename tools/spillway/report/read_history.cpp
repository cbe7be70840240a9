#include "tools/spillway/report/read_history.h"

#include <fstream>

#include "spillway/trace/reader.h"
#include "tools/spillway/report/trace_history.h"
#include "tools/spillway/snapshot/pickle.h"
#include "tools/spillway/snapshot/snapshot.h"

namespace spillway::tools {

bool is_snapshot(const std::string& path) {
  std::string start(2, '\0');
  std::ifstream(path, std::ios::binary).read(start.data(), static_cast<std::streamsize>(start.size()));
  return begins_as_pickle(start);
}

std::optional<MemoryHistory> read_history(const std::string& path, std::string* error) {
  if (is_snapshot(path)) return read_snapshot(path, error);
  trace::Contents contents;
  if (!trace::read(path, &contents, error)) return std::nullopt;
  return history_of(contents);
}

}  // namespace spillway::tools
