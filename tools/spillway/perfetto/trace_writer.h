// Writes Perfetto's trace format: a stream of TracePackets in protobuf, of tracks and what happens on them.
// https://perfetto.dev/docs/reference/trace-packet-proto
//
// Thread-safety: one thread. Ownership: the bytes are the writer's. Errors: none; text that is no UTF-8 has
// its wrong bytes replaced. Units: nanoseconds, of any clock that the whole file keeps to.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace spillway::tools {

class PerfettoWriter {
 public:
  enum class Track : uint64_t { kNone = 0 };
  // What is shown beside an event: a name and its value.
  using Note = std::pair<const char*, std::variant<uint64_t, std::string>>;
  using Notes = std::vector<Note>;

  // Tracks of one parent are shown in the order in which they are made.
  Track add_track(std::string_view name, Track parent = Track::kNone);
  Track add_counter_of_bytes(std::string_view name, Track parent);

  // REQUIRES of each track: times do not fall, and slices that begin inside another one end inside it.
  void begin(Track track, uint64_t time_ns, std::string_view name, const Notes& notes = {});
  void end(Track track, uint64_t time_ns);
  void note(Track track, uint64_t time_ns, std::string_view name, const Notes& notes = {});
  void count(Track track, uint64_t time_ns, uint64_t bytes);

  std::string finish() && { return std::move(bytes_); }

 private:
  Track describe(std::string_view name, Track parent, bool counts_bytes);
  template <typename Body>
  void packet(Body body);
  void event(Track track, uint64_t time_ns, int type, std::string_view name, const Notes& notes);

  std::string bytes_;
  uint64_t tracks_ = 0;
};

}  // namespace spillway::tools
