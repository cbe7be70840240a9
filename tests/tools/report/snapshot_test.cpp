// `spillway report` on PyTorch's memory snapshots: the reader of pickles, damaged ones too, and a whole
// report. tests/libtorch/test_snapshot_report.py compares the figures with those of PyTorch.
#include <gmock/gmock.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <tuple>

#include "tests/sanitized.h"
#include "tests/tools/support.h"
#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/page/page.h"
#include "tools/spillway/perfetto/write.h"
#include "tools/spillway/snapshot/pickle/pickle.h"
#include "tools/spillway/snapshot/report.h"
#include "tools/spillway/snapshot/snapshot.h"
#include "tools/spillway/snapshot/write.h"

namespace spillway::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Type = Pickle::Type;
using std::string_literals::operator""s;

const std::string kGolden = std::string(GOLDEN_FOLDER) + "/snapshot.pickle";

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Pickle read(const std::string& program) {
  const std::string bytes = "\x80\x04"s + program;
  return Pickle::read(ByteStream(bytes));
}

std::optional<int64_t> integer_of(const std::string& program) {
  const Pickle pickle = read(program);
  return pickle.has_root() && pickle.incomplete().empty() ? pickle.integer(pickle.root()) : std::nullopt;
}

Pickle::Id entry_of(const Pickle& pickle, const char* key) {
  const auto found = pickle.find(pickle.root(), key);
  EXPECT_TRUE(found) << key;
  return found.value_or(pickle.root());
}

TEST(Pickle, NumbersOfAllWidths) {
  EXPECT_EQ(integer_of("K\xff."), 255);
  EXPECT_EQ(integer_of("M\x01\x02."), 0x201);
  EXPECT_EQ(integer_of("J\xfe\xff\xff\xff."), -2);
  EXPECT_EQ(integer_of("\x8a\x00."s), 0);
  EXPECT_EQ(integer_of("\x8a\x02\x00\xff."s), -256);
  EXPECT_EQ(integer_of("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."), INT64_MAX);
  EXPECT_EQ(integer_of("\x8a\x09\x01\x00\x00\x00\x00\x00\x00\x00\x01."s), std::nullopt) << "65 bits";
  EXPECT_EQ(integer_of("\x8b\x02\x00\x00\x00\x01\x01."s), 257);
  EXPECT_EQ(integer_of("\x88."), 1);
  const Pickle real = read("G\x3f\xf8\x00\x00\x00\x00\x00\x00."s);
  EXPECT_EQ(real.number(real.root()), 1.5);
}

TEST(Pickle, ContainersAndWhatIsShared) {
  // {"a": [1, (2, 3)], "b": the same list}
  const Pickle pickle = read("}(\x8c\x01"s + "a]\x94(K\x01K\x02K\x03\x86" + "e\x8c\x01" + "bh\x00u."s);
  ASSERT_TRUE(pickle.has_root()) << pickle.incomplete();
  const Pickle::Id a = entry_of(pickle, "a");
  EXPECT_EQ(a, entry_of(pickle, "b"));
  ASSERT_EQ(pickle.items(a).size(), 2u);
  EXPECT_EQ(pickle.integer(pickle.items(pickle.items(a)[1])[1]), 3);
  EXPECT_EQ(pickle.find(pickle.root(), "c"), std::nullopt);
}

TEST(Pickle, NothingIsCalled) {
  // os.system("true") is an opaque value; LibTorch's mark of a list's type gives the list.
  const Pickle call = read("cos\nsystem\n\x8c\x04true\x85R.");
  ASSERT_TRUE(call.has_root());
  EXPECT_EQ(call.type(call.root()), Type::kOpaque);
  const Pickle typed = read("ctorch.jit._pickle\nrestore_type_tag\n]K\x07"s + "a\x8c\x09List[int]\x86R.");
  ASSERT_TRUE(typed.has_root()) << typed.incomplete();
  ASSERT_EQ(typed.type(typed.root()), Type::kList);
  EXPECT_EQ(typed.integer(typed.items(typed.root())[0]), 7);
}

TEST(Pickle, WrongProgramsSayWhere) {
  EXPECT_THAT(read("a.").incomplete(), HasSubstr("an instruction lacks its operand at byte 2 of 4"));
  EXPECT_THAT(read("e.").incomplete(), HasSubstr("lacks its mark"));
  EXPECT_THAT(read("h\x05.").incomplete(), HasSubstr("used before it was made"));
  EXPECT_THAT(read("X\xff\xff\xff\xff.").incomplete(), HasSubstr("the file ends early"));
  EXPECT_THAT(read("\x07").incomplete(), HasSubstr("an unknown instruction"));
  EXPECT_THAT(Pickle::read(ByteStream("\x80\x06N.")).incomplete(), HasSubstr("newer than 5"));
  EXPECT_THAT(read("}(K\x01u.").incomplete(), HasSubstr("a key has no value"));
}

TEST(Pickle, AFileThatEndsEarlyGivesWhatItHolds) {
  // {"a": [[1, 2 ...: the inner list has not been added to the outer one yet.
  const Pickle pickle = read("}(\x8c\x01"s + "a]](K\x01K\x02K");
  EXPECT_THAT(pickle.incomplete(), HasSubstr("the file ends early"));
  const Pickle::Id outer = entry_of(pickle, "a");
  ASSERT_EQ(pickle.items(outer).size(), 1u);
  EXPECT_EQ(pickle.items(pickle.items(outer)[0]).size(), 2u);
}

// Whatever `bytes` are, a report of them is made or refused.
bool reported(const std::string& bytes) {
  std::string error;
  const auto snapshot = parse_snapshot(bytes, &error);
  if (!snapshot) {
    EXPECT_NE(error, "");
    return false;
  }
  const auto findings = look_into(*snapshot, 1 << 30);
  if (!findings) return false;
  const SnapshotReport report{"damaged", *snapshot, *findings};
  EXPECT_THAT(snapshot_text(report), HasSubstr("The snapshot\n"));
  EXPECT_FALSE(snapshot_json(report).empty());
  EXPECT_THAT(snapshot_page(report), HasSubstr("</html>"));
  EXPECT_THAT(perfetto_of(*snapshot, nullptr).bytes, HasSubstr("GPU "));
  return true;
}

TEST(Snapshot, CutAnywhereItTellsWhatItHolds) {
  const std::string whole = bytes_of(kGolden);
  constexpr size_t kStep = kSanitized ? 997 : 97;
  size_t told = 0;
  for (size_t length = 0; length < whole.size(); length += kStep) told += reported(whole.substr(0, length));
  EXPECT_GT(told, whole.size() / kStep / 2);
  std::string error;
  const MemoryHistory cut =
      parse_snapshot(whole.substr(0, whole.size() / 2), &error).value_or(MemoryHistory());
  EXPECT_THAT(cut.incomplete, HasSubstr("the file ends early at byte")) << error;
  EXPECT_GT(cut.devices.at(0).events.size(), 100u);
}

// What PyTorch wrote, read and written again, is the same history.
TEST(Snapshot, WrittenAgainItIsTheSame) {
  std::string error;
  const MemoryHistory first = parse_snapshot(bytes_of(kGolden), &error).value_or(MemoryHistory());
  const std::string written = snapshot_of(first);
  const MemoryHistory again = parse_snapshot(written, &error).value_or(MemoryHistory());
  ASSERT_EQ(again.incomplete, "");
  ASSERT_EQ(again.passed_over, 0u);
  ASSERT_EQ(again.settings, first.settings);
  ASSERT_EQ(again.devices.size(), first.devices.size());
  const DeviceHistory& was = first.devices.at(0);
  const DeviceHistory& is = again.devices.at(0);
  ASSERT_EQ(is.segments.size(), was.segments.size());
  for (size_t i = 0; i < was.segments.size(); ++i) {
    const HistorySegment &a = was.segments[i], &b = is.segments[i];
    EXPECT_EQ(std::tie(a.address, a.size, a.stream, a.pool, a.large, a.expandable),
              std::tie(b.address, b.size, b.stream, b.pool, b.large, b.expandable));
    ASSERT_EQ(a.blocks.size(), b.blocks.size());
    for (size_t j = 0; j < a.blocks.size(); ++j) {
      EXPECT_EQ(std::tie(a.blocks[j].address, a.blocks[j].size, a.blocks[j].requested, a.blocks[j].state),
                std::tie(b.blocks[j].address, b.blocks[j].size, b.blocks[j].requested, b.blocks[j].state));
      EXPECT_EQ(first.stacks[a.blocks[j].stack], again.stacks[b.blocks[j].stack]);
    }
  }
  std::vector<const HistoryEvent*> known;  // PyTorch has entries that tell nothing of memory
  for (const HistoryEvent& event : was.events)
    if (event.action != Action::kOther) known.push_back(&event);
  ASSERT_EQ(is.events.size(), known.size());
  for (size_t i = 0; i < known.size(); ++i) {
    const HistoryEvent &a = *known[i], &b = is.events[i];
    ASSERT_EQ(std::tie(a.action, a.address, a.size, a.stream, a.microseconds, a.pool),
              std::tie(b.action, b.address, b.size, b.stream, b.microseconds, b.pool));
    ASSERT_EQ(first.stacks[a.stack], again.stacks[b.stack]);
  }
  EXPECT_LT(written.size(), bytes_of(kGolden).size() * 3 / 2) << "a stack is written once";
}

TEST(Snapshot, NumbersAndTextsOfAllKindsAreWritten) {
  MemoryHistory history;
  const std::string strange = "gr\xc3\xb6\xc3\x9f\x65 \xff\xfe \"</script>";
  history.stacks.push_back({{strange, strange, INT64_MAX}});
  for (const uint64_t number : {uint64_t{0}, uint64_t{255}, uint64_t{256}, uint64_t{INT32_MAX},
                                uint64_t{INT32_MAX} + 1, uint64_t{1} << 40, uint64_t{INT64_MAX}}) {
    HistoryEvent event;
    event.action = Action::kAllocate;
    event.address = event.size = event.stream = number;
    event.stack = 1;
    history.devices[3].events.push_back(event);
  }
  std::string error;
  const MemoryHistory again = parse_snapshot(snapshot_of(history), &error).value_or(MemoryHistory());
  ASSERT_TRUE(again.devices.contains(3)) << "devices before it are empty: " << error << again.incomplete;
  const auto& events = again.devices.at(3).events;
  ASSERT_EQ(events.size(), history.devices[3].events.size());
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].size, history.devices[3].events[i].size);
  EXPECT_EQ(again.stacks[events[0].stack][0].line, INT64_MAX);
  EXPECT_THAT(std::string(again.stacks[events[0].stack][0].function), HasSubstr("gr\xc3\xb6\xc3\x9f\x65"));
}

// What a file says of itself comes from outside too: a report of it, and a snapshot of that, say the same.
TEST(Snapshot, WhatAFileLacksIsReadAsText) {
  const auto text = [](const std::string& word) {
    return "\x8c" + std::string(1, static_cast<char>(word.size())) + word;
  };
  const std::string bytes = "\x80\x04}("s + text("segments") + "](e" + text("allocator_settings") + "}(" +
                            text(kIncompleteSetting) + text("60 B in\xff") + "uu.";
  std::string error;
  const auto history = parse_snapshot(bytes, &error);
  ASSERT_TRUE(history) << error;
  EXPECT_EQ(history->incomplete, "60 B in\xef\xbf\xbd");
  const auto again = parse_snapshot(snapshot_of(*history), &error);
  ASSERT_TRUE(again) << error;
  EXPECT_EQ(again->incomplete, history->incomplete);
}

// A history of `count` events whose file is longer than what is read at once.
MemoryHistory long_history(uint64_t count) {
  MemoryHistory history;
  for (int64_t line = 1; line <= 300; ++line)
    history.stacks.push_back({{"function", "a/rather/long/name/of/a/file.py", line}, {"main", "main.py", 1}});
  for (uint64_t i = 0; i < count; ++i) {
    HistoryEvent event;
    event.action = i % 2 == 0 ? Action::kAllocate : Action::kFreeCompleted;
    event.address = (1 + i / 2) << 21;
    event.size = 1 + i;
    event.pool = {static_cast<uint32_t>(i % 3), 0};
    event.stack = static_cast<StackId>(1 + i % 300);
    history.devices[static_cast<int>(i % 5 / 4)].events.push_back(event);
  }
  return history;
}

void expect_equal(const MemoryHistory& a, const MemoryHistory& b) {
  ASSERT_EQ(a.devices.size(), b.devices.size());
  for (const auto& [number, device] : a.devices) {
    const auto& others = b.devices.at(number).events;
    ASSERT_EQ(device.events.size(), others.size());
    for (size_t i = 0; i < others.size(); ++i) {
      const HistoryEvent &one = device.events[i], &other = others[i];
      ASSERT_EQ(std::tie(one.action, one.address, one.size, one.pool),
                std::tie(other.action, other.address, other.size, other.pool));
      ASSERT_EQ(a.stacks[one.stack], b.stacks[other.stack]);
    }
  }
}

TEST(Snapshot, AFileThatIsReadInPiecesIsTheSame) {
  const MemoryHistory history = long_history(60'000);
  const std::string bytes = snapshot_of(history);
  ASSERT_GT(bytes.size(), size_t{2} << 20);
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("spillway-pieces-" + std::to_string(::getpid()) + ".pickle");
  std::ofstream(path, std::ios::binary) << bytes;
  std::string error;
  const MemoryHistory whole = parse_snapshot(bytes, &error).value_or(MemoryHistory());
  const MemoryHistory pieces = read_snapshot(path, &error).value_or(MemoryHistory());
  std::filesystem::resize_file(path, bytes.size() / 2);
  const MemoryHistory half = read_snapshot(path, &error).value_or(MemoryHistory());
  std::filesystem::remove(path);
  expect_equal(history, whole);
  expect_equal(whole, pieces);
  EXPECT_THAT(half.incomplete, HasSubstr("the file ends early at byte"));
  EXPECT_GT(half.devices.at(0).events.size(), 10'000u);
}

// Python writes an object once, and says later that it comes again.
TEST(Snapshot, AnEventThatComesTwiceIsTwoEvents) {
  const auto text = [](const std::string& word) {
    return "\x8c" + std::string(1, static_cast<char>(word.size())) + word;
  };
  const std::string event = "}\x94(" + text("action") + "\x94" + text("alloc") + "\x94" + text("addr") +
                            "K\x07" + text("size") + "K\x08u";
  const std::string again = "}(h\x03h\x04" + text("addr") + "K\x09" + text("size") + "K\x0au";
  const std::string program = "\x80\x04}(" + text("device_traces") + "]](" + "N\x94" + "0" + "N\x94" + "0" +
                              event + again + "h\x02" + "eau.";
  std::string error;
  const MemoryHistory read = parse_snapshot(program, &error).value_or(MemoryHistory());
  ASSERT_TRUE(read.devices.contains(0)) << error << read.incomplete;
  const auto& events = read.devices.at(0).events;
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ((std::vector{events[0].address, events[1].address, events[2].address}),
            (std::vector<uint64_t>{7, 9, 7}));
  for (const HistoryEvent& one : events) EXPECT_EQ(one.action, Action::kAllocate);
}

TEST(Snapshot, ChangedBytesNeverCrash) {
  const std::string whole = bytes_of(kGolden);
  const char* const cases = std::getenv("SPILLWAY_FUZZ_CASES");
  const char* const seed = std::getenv("SPILLWAY_FUZZ_SEED");
  std::mt19937_64 random(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1);
  const uint64_t count = cases != nullptr ? std::strtoull(cases, nullptr, 10) : (kSanitized ? 60 : 300);
  size_t told = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::string bytes = whole;
    for (uint64_t changes = 1 + random() % 8; changes > 0; --changes)
      bytes[2 + random() % (bytes.size() - 2)] = static_cast<char>(random());
    told += reported(bytes);
  }
  EXPECT_GT(told, 0u);
}

using SnapshotCommand = CommandTest;

TEST_F(SnapshotCommand, ReportsALeakWordForWord) {
  std::filesystem::copy_file(kGolden, folder() / "run.pickle");
  const Ran ran = run({"report", "run.pickle", "--capacity", "64MiB"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string expected = std::string(GOLDEN_FOLDER) + "/snapshot.txt";
  if (std::getenv("SPILLWAY_UPDATE_GOLDEN") != nullptr) std::ofstream(expected) << ran.out;
  EXPECT_EQ(ran.out, bytes_of(expected));
}

// A snapshot may come from a stranger: its names are no commands of the terminal, and no lines of the report.
TEST_F(SnapshotCommand, WhatNamesAreMadeOfIsShownAsText) {
  MemoryHistory history;
  history.stacks.push_back({{"evil\x1b]0;owned\x07\x1b[2J\u009b31m\nVerdict: fake", "train.py", 5}});
  history.settings["PYTORCH_ALLOC_CONF"] = "a\x1b[31m";
  HistoryEvent event;
  event.action = Action::kAllocate;
  event.address = 64 << 20, event.size = 1 << 20, event.stack = 1;
  history.devices[0].events.push_back(event);
  HistorySegment segment;
  segment.address = 64 << 20, segment.size = 2 << 20;
  segment.blocks.push_back({64 << 20, 1 << 20, 1 << 20, BlockState::kAllocated, 1});
  history.devices[0].segments.push_back(segment);
  event.action = Action::kOutOfMemory;
  event.size = 8 << 20;
  history.devices[0].events.push_back(event);
  write("evil.pickle", snapshot_of(history));
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"report", "evil.pickle"}, {"diff", "evil.pickle", kGolden}}) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("train.py:5 evil\uFFFD]0;owned\uFFFD\uFFFD[2J\uFFFD31m Verdict: fake"));
    EXPECT_EQ(std::ranges::count_if(ran.out, [](unsigned char c) { return c < 0x20 && c != '\n'; }), 0);
    EXPECT_THAT(ran.out, Not(HasSubstr("\nVerdict: fake")));
  }
}

TEST_F(SnapshotCommand, RefusesWhatIsNoSnapshot) {
  std::ofstream(folder() / "other.pickle") << "\x80\x04]."s;
  const Ran other = run({"report", "other.pickle"});
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.err, HasSubstr("other.pickle: it is a pickle, but no memory snapshot of PyTorch's"));
  std::filesystem::copy_file(kGolden, folder() / "run.pickle");
  const Ran size = run({"report", "run.pickle", "--capacity", "much"});
  EXPECT_EQ(size.code, 2);
  EXPECT_THAT(size.err, HasSubstr("'much' is no size"));
  EXPECT_EQ(run({"report", "run.pickle", "--incident", "1"}).code, 2);
}

}  // namespace
}  // namespace spillway::tools
