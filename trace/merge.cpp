#include "trace/merge.h"

#include <algorithm>
#include <numeric>

#include "trace/layout.h"

namespace spillway::trace {
namespace {

static_assert(kMaxRecords <= UINT32_MAX);
using Places = std::vector<uint32_t>;

// Where the sorted parts end.
std::vector<size_t> ends_of_parts(const RecordList& records) {
  std::vector<size_t> ends;
  for (size_t i = 1; i < records.size(); ++i)
    if (records[i].order < records[i - 1].order) ends.push_back(i);
  ends.push_back(records.size());
  return ends;
}

// Neighbours two by two, until there is one part.
void merge_parts(const RecordList& records, std::vector<size_t> ends, Places* places) {
  const auto at = [&](size_t place) { return places->begin() + static_cast<ptrdiff_t>(place); };
  const auto order = [&](uint32_t place) { return records[place].order; };
  while (ends.size() > 1) {
    std::vector<size_t> merged;
    for (size_t i = 0; i < ends.size(); i += 2) {
      const size_t begin = i == 0 ? 0 : ends[i - 1];
      if (i + 1 < ends.size()) std::ranges::inplace_merge(at(begin), at(ends[i]), at(ends[i + 1]), {}, order);
      merged.push_back(ends[std::min(i + 1, ends.size() - 1)]);
    }
    ends = std::move(merged);
  }
}

// Record i comes from places[i]: along each circle of records that take each other's places.
void move_to_places(RecordList& records, Places& places) {
  for (uint32_t first = 0; first < places.size(); ++first) {
    if (places[first] == first) continue;
    const Record displaced = records[first];
    uint32_t to = first;
    for (uint32_t from = places[to]; from != first; from = places[to]) {
      records[to] = records[from];
      places[to] = to;
      to = from;
    }
    records[to] = displaced;
    places[to] = to;
  }
}

}  // namespace

void merge_by_order(RecordList* records) {
  std::vector<size_t> ends = ends_of_parts(*records);
  if (ends.size() == 1) return;
  Places places(records->size());
  std::iota(places.begin(), places.end(), 0);
  merge_parts(*records, std::move(ends), &places);
  move_to_places(*records, places);
}

}  // namespace spillway::trace
