#include "tools/spillway/perfetto/trace_writer.h"

#include <algorithm>
#include <protozero/pbf_writer.hpp>

#include "base/utf8.h"

namespace spillway::tools {
namespace {

// Numbers of fields and values, as Perfetto's .proto files name them.
namespace in_trace {
constexpr uint32_t kPacket = 1;
}
namespace in_packet {
constexpr uint32_t kTimestamp = 8, kSequenceId = 10, kTrackEvent = 11, kSequenceFlags = 13,
                   kTrackDescriptor = 60;
constexpr uint32_t kIncrementalStateCleared = 1;
}  // namespace in_packet
namespace in_descriptor {
constexpr uint32_t kUuid = 1, kName = 2, kParentUuid = 5, kCounter = 8, kChildOrdering = 11,
                   kSiblingOrderRank = 12;
constexpr int32_t kExplicit = 3;
}  // namespace in_descriptor
namespace in_counter {
constexpr uint32_t kUnit = 3;
constexpr int32_t kSizeBytes = 3;
}  // namespace in_counter
namespace in_event {
constexpr uint32_t kDebugAnnotations = 4, kType = 9, kTrackUuid = 11, kName = 23, kCounterValue = 30;
constexpr int kSliceBegin = 1, kSliceEnd = 2, kInstant = 3, kCounter = 4;
}  // namespace in_event
namespace in_annotation {
constexpr uint32_t kUintValue = 3, kStringValue = 6, kName = 10;
}

// Whoever reads it takes times and counters for signed numbers.
constexpr uint64_t kLargest = INT64_MAX;
constexpr uint32_t kSequence = 1;

void add_note(protozero::pbf_writer* event, const PerfettoWriter::Note& note) {
  protozero::pbf_writer annotation(*event, in_event::kDebugAnnotations);
  annotation.add_string(in_annotation::kName, note.first);
  if (const auto* number = std::get_if<uint64_t>(&note.second))
    annotation.add_uint64(in_annotation::kUintValue, *number);
  else
    annotation.add_string(in_annotation::kStringValue, valid_utf8(std::get<std::string>(note.second)));
}

}  // namespace

// A reader drops events of a sequence before the packet that clears its state: the first one does.
template <typename Body>
void PerfettoWriter::packet(Body body) {
  const bool first = bytes_.empty();
  protozero::pbf_writer file(bytes_);
  protozero::pbf_writer packet(file, in_trace::kPacket);
  packet.add_uint32(in_packet::kSequenceId, kSequence);
  if (first) packet.add_uint32(in_packet::kSequenceFlags, in_packet::kIncrementalStateCleared);
  body(&packet);
}

PerfettoWriter::Track PerfettoWriter::describe(std::string_view name, Track parent, bool counts_bytes) {
  const uint64_t uuid = ++tracks_;
  packet([&](protozero::pbf_writer* packet) {
    protozero::pbf_writer track(*packet, in_packet::kTrackDescriptor);
    track.add_uint64(in_descriptor::kUuid, uuid);
    track.add_string(in_descriptor::kName, valid_utf8(name));
    if (parent != Track::kNone) track.add_uint64(in_descriptor::kParentUuid, static_cast<uint64_t>(parent));
    track.add_int32(in_descriptor::kSiblingOrderRank, static_cast<int32_t>(uuid));
    if (!counts_bytes) return track.add_enum(in_descriptor::kChildOrdering, in_descriptor::kExplicit);
    protozero::pbf_writer counter(track, in_descriptor::kCounter);
    counter.add_enum(in_counter::kUnit, in_counter::kSizeBytes);
  });
  return Track{uuid};
}

PerfettoWriter::Track PerfettoWriter::add_track(std::string_view name, Track parent) {
  return describe(name, parent, false);
}

PerfettoWriter::Track PerfettoWriter::add_counter_of_bytes(std::string_view name, Track parent) {
  return describe(name, parent, true);
}

void PerfettoWriter::event(Track track, uint64_t time_ns, int type, std::string_view name,
                           const Notes& notes) {
  packet([&](protozero::pbf_writer* packet) {
    packet->add_uint64(in_packet::kTimestamp, std::min(time_ns, kLargest));
    protozero::pbf_writer event(*packet, in_packet::kTrackEvent);
    event.add_enum(in_event::kType, type);
    event.add_uint64(in_event::kTrackUuid, static_cast<uint64_t>(track));
    if (!name.empty()) event.add_string(in_event::kName, valid_utf8(name));
    for (const Note& note : notes) add_note(&event, note);
  });
}

void PerfettoWriter::begin(Track track, uint64_t time_ns, std::string_view name, const Notes& notes) {
  event(track, time_ns, in_event::kSliceBegin, name, notes);
}

void PerfettoWriter::end(Track track, uint64_t time_ns) {
  event(track, time_ns, in_event::kSliceEnd, "", {});
}

void PerfettoWriter::note(Track track, uint64_t time_ns, std::string_view name, const Notes& notes) {
  event(track, time_ns, in_event::kInstant, name, notes);
}

void PerfettoWriter::count(Track track, uint64_t time_ns, uint64_t bytes) {
  packet([&](protozero::pbf_writer* packet) {
    packet->add_uint64(in_packet::kTimestamp, std::min(time_ns, kLargest));
    protozero::pbf_writer event(*packet, in_packet::kTrackEvent);
    event.add_enum(in_event::kType, in_event::kCounter);
    event.add_uint64(in_event::kTrackUuid, static_cast<uint64_t>(track));
    event.add_int64(in_event::kCounterValue, static_cast<int64_t>(std::min(bytes, kLargest)));
  });
}

}  // namespace spillway::tools
