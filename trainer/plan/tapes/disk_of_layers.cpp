#include "trainer/plan/tapes/disk_of_layers.h"

#include <algorithm>

#include "trainer/plan/estimate.h"
#include "trainer/plan/parameters/tile_record.h"
#include "trainer/plan/schedule.h"

namespace spillway::trainer {

DiskOfLayers::DiskOfLayers(const Machine& machine)
    : read_rate_(machine.nvme_read_bytes_per_second), write_rate_(machine.nvme_write_bytes_per_second) {}

double DiskOfLayers::pass(uint64_t bytes, double rate, double from) {
  return free_ = std::max(free_, from) + double(bytes) / rate;
}

void DiskOfLayers::read(File* file, size_t record, double now) {
  Record& of = file->records[record];
  const bool is_in_buffer = record + kLayerBuffers >= file->records.size();
  if (of.read < 0) of.read = is_in_buffer ? now : pass(of.bytes, read_rate_, now);
}

double DiskOfLayers::ready(uint32_t device, bool away, double now) {
  File& file = files_[device];
  std::vector<Record>& records = file.records;
  if (!away) {
    const size_t next = records.size() - 1 - file.back;
    for (size_t i = 0; i <= kLayersReadAhead && i <= next; ++i) read(&file, next - i, now);
    return records[next].read;
  }
  if (records.size() >= kLayersInBuffers) {
    Record& record = records[records.size() - kLayersInBuffers];
    record.written = pass(record.bytes, write_rate_, std::max(now, record.copied));
  }
  return records.size() < kLayerBuffers ? now : records[records.size() - kLayerBuffers].written;
}

void DiskOfLayers::copied(uint32_t device, bool away, uint64_t bytes, double at) {
  File& file = files_[device];
  away ? file.records.push_back({.bytes = bytes, .copied = at}) : void(++file.back);
}

DiskOfLayers::Bytes DiskOfLayers::bytes() const {
  Bytes all;
  for (const auto& [device, file] : files_) {
    uint64_t largest = 0;
    for (const Record& record : file.records) {
      largest = std::max(largest, record.bytes);
      all.file += aligned(record.bytes, kRecordAlignment);
    }
    all.buffers += std::min<uint64_t>(kLayerBuffers, file.records.size()) * aligned(largest, kHugePage);
  }
  return all;
}

}  // namespace spillway::trainer
