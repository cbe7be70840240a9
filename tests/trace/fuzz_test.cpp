// Random damage to a real file, as typed instructions: whatever the bytes are, the reader answers, and what
// it gives keeps its own promises. A failing case prints as C++ and can be pasted in as a regression test.
#include <cstdlib>
#include <random>
#include <sstream>

#include "tests/sanitized.h"
#include "tests/trace/image.h"

namespace spillway::trace {
namespace {

enum class Op { kFlip, kPut, kZero, kCopy, kTruncate, kInsert, kRemove, kRepairCheck };

struct Damage {
  Op op;
  uint64_t at, value, length;
};

void apply(const Damage& damage, Image* image) {
  if (damage.op == Op::kRepairCheck) return repair_check(image);
  if (image->empty()) return;
  const uint64_t at = damage.at % image->size();
  const uint64_t length = std::min<uint64_t>(damage.length, image->size() - at);
  const auto place = image->begin() + static_cast<ptrdiff_t>(at);
  const auto end = place + static_cast<ptrdiff_t>(length);
  switch (damage.op) {
    case Op::kFlip:
      *place ^= static_cast<unsigned char>(1u << (damage.value % 8));
      break;
    case Op::kPut:
      std::memcpy(&*place, &damage.value, std::min<uint64_t>(8, image->size() - at));
      break;
    case Op::kZero:
      std::fill(place, end, 0);
      break;
    case Op::kCopy:
      std::memmove(&*place, image->data() + damage.value % (image->size() - length + 1), length);
      break;
    case Op::kTruncate:
      image->resize(at);
      break;
    case Op::kInsert:
      image->insert(place, length, static_cast<unsigned char>(damage.value));
      break;
    case Op::kRemove:
      image->erase(place, end);
      break;
    case Op::kRepairCheck:
      break;
  }
}

// Most of the file is zeros: aim where something stands.
uint64_t random_place(std::mt19937_64& random) {
  const uint64_t offset = random();
  switch (random() % 5) {
    case 0:
      return offset % sizeof(Header);
    case 1:
      return kImageShape.directory_offset() + offset % (3 * sizeof(DirectoryEntry));
    case 2:
      return kImageShape.side_offset() + offset % 600;
    case 3:
      return kImageShape.ring_offset(0) + offset % (3 * kImageShape.ring_bytes()) / 8 * 8;
    default:
      return offset % kImageShape.file_bytes();
  }
}

uint64_t random_value(std::mt19937_64& random) {
  static constexpr uint64_t kValues[] = {0,          1,          15,       16,        17,
                                         41,         1u << 20,   1u << 24, 1u << 31,  0xFFFFFFFF,
                                         1ull << 32, 1ull << 63, ~0ull,    ~0ull - 1, ~0ull - 63};
  return random() % 4 == 0 ? random() : kValues[random() % std::size(kValues)];
}

std::vector<Damage> random_case(std::mt19937_64& random) {
  std::vector<Damage> damages;
  for (uint64_t count = 1 + random() % 4; count > 0; --count) {
    const uint64_t pick = random() % 16;
    const Op op = pick < 4 ? Op::kFlip : pick < 10 ? Op::kPut : static_cast<Op>(pick - 8);
    damages.push_back({op, random_place(random), random_value(random), 1 + random() % 200});
  }
  if (random() % 2 == 0) damages.push_back({Op::kRepairCheck, 0, 0, 0});
  return damages;
}

std::string as_code(const std::vector<Damage>& damages) {
  static constexpr const char* kNames[] = {"kFlip",     "kPut",    "kZero",   "kCopy",
                                           "kTruncate", "kInsert", "kRemove", "kRepairCheck"};
  std::ostringstream out;
  for (const Damage& damage : damages) {
    out << "{Op::" << kNames[static_cast<int>(damage.op)] << ", " << damage.at << "u, " << damage.value
        << "u, " << damage.length << "u}, ";
  }
  return "{" + out.str() + "}";
}

void expect_promises(const Contents& contents, const Image& image) {
  EXPECT_LE(contents.records.size() * sizeof(Record), image.size());
  uint64_t order = 0;
  for (const Record& record : contents.records) {
    EXPECT_NE(record.stamp, 0u);
    EXPECT_GE(record.order, order);
    order = record.order;
  }
  uint64_t text_bytes = 0;
  for (const auto& [index, text] : contents.names) text_bytes += text.size();
  for (const auto& [key, value] : contents.settings) text_bytes += key.size() + value.size();
  EXPECT_LE(text_bytes, image.size());
}

class Fuzz {
 public:
  void run(const std::vector<Damage>& damages) {
    Image image = image_;
    for (const Damage& damage : damages) apply(damage, &image);
    file_.hold(image);
    Contents contents;
    std::string error;
    if (read(file_.path(), &contents, &error)) {
      ++readable_;
      expect_promises(contents, image);
      if (!contents.incomplete.empty()) ++incomplete_;
    } else {
      EXPECT_NE(error.find(file_.path()), std::string::npos) << "the error does not name the file: " << error;
      ++refused_;
    }
  }
  uint64_t readable() const { return readable_; }
  uint64_t incomplete() const { return incomplete_; }
  uint64_t refused() const { return refused_; }

 private:
  const Image image_ = small_image();
  const AnonymousFile file_;
  uint64_t readable_ = 0, incomplete_ = 0, refused_ = 0;
};

// SPILLWAY_FUZZ_CASES and SPILLWAY_FUZZ_SEED set another length and another start.
uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(TraceFuzz, ReaderAnswersWhateverTheBytesAre) {
  const uint64_t cases = from_environment("SPILLWAY_FUZZ_CASES", 200'000 / kShorter);
  const uint64_t seed = from_environment("SPILLWAY_FUZZ_SEED", 1);
  std::mt19937_64 random(seed);
  Fuzz fuzz;
  for (uint64_t i = 0; i < cases && !HasFailure(); ++i) {
    const std::vector<Damage> damages = random_case(random);
    fuzz.run(damages);
    if (HasFailure()) ADD_FAILURE() << "seed " << seed << ", case " << i << ": " << as_code(damages);
  }
  // All three ways out were taken, often.
  EXPECT_GT(fuzz.readable(), cases / 10);
  EXPECT_GT(fuzz.incomplete(), cases / 20);
  EXPECT_GT(fuzz.refused(), cases / 20);
  RecordProperty("readable", std::to_string(fuzz.readable()));
}

}  // namespace
}  // namespace spillway::trace
