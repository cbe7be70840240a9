#include "trainer/app/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/crc.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <protozero/pbf_writer.hpp>

#include "base/output_file.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.", kEnding = ".spillway";
constexpr const char* kVersion = "brain.Event:2";

// The fields of TensorFlow's event.proto and summary.proto.
enum EventField : protozero::pbf_tag_type { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum SummaryField : protozero::pbf_tag_type { kValue = 1 };
enum ValueField : protozero::pbf_tag_type { kTag = 1, kSimpleValue = 2 };

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Castagnoli's polynomial, turned and shifted so that a checksum of data with checksums in it is as good.
uint32_t masked_checksum(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  const uint32_t sum = crc.checksum();
  return ((sum >> 15) | (sum << 17)) + 0xa282ead8u;
}

template <typename Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof number; ++i) bytes += char((number >> (8 * i)) & 0xff);
  return bytes;
}

std::string record_of(const std::string& event) {
  const std::string length = little_endian(uint64_t{event.size()});
  return length + little_endian(masked_checksum(length)) + event + little_endian(masked_checksum(event));
}

void remove_earlier(const std::string& folder) {
  std::error_code none;
  std::vector<fs::path> earlier;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kEnding)) earlier.push_back(entry.path());
  }
  for (const fs::path& path : earlier) fs::remove(path, none);
}

}  // namespace

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool EventFile::open(const std::string& folder, bool resumed, std::string* error) {
  if (!resumed) remove_earlier(folder);
  const auto seconds = static_cast<uint64_t>(seconds_since_1970());
  path_ = folder + "/" + std::string(kPrefix) + std::to_string(seconds) + "." + std::to_string(::getpid()) +
          std::string(kEnding);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) return *error = path_ + ": " + std::strerror(errno), false;
  std::string event;
  protozero::pbf_writer writer(event);
  writer.add_double(kWallTime, seconds_since_1970());
  writer.add_string(kFileVersion, kVersion);
  return append(event, error);
}

bool EventFile::write(uint64_t step, const Scalars& scalars, std::string* error) {
  if (descriptor_ < 0) return true;
  std::string event;
  protozero::pbf_writer writer(event);
  writer.add_double(kWallTime, seconds_since_1970());
  writer.add_int64(kStep, int64_t(step));
  {
    protozero::pbf_writer summary(writer, kSummary);
    for (const auto& [tag, scalar] : scalars) {
      protozero::pbf_writer value(summary, kValue);
      value.add_string(kTag, tag);
      value.add_float(kSimpleValue, float(scalar));
    }
  }
  return append(event, error);
}

bool EventFile::append(const std::string& event, std::string* error) {
  const int code = output_file::write_all(descriptor_, record_of(event));
  if (code == 0) return true;
  *error = path_ + ": " + std::strerror(code);
  ::close(std::exchange(descriptor_, -1));
  return false;
}

}  // namespace spillway::trainer
