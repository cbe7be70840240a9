// What the trace tests share: a folder of their own, and records whose content can be verified.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "trace/reader.h"
#include "trace/writer.h"

namespace spillway::trace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "spillway-trace-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::unique_ptr<Trace> open_or_fail(const std::string& path, const Options& options = {}) {
  std::string error;
  auto trace = Trace::open(path, options, &error);
  EXPECT_NE(trace, nullptr) << error;
  return trace;
}

inline Contents read_or_fail(const std::string& path) {
  Contents contents;
  std::string error;
  EXPECT_TRUE(read(path, &contents, &error)) << error;
  return contents;
}

inline uint64_t mixed(uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15ull;
  return value ^ (value >> 29);
}

// The `sequence`-th record of `writer`: every field follows from the two, so that a mixture of two records
// shows.
inline Record numbered(uint64_t writer, uint64_t sequence) {
  Record record;
  record.order = sequence;
  record.stream = writer;
  record.address = sequence;
  record.bytes = mixed(sequence + writer);
  record.requested = mixed(sequence + writer + 1);
  record.detail = mixed(sequence + writer + 2);
  record.value = static_cast<uint32_t>(record.bytes);
  record.kind = Kind::kAllocate;
  record.device = static_cast<uint8_t>(writer);
  return record;
}

inline bool is_numbered(const Record& record) {
  const Record expected = numbered(record.stream, record.address);
  return record.order == expected.order && record.bytes == expected.bytes &&
         record.requested == expected.requested && record.detail == expected.detail &&
         record.value == expected.value && record.kind == expected.kind && record.device == expected.device;
}

}  // namespace spillway::trace
