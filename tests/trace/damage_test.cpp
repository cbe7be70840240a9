// Files that are no traces, not whole, or lie: an error or a note that says where.
#include <gmock/gmock.h>
#include <sys/syscall.h>

#include <functional>

#include "tests/trace/image.h"

namespace spillway::trace {
// Told of each reading when it is over.
std::function<void(uint64_t offset)> after_reading;
}  // namespace spillway::trace

// In place of the C library's, for this whole program.
extern "C" ssize_t pread(int file, void* to, size_t bytes, off_t offset) {
  const ssize_t got = ::syscall(SYS_pread64, file, to, bytes, offset);
  if (spillway::trace::after_reading) spillway::trace::after_reading(static_cast<uint64_t>(offset));
  return got;
}

namespace spillway::trace {
namespace {

using ::testing::HasSubstr;

class TraceDamage : public ::testing::Test {
 protected:
  // The reader's error, "" if it reads.
  std::string error_of(const Image& image) {
    file_.hold(image);
    std::string error;
    return read(file_.path(), &contents_, &error) ? "" : error;
  }
  template <typename T>
  void put(uint64_t offset, T value) {
    std::memcpy(image_.data() + offset, &value, sizeof(value));
  }

  AnonymousFile file_;
  Image image_ = small_image();
  Contents contents_;
};

TEST_F(TraceDamage, UndamagedReadsWhole) {
  EXPECT_EQ(error_of(image_), "");
  EXPECT_EQ(image_.size(), kImageShape.file_bytes());
  EXPECT_EQ(contents_.records.size(), 30u);
  EXPECT_EQ(contents_.overwritten, 24u);
  EXPECT_EQ(contents_.names.size(), 20u);
  EXPECT_EQ(contents_.incomplete, "");
}

TEST_F(TraceDamage, RefusesWhatIsNoTrace) {
  EXPECT_THAT(error_of({}), HasSubstr("is empty (0 bytes)"));
  EXPECT_THAT(error_of(Image(70, 'x')), HasSubstr("cut off in the header: 70 bytes"));
  EXPECT_THAT(error_of(Image(10000, 'x')), HasSubstr("magic number at byte 0"));
  EXPECT_THAT(error_of(Image(10000, 0)), HasSubstr("magic number at byte 0"));
  std::string error;
  EXPECT_FALSE(read("/", &contents_, &error));
  EXPECT_THAT(error, HasSubstr("'/' is a folder"));
  EXPECT_FALSE(read("/dev/zero", &contents_, &error));
  EXPECT_THAT(error, HasSubstr("not a regular file"));
  EXPECT_FALSE(read("/absent", &contents_, &error));
  EXPECT_THAT(error, HasSubstr("No such file"));
}

TEST_F(TraceDamage, RefusesANewerVersion) {
  put(offsetof(Header, version), kVersion + 1);
  EXPECT_THAT(error_of(image_), HasSubstr("use a newer Spillway"));
}

TEST_F(TraceDamage, NoticesEveryFlippedBitOfTheHeader) {
  for (uint64_t bit = 0; bit < (offsetof(Header, check) + 8) * 8; ++bit) {
    Image image = image_;
    image[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
    EXPECT_NE(error_of(image), "") << "bit " << bit;
  }
}

TEST_F(TraceDamage, RefusesImpossibleCounts) {
  const auto lie = [&](uint64_t offset, auto value) {
    Image image = image_;
    std::memcpy(image.data() + offset, &value, sizeof(value));
    repair_check(&image);
    return error_of(image);
  };
  EXPECT_THAT(lie(offsetof(Header, rings), uint32_t{0}), HasSubstr("impossible counts"));
  EXPECT_THAT(lie(offsetof(Header, rings), ~uint32_t{0}), HasSubstr("impossible counts"));
  EXPECT_THAT(lie(offsetof(Header, records_per_ring), uint32_t{17}), HasSubstr("impossible counts"));
  EXPECT_THAT(lie(offsetof(Header, records_per_ring), 1u << 31), HasSubstr("impossible counts"));
  EXPECT_THAT(lie(offsetof(Header, side_bytes), ~uint64_t{0}), HasSubstr("impossible counts"));
  // Possible, but the file is not that long.
  EXPECT_EQ(lie(offsetof(Header, records_per_ring), 1u << 20), "");
  EXPECT_THAT(contents_.incomplete, HasSubstr("cut short"));
}

TEST_F(TraceDamage, SaysOfEveryTruncationThatItIsOne) {
  for (uint64_t size = 0; size < image_.size(); size += size < 256 ? 1 : 37) {
    const std::string error = error_of(Image(image_.begin(), image_.begin() + static_cast<ptrdiff_t>(size)));
    EXPECT_TRUE(!error.empty() || !contents_.incomplete.empty()) << size << " bytes";
    EXPECT_EQ(error.empty(), size >= sizeof(Header)) << error;
  }
}

TEST_F(TraceDamage, KeepsNamesAndFirstRingsOfATruncatedFile) {
  image_.resize(kImageShape.ring_offset(2) + 100);
  EXPECT_EQ(error_of(image_), "");
  EXPECT_EQ(contents_.names.size(), 20u);
  EXPECT_EQ(contents_.records.size(), 21u);
  EXPECT_THAT(contents_.incomplete,
              HasSubstr("ring 2 is cut short at byte " + std::to_string(image_.size())));
}

TEST_F(TraceDamage, SaysWhereAStampIsWrong) {
  const uint64_t slot = kImageShape.ring_offset(1) + 3 * sizeof(Record);
  put(slot, uint64_t{0x1234});
  EXPECT_EQ(error_of(image_), "");
  EXPECT_EQ(contents_.torn, 1u);
  EXPECT_EQ(contents_.records.size(), 29u);
  EXPECT_THAT(contents_.incomplete, HasSubstr("at byte " + std::to_string(slot)));
}

TEST_F(TraceDamage, CountsTheSlotInWhichTheWriterDied) {
  put(kImageShape.ring_offset(1) + (40 % 16) * sizeof(Record), uint64_t{0});
  EXPECT_EQ(error_of(image_), "");
  EXPECT_EQ(contents_.torn, 1u);
  EXPECT_EQ(contents_.records.size(), 29u);
  EXPECT_EQ(contents_.incomplete, "") << "that is no damage";
}

TEST_F(TraceDamage, FindsARecordThatTheRingsCountDoesNotHaveYet) {
  put(kImageShape.directory_offset() + sizeof(DirectoryEntry), uint64_t{39});
  EXPECT_EQ(error_of(image_), "");
  EXPECT_EQ(contents_.records.size(), 30u);
  EXPECT_EQ(contents_.incomplete, "");
}

// Bytes are not read at one moment: the stamp came before the writer began with the next record, the rest
// after.
TEST_F(TraceDamage, LeavesOutARecordThatChangedWhileItWasRead) {
  const uint64_t ring = kImageShape.ring_offset(1), slot = ring + (40 % 16) * sizeof(Record);
  Record old, next = numbered(1, 40);
  std::memcpy(&old, image_.data() + slot, sizeof old);
  int readings = 0;
  after_reading = [&](uint64_t offset) {
    if (offset != ring || ++readings > 2) return;
    next.stamp = readings == 1 ? old.stamp : 41;
    put(slot, next);
    if (readings == 2) put(kImageShape.directory_offset() + sizeof(DirectoryEntry), uint64_t{41});
    file_.hold(image_);
  };
  EXPECT_EQ(error_of(image_), "");
  after_reading = nullptr;
  EXPECT_EQ(readings, 3);
  EXPECT_EQ(contents_.records.size(), 29u) << "the fifteen that stayed, and the other rings'";
  for (const Record& record : contents_.records)
    if (record.kind == Kind::kAllocate) {
      EXPECT_TRUE(is_numbered(record)) << record.stamp;
    }
}

TEST_F(TraceDamage, SaysWhereTheSideTableIsDamaged) {
  image_[kImageShape.side_offset() + 24 * 5 + 17] ^= 1;  // in the text of the sixth name
  EXPECT_EQ(error_of(image_), "");
  EXPECT_EQ(contents_.names.size(), 5u);
  EXPECT_EQ(contents_.records.size(), 30u);
  EXPECT_THAT(contents_.incomplete, HasSubstr("side table is damaged at byte " +
                                              std::to_string(kImageShape.side_offset() + 24 * 5)));
}

}  // namespace
}  // namespace spillway::trace
