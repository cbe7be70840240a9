#include "tests/fuzz/trace_parts.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "trace/side_table.h"

namespace spillway::fuzz {
namespace {

using namespace trace;

constexpr uint32_t kMostRings = 4, kMostRecords = 128;
constexpr uint64_t kMostSideBytes = 8192;

Shape small_shape(const Header& header) {
  const uint32_t records = std::clamp(header.records_per_ring, 4u, kMostRecords);
  return {std::clamp(header.rings, 1u, kMostRings), std::bit_floor(records),
          std::clamp(header.side_bytes, uint64_t{kPageBytes}, kMostSideBytes)};
}

template <typename Thing>
Thing thing_at(const uint8_t* data, size_t size, uint64_t at) {
  Thing thing{};
  if (at < size) std::memcpy(&thing, data + at, std::min<size_t>(sizeof(thing), size - at));
  return thing;
}

TraceRing ring_at(const uint8_t* data, size_t size, const Shape& shape, uint32_t number) {
  const auto entry =
      thing_at<DirectoryEntry>(data, size, shape.directory_offset() + number * sizeof(DirectoryEntry));
  const uint64_t held = std::min<uint64_t>(entry.written, shape.records_per_ring);
  TraceRing ring{entry.written - held, entry.owner, {}};
  for (uint64_t i = 0; i < held; ++i) {
    const uint64_t slot = (ring.lost + i) % shape.records_per_ring;
    ring.records.push_back(thing_at<Record>(data, size, shape.ring_offset(number) + slot * sizeof(Record)));
  }
  return ring;
}

uint32_t check_of(SideEntry entry, const std::string& text) {
  entry.check = 0;
  Check check;
  check.add(&entry, sizeof(entry));
  check.add(text.data(), text.size());
  return static_cast<uint32_t>(check.value() ^ (check.value() >> 32));
}

// How many bytes of the table are used.
uint64_t put_texts(const std::vector<TraceText>& texts, uint8_t* table, uint64_t room) {
  uint64_t used = 0;
  for (const TraceText& one : texts) {
    const uint64_t bytes = sizeof(SideEntry) + (one.text.size() + 7) / 8 * 8;
    if (bytes > room - used) break;
    SideEntry entry{static_cast<uint32_t>(one.text.size()), 0, one.type, one.number};
    entry.check = check_of(entry, one.text);
    std::memcpy(table + used, &entry, sizeof(entry));
    std::memcpy(table + used + sizeof(entry), one.text.data(), one.text.size());
    used += bytes;
  }
  return used;
}

void put_ring(const TraceRing& ring, const Shape& shape, uint32_t number, Bytes* bytes) {
  const uint64_t too_many =
      ring.records.size() - std::min<size_t>(ring.records.size(), shape.records_per_ring);
  DirectoryEntry entry;
  entry.written = ring.lost + ring.records.size();
  entry.owner = ring.owner;
  std::memcpy(&(*bytes)[shape.directory_offset() + number * sizeof(entry)], &entry, sizeof(entry));
  for (uint64_t i = too_many; i < ring.records.size(); ++i) {
    Record record = ring.records[i];
    record.stamp = ring.lost + i + 1;
    const uint64_t slot = (ring.lost + i) % shape.records_per_ring;
    std::memcpy(&(*bytes)[shape.ring_offset(number) + slot * sizeof(Record)], &record, sizeof(record));
  }
}

}  // namespace

TraceParts take_apart(const uint8_t* data, size_t size) {
  TraceParts parts;
  parts.header = thing_at<Header>(data, size, 0);
  const Shape shape = small_shape(parts.header);
  const uint64_t table = std::min<uint64_t>(size, shape.side_offset());
  const uint64_t used = std::min({parts.header.side_used, shape.side_bytes, size - table});
  walk_side_table(data + table, used, [&](const SideText& entry) {
    parts.texts.push_back({entry.type, entry.number, std::string(entry.text)});
  });
  for (uint32_t ring = 0; ring < shape.rings; ++ring) parts.rings.push_back(ring_at(data, size, shape, ring));
  return parts;
}

Bytes put_together(const TraceParts& parts) {
  Shape shape = small_shape(parts.header);
  shape.rings = static_cast<uint32_t>(std::clamp<size_t>(parts.rings.size(), 1, kMostRings));
  Bytes bytes(shape.file_bytes());
  Header header = parts.header;
  header.magic = kMagic;
  header.version = kVersion;
  header.header_bytes = sizeof(Header);
  header.rings = shape.rings;
  header.records_per_ring = shape.records_per_ring;
  header.side_bytes = shape.side_bytes;
  header.side_used = put_texts(parts.texts, &bytes[shape.side_offset()], shape.side_bytes);
  header.check = header_check(header);
  std::memcpy(bytes.data(), &header, sizeof(header));
  for (uint32_t ring = 0; ring < shape.rings && ring < parts.rings.size(); ++ring)
    put_ring(parts.rings[ring], shape, ring, &bytes);
  return bytes;
}

void repair_header(uint8_t* data, size_t size) {
  if (size < sizeof(Header)) return;
  auto header = thing_at<Header>(data, size, 0);
  header.check = header_check(header);
  std::memcpy(data, &header, sizeof(header));
}

}  // namespace spillway::fuzz
