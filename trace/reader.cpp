#include "trace/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

#include "trace/byte_source.h"
#include "trace/merge.h"
#include "trace/ring_reader.h"
#include "trace/side_table.h"

namespace spillway::trace {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string bytes_text(uint64_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

class TraceReader {
 public:
  TraceReader(const ByteSource& source, Contents* out) : source_(source), out_(*out) {}

  // "" or what is wrong with the header.
  std::string read_header() {
    if (source_.size() == 0) return "is empty (0 bytes); a trace starts with a header";
    Header header;
    if (!source_.read(0, &header, sizeof(header))) {
      return "is cut off in the header: " + bytes_text(source_.size()) + " of " +
             std::to_string(sizeof(Header));
    }
    if (const std::string fault = header_fault(header); !fault.empty()) return fault;
    shape_ = {header.rings, header.records_per_ring, header.side_bytes};
    if (!shape_.valid())
      return "has impossible counts in its header, at byte " + std::to_string(offsetof(Header, rings));
    out_.process = header.process;
    out_.started_ns = header.started_ns;
    out_.dropped = header.dropped;
    out_.closed = header.closed == 1;
    Writer writer;
    source_.read(kWriterOffset, &writer, sizeof writer);
    if (!out_.closed) out_.writer = liveness(header.process, writer);
    side_used_ = header.side_used;
    return "";
  }

  void read_body() {
    if (source_.size() < shape_.file_bytes()) {
      note("the file is cut short: " + bytes_text(source_.size()) + " of " +
           std::to_string(shape_.file_bytes()));
    }
    read_side_table();
    for (uint32_t ring = 0; ring < shape_.rings; ++ring) {
      const uint64_t entry_end = shape_.directory_offset() + (ring + 1) * sizeof(DirectoryEntry);
      if (entry_end > source_.size()) break;  // said above
      add_ring(ring, read_ring(source_, shape_, ring, &out_.records));
    }
    merge_by_order(&out_.records);
    if (unsaid_ > 0) out_.incomplete += "; and " + std::to_string(unsaid_) + " more";
  }

 private:
  static std::string header_fault(const Header& header) {
    if (header.magic != kMagic)
      return "is not a trace: the magic number at byte 0 is not that of a Spillway trace";
    if (header.version > kVersion) {
      return "has format version " + std::to_string(header.version) +
             " at byte 8; this program knows version " + std::to_string(kVersion) + ": use a newer Spillway";
    }
    if (header.version != kVersion || header.header_bytes != sizeof(Header) ||
        header.check != header_check(header)) {
      return "has a damaged header: the check at byte " + std::to_string(offsetof(Header, check)) +
             " does not fit";
    }
    return "";
  }

  void note(const std::string& what) {
    if (notes_ == kMaxNotes) {
      ++unsaid_;
      return;
    }
    ++notes_;
    if (!out_.incomplete.empty()) out_.incomplete += "; ";
    out_.incomplete += what;
  }

  void read_side_table() {
    const uint64_t at = shape_.side_offset();
    if (side_used_ > shape_.side_bytes)
      note("the side table's length at byte " + std::to_string(offsetof(Header, side_used)) +
           " is impossible");
    const uint64_t room = source_.size() > at ? source_.size() - at : 0;
    const uint64_t used = std::min({side_used_, shape_.side_bytes, room});
    std::vector<unsigned char> bytes(used);
    if (!source_.read(at, bytes.data(), used)) {
      note("the side table at byte " + std::to_string(at) + " cannot be read");
      return;
    }
    const uint64_t whole = walk_side_table(bytes.data(), used, [this](const SideText& entry) { add(entry); });
    if (whole != used) note("the side table is damaged at byte " + std::to_string(at + whole));
  }

  void add(const SideText& entry) {
    if (entry.type == SideType::kName) {
      out_.names[entry.number] = entry.text;
    } else {
      out_.settings[std::string(entry.text.substr(0, entry.number))] = entry.text.substr(entry.number);
    }
  }

  void add_ring(uint32_t number, const RingState& ring) {
    out_.overwritten += ring.overwritten;
    if (number == kRareRing) out_.overwritten_rare = ring.overwritten;
    out_.torn += ring.torn;
    if (!ring.damage.empty()) note(ring.damage);
  }

  static constexpr int kMaxNotes = 4;
  const ByteSource& source_;
  Contents& out_;
  Shape shape_;
  uint64_t side_used_ = 0;
  int notes_ = 0;
  uint64_t unsaid_ = 0;
};

// "" or what is wrong with the file at `path`, to be put behind its name.
std::string read_file(const std::string& path, Contents* out) {
  // Not blocking: a FIFO without a writer is refused, not waited for.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    return "cannot be opened: " + std::generic_category().message(errno);
  }
  if (!S_ISREG(status.st_mode)) return S_ISDIR(status.st_mode) ? "is a folder" : "is not a regular file";
  const ByteSource source(file.get(), static_cast<uint64_t>(status.st_size));
  TraceReader reader(source, out);
  std::string fault = reader.read_header();
  if (fault.empty()) reader.read_body();
  return fault;
}

}  // namespace

bool read(const std::string& path, Contents* out, std::string* error) {
  *out = {};
  std::string fault;
  try {
    fault = read_file(path, out);
  } catch (const std::bad_alloc&) {
    fault = "needs more memory to be read than there is";
  }
  if (fault.empty()) return true;
  *error = "'" + path + "' " + fault;
  *out = {};
  return false;
}

}  // namespace spillway::trace
