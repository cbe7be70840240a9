// How a trace is changed: its parts, most often, with the checks repaired; now and then its bytes, as damage
// does. SPILLWAY_FUZZ_PLAIN=1 changes bytes alone: what the fuzzer reaches without this file.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/fuzz/trace_parts.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace spillway::fuzz {
namespace {

using namespace trace;

constexpr uint64_t kKinds = 28;  // and some that do not exist
constexpr size_t kLongestText = 300;

class Mutator {
 public:
  Mutator(TraceParts* parts, unsigned seed) : parts_(*parts), random_(seed) {}

  void run() {
    for (uint64_t changes = 1 + draw(5); changes > 0; --changes) change();
  }

 private:
  uint64_t draw(uint64_t below) { return random_() % below; }

  // Numbers that mean something to some field: small ones, sizes and addresses, those at the ends.
  uint64_t number() {
    switch (draw(8)) {
      case 0:
        return draw(4);
      case 1:
        return draw(32);
      case 2:
        return 512 * draw(64);
      case 3:
        return (uint64_t{2} << 20) * draw(64);
      case 4:
        return (uint64_t{1} << draw(64)) - draw(2);
      case 5:
        return ~uint64_t{0} - draw(4);
      case 6:
        return 0x7f0000000000 + 512 * draw(16384);
      default:
        return random_();
    }
  }

  TraceRing& ring() { return parts_.rings[draw(parts_.rings.size())]; }

  void change() {
    switch (draw(12)) {
      case 0:
        return add_record();
      case 1:
        return remove_record();
      case 2:
        return move_record();
      case 3:
        return change_text();
      case 4:
        return change_frame();
      case 5:
        return copy_run();
      default:
        return change_record();
    }
  }

  Record* some_record() {
    TraceRing& from = ring();
    return from.records.empty() ? nullptr : &from.records[draw(from.records.size())];
  }

  uint64_t last_order() const {
    uint64_t last = 0;
    for (const TraceRing& one : parts_.rings)
      for (const Record& record : one.records) last = std::max(last, record.order);
    return last;
  }

  void add_record() {
    const Record* const like = some_record();
    Record record = like != nullptr && draw(2) == 0 ? *like : Record();
    if (draw(2) == 0) record.kind = static_cast<Kind>(draw(kKinds));
    if (draw(4) != 0) record.order = last_order() + 1;
    ring().records.push_back(record);
    change_field(&ring().records);
  }

  void remove_record() {
    auto& records = ring().records;
    if (!records.empty()) records.erase(records.begin() + static_cast<ptrdiff_t>(draw(records.size())));
  }

  void move_record() {
    auto &from = ring().records, &to = ring().records;
    if (from.empty()) return;
    const Record record = from[draw(from.size())];
    to.insert(to.begin() + static_cast<ptrdiff_t>(draw(to.size() + 1)), record);
  }

  // Some neighbours again, behind all others: a step, or a failure, comes twice.
  void copy_run() {
    auto& records = ring().records;
    if (records.empty() || records.size() > 200) return;
    const size_t begin = draw(records.size()), count = 1 + draw(std::min<size_t>(16, records.size() - begin));
    const uint64_t later = last_order() + 1 - records[begin].order;
    for (size_t i = 0; i < count; ++i) {
      Record record = records[begin + i];
      record.order += later;
      records.push_back(record);
    }
  }

  void change_record() { change_field(&ring().records); }

  void change_field(std::vector<Record>* records) {
    if (records->empty()) return;
    Record& record = (*records)[draw(records->size())];
    const Record* const other = some_record();
    uint64_t Record::* const fields[] = {&Record::order,     &Record::address, &Record::bytes,
                                         &Record::requested, &Record::stream,  &Record::detail};
    const size_t place = draw(std::size(fields) + 3);
    if (place < std::size(fields)) {
      uint64_t& field = record.*fields[place];
      const uint64_t how = draw(4);
      if (how == 0 && other != nullptr)
        field = other->*fields[place];
      else if (how == 1)
        field += number();
      else
        field = number();
    } else if (place == std::size(fields)) {
      record.kind = static_cast<Kind>(draw(kKinds));
    } else if (place == std::size(fields) + 1) {
      record.value = static_cast<uint32_t>(draw(2) == 0 && other != nullptr ? other->value : number());
    } else {
      record.device = static_cast<uint8_t>(draw(8) == 0 ? number() : draw(2));
      record.flags = static_cast<uint8_t>(draw(6));
    }
  }

  void change_text() {
    if (parts_.texts.empty() || draw(6) == 0) {
      parts_.texts.push_back({draw(2) == 0 ? SideType::kName : SideType::kSetting,
                              static_cast<uint32_t>(1 + draw(32)), "a.py:1 f\nb.py:2 g"});
    }
    TraceText& one = parts_.texts[draw(parts_.texts.size())];
    const size_t length = std::min(one.text.size(), kLongestText);
    one.text.resize(kLongestText);
    one.text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(one.text.data()), length, kLongestText));
    if (draw(4) == 0) one.number = static_cast<uint32_t>(number());
    if (one.type == SideType::kSetting && one.number > one.text.size() && draw(8) != 0)
      one.number = static_cast<uint32_t>(one.text.size() / 2);
  }

  void change_frame() {
    Header& header = parts_.header;
    switch (draw(7)) {
      case 0:
        header.closed = draw(3);
        return;
      case 1:
        header.dropped = number();
        return;
      case 2:
        header.started_ns = number();
        return;
      case 3:
        ring().lost = number();
        return;
      case 4:
        ring().owner = static_cast<uint32_t>(number());
        return;
      case 5:
        header.records_per_ring = 4u << draw(6);
        return;
      default:
        if (parts_.rings.size() < 4) parts_.rings.emplace_back();
    }
  }

  TraceParts& parts_;
  std::minstd_rand random_;
};

size_t store(const Bytes& bytes, uint8_t* data, size_t most) {
  const size_t size = std::min(bytes.size(), most);
  std::memcpy(data, bytes.data(), size);
  return size;
}

// A number of the frame that tells how much there is: of the header, of a ring's entry, or of a text's.
size_t some_count(const uint8_t* data, size_t size, std::minstd_rand* random) {
  const uint64_t pick = (*random)() % 4;
  if (pick == 0) return (*random)() % (sizeof(Header) / 4) * 4;
  if (pick == 1) return Shape{}.directory_offset() + (*random)() % 4 * sizeof(DirectoryEntry);
  Header header;
  if (size < sizeof(header)) return 0;
  std::memcpy(&header, data, sizeof(header));
  uint64_t at = Shape{header.rings, 0, 0}.side_offset();
  SideEntry entry;
  while (at + sizeof(entry) <= size && (*random)() % 4 != 0) {
    std::memcpy(&entry, data + at, sizeof(entry));
    if (entry.bytes == 0) break;
    at += sizeof(entry) + (uint64_t{entry.bytes} + 7) / 8 * 8;
  }
  return at;
}

// Bytes of the file, its end, or its counts; sometimes with a header that fits.
size_t damage(uint8_t* data, size_t size, size_t most, std::minstd_rand* random) {
  if (size == 0) return LLVMFuzzerMutate(data, size, most);
  switch ((*random)() % 4) {
    case 0:
      return (*random)() % (size + 1);
    case 1:
      size = LLVMFuzzerMutate(data, size, most);
      break;
    default: {
      const uint32_t number = static_cast<uint32_t>((*random)()) >> (*random)() % 32;
      const size_t at = some_count(data, size, random);
      if (at + sizeof(number) <= size) std::memcpy(data + at, &number, sizeof(number));
    }
  }
  if ((*random)() % 4 != 0) repair_header(data, size);
  return size;
}

bool plain() {
  static const bool wanted = std::getenv("SPILLWAY_FUZZ_PLAIN") != nullptr;
  return wanted;
}

}  // namespace
}  // namespace spillway::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  using namespace spillway::fuzz;
  if (plain()) return LLVMFuzzerMutate(data, size, most);
  std::minstd_rand random(seed);
  if (random() % 8 == 0) return damage(data, size, most, &random);
  TraceParts parts = take_apart(data, size);
  Mutator(&parts, static_cast<unsigned>(random())).run();
  return store(put_together(parts), data, most);
}

// Rings of the one behind those of the other.
extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* first, size_t first_size, const uint8_t* second,
                                            size_t second_size, uint8_t* out, size_t most, unsigned seed) {
  using namespace spillway::fuzz;
  TraceParts parts = take_apart(first, first_size);
  const TraceParts other = take_apart(second, second_size);
  std::minstd_rand random(seed);
  for (const auto& ring : other.rings) {
    auto& into = parts.rings[random() % parts.rings.size()].records;
    const size_t begin = random() % (ring.records.size() + 1);
    const size_t count = std::min<size_t>(random() % 16, ring.records.size() - begin);
    into.insert(into.begin() + static_cast<ptrdiff_t>(random() % (into.size() + 1)),
                ring.records.begin() + static_cast<ptrdiff_t>(begin),
                ring.records.begin() + static_cast<ptrdiff_t>(begin + count));
  }
  if (random() % 4 == 0) parts.texts.insert(parts.texts.end(), other.texts.begin(), other.texts.end());
  return store(put_together(parts), out, most);
}
