#include "tools/spillway/report/trace/read_history.h"

#include <fstream>

#include "tools/spillway/replay/input/rehearsed_stream.h"
#include "tools/spillway/report/trace/trace_history.h"
#include "tools/spillway/rmm/line.h"
#include "tools/spillway/rmm/log.h"
#include "tools/spillway/snapshot/pickle/pickle.h"
#include "tools/spillway/snapshot/snapshot.h"
#include "trace/reader.h"

namespace spillway::tools {

HistoryFile history_file(const std::string& path) {
  constexpr size_t kStart = 4096;  // no line of a log is longer
  std::string start(kStart, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(file.gcount()));
  if (begins_as_pickle(start)) return HistoryFile::kSnapshot;
  if (begins_as_stream(start) || begins_as_rehearsed_stream(start)) return HistoryFile::kRequests;
  return begins_as_rmm_log(start) ? HistoryFile::kRmmLog : HistoryFile::kTrace;
}

const char* history_file_name(HistoryFile file) {
  static constexpr const char* kNames[] = {"Spillway trace", "PyTorch memory snapshot", "CSV log of RMM's",
                                           "Text of requests"};
  return kNames[static_cast<size_t>(file)];
}

std::optional<MemoryHistory> read_history(const std::string& path, std::string* error) {
  switch (history_file(path)) {
    case HistoryFile::kSnapshot:
      return read_snapshot(path, error);
    case HistoryFile::kRmmLog:
      return read_rmm_log(path, error);
    case HistoryFile::kRequests:
      *error = path +
               ": is a text of requests, such as rehearse --trace writes, without places and times: spillway "
               "replay reads it, and with --out makes a snapshot of it that report and diff read";
      return std::nullopt;
    case HistoryFile::kTrace:
      break;
  }
  trace::Contents contents;
  if (!trace::read(path, &contents, error)) return std::nullopt;
  return take_history(&contents);
}

}  // namespace spillway::tools
