// Numbers over steps as TensorBoard reads them: a file of records, each a protocol buffer `Event` of
// TensorFlow with one scalar after another.
//
// A record is its length, the checksum of the length, the event, and the checksum of the event (TFRecord;
// the checksums are CRC-32C, masked). What a killed process leaves is whole but for its last record.
//
// Thread-safety: one thread. Ownership: the file. Errors: texts; after one nothing more is written.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway::trainer {

class EventFile {
 public:
  using Scalars = std::vector<std::pair<std::string, double>>;  // by tag

  EventFile() = default;
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // A file of its own in `folder`; a fresh run removes those of the runs before it. False with the error.
  bool open(const std::string& folder, bool resumed, std::string* error);
  // Does nothing before `open` and after an error.
  bool write(uint64_t step, const Scalars& scalars, std::string* error);

 private:
  bool append(const std::string& event, std::string* error);

  int descriptor_ = -1;
  std::string path_;
};

}  // namespace spillway::trainer
