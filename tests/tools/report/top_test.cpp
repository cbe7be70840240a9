// `spillway top`: what it says of what members of the ledger show, true or not.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "processes/ledger.h"
#include "tests/tools/support.h"
#include "tools/spillway/top/render.h"

namespace spillway::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr DeviceUuid kCard{0,    0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                           0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};

LedgerMember member(uint64_t process, const char* program, uint64_t held, uint64_t cached) {
  LedgerMember made;
  made.process = process;
  made.has_entry = true;
  std::strncpy(made.entry.program, program, sizeof made.entry.program - 1);
  made.entry.device_count = 1;
  made.entry.devices[0] = {.uuid = kCard,
                           .device_bytes = 40 * kGiB,
                           .free_bytes = 8 * kGiB,
                           .held_bytes = held,
                           .cached_bytes = cached};
  return made;
}

TEST(Overview, AddsUpADevice) {
  const Overview overview =
      overview_of({member(20, "two", 10 * kGiB, 4 * kGiB), member(10, "one", 20 * kGiB, 0)});
  ASSERT_EQ(overview.devices.size(), 1u);
  const DeviceOverview& device = overview.devices[0];
  EXPECT_EQ(device.used_bytes, 32 * kGiB);
  EXPECT_EQ(device.held_bytes, 30 * kGiB);
  EXPECT_EQ(device.cached_bytes, 4 * kGiB);
  EXPECT_EQ(device.other_bytes, 2 * kGiB);
  EXPECT_EQ(overview.processes[device.shares[0].process].process, 10u) << "by process id";
  EXPECT_EQ(uuid_text(device.uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

TEST(TopText, NamesCardsByTheirNumberAndName) {
  LedgerMember both = member(1, "both", 0, 0);
  both.entry.device_count = 2;
  both.entry.devices[1] = both.entry.devices[0];
  both.entry.devices[1].uuid[0] = 1;
  EXPECT_THAT(top_text(overview_of({both})),
              HasSubstr("\nGPU-00112233-4455-6677-8899-aabbccddeeff  40.00 GiB"));
  both.entry.devices[0].number = 12;
  both.entry.devices[1].number = 3;
  std::strcpy(both.entry.devices[0].name, "NVIDIA A100-SXM4-40GB");
  std::strcpy(both.entry.devices[1].name, "a\x1b[2J");
  const std::string text = top_text(overview_of({both}));
  const std::string one = "\n11 NVIDIA A100-SXM4-40GB (GPU-00112233-4455-6677-8899-aabbccddeeff)  40.00 GiB";
  EXPECT_THAT(text, HasSubstr(one));
  EXPECT_LT(text.find("\n2 a?[2J (GPU-01112233"), text.find(one));
  const auto json = nlohmann::json::parse(top_json(overview_of({both})))["devices"];
  EXPECT_EQ(json[1]["index"], 11);
  EXPECT_EQ(json[1]["name"], "NVIDIA A100-SXM4-40GB");
}

TEST(TopText, DrawsACardAsTheReportsDo) {
  const std::string text = top_text(overview_of({member(10, "one", 20 * kGiB, 4 * kGiB)}));
  EXPECT_THAT(text,
              HasSubstr("  ████████████████░░░░▒▒▒▒▒▒▒▒▒▒▒▒········  █ in use 16.00 GiB, ░ cached 4.00 GiB, "
                        "▒ other 12.00 GiB, · free 8.00 GiB\n"));
}

TEST(Overview, TheNewestLookAtACardCounts) {
  for (const auto& [first, second] : {std::pair{1, 2}, {2, 1}}) {
    LedgerMember old = member(first, "old", 0, 0);
    old.age_ns = 5'000'000'000;
    old.entry.devices[0].free_bytes = 40 * kGiB;
    EXPECT_EQ(overview_of({old, member(second, "fresh", 0, 0)}).devices[0].used_bytes, 32 * kGiB);
  }
}

TEST(Overview, NumbersThatDoNotAgreeDoNotWrap) {
  LedgerMember wrong = member(1, "wrong", UINT64_MAX, UINT64_MAX);
  wrong.entry.devices[0].free_bytes = 50 * kGiB;
  wrong.entry.failures = wrong.entry.rescued = UINT64_MAX;
  const Overview overview = overview_of({wrong, wrong});
  EXPECT_EQ(overview.devices[0].used_bytes, 0u);
  EXPECT_EQ(overview.devices[0].held_bytes, UINT64_MAX);
  EXPECT_EQ(overview.devices[0].other_bytes, 0u);
  EXPECT_EQ(overview.failures, UINT64_MAX);
}

TEST(TopText, SaysWhatIsNotKnown) {
  LedgerMember silent;
  silent.process = 7;
  LedgerMember native = member(8, "native", 0, 0);
  const std::string text = top_text(overview_of({silent, native}));
  EXPECT_THAT(text, HasSubstr("not known"));
  EXPECT_THAT(text, HasSubstr("no device in use\n"));
  EXPECT_THAT(text, HasSubstr("7  (has shown nothing yet)"));
  EXPECT_THAT(top_json(overview_of({native})), HasSubstr("\"held_bytes\":null"));
}

TEST(TopText, TellsOfTheLatestShortageAndWhatWasOfUse) {
  LedgerMember short_of = member(8, "short", kGiB, 0);
  EXPECT_THAT(top_text(overview_of({short_of})), Not(HasSubstr("What was tried")));
  EXPECT_TRUE(
      nlohmann::json::parse(top_json(overview_of({short_of})))["processes"][0]["last_incident"].is_null());
  short_of.entry.written_ns = 5'000'000'000;
  short_of.age_ns = 500'000'000;
  short_of.entry.incident = {.number = 4,
                             .asked_bytes = 2 * kGiB,
                             .gained_bytes = kGiB,
                             .microseconds = 12'300,
                             .outcome = LedgerIncident::kGaveUp,
                             .ended_ns = 3'000'000'000,
                             .tried = "stitch 1024 MiB in 12000 us\x1b"};
  short_of.entry.strategies[0] = {.name = "stitch", .tried = 3, .useful = 2, .bytes = 3 * kGiB};
  const Overview overview = overview_of({short_of});
  EXPECT_THAT(top_text(overview),
              HasSubstr("8  incident 4, 2.5 s ago: 2.00 GiB asked, not rescued in 12.3 ms; tried: "
                        "stitch 1024 MiB in 12000 us?\n"));
  EXPECT_THAT(top_text(overview), HasSubstr("of use until now: stitch 2 of 3 (3.00 GiB)\n"));
  const auto json = nlohmann::json::parse(top_json(overview))["processes"][0];
  EXPECT_EQ(json["last_incident"]["age_ms"], 2500);
  EXPECT_EQ(json["last_incident"]["outcome"], "not rescued");
  EXPECT_EQ(json["last_incident"]["gained_bytes"], kGiB);
  EXPECT_EQ(json["strategies"].size(), 1u);
  EXPECT_EQ(json["strategies"][0]["useful"], 2);
}

TEST(TopText, AnIncidentThatMakesNoSenseIsShownAsItIs) {
  LedgerMember wrong = member(1, "wrong", 0, 0);
  wrong.entry.incident = {.number = UINT64_MAX, .outcome = 99, .ended_ns = UINT64_MAX};
  std::memset(wrong.entry.strategies[0].name, 'x', sizeof wrong.entry.strategies[0].name - 1);
  EXPECT_THAT(top_text(overview_of({wrong})), HasSubstr("0.0 s ago: 0 B asked, not rescued in 0"));
}

TEST(TopText, WhatIsKnownByDriverCallsIsSaidSo) {
  LedgerMember native = member(8, "native", 0, 0);
  native.entry.devices[0].native_bytes = 3 * kGiB;
  const Overview overview = overview_of({native});
  EXPECT_EQ(overview.devices[0].held_bytes, 3 * kGiB);
  EXPECT_EQ(overview.devices[0].other_bytes, 29 * kGiB);
  EXPECT_THAT(top_text(overview), HasSubstr("3.00 GiB       ?      -        -  driver calls"));
}

TEST(TopText, ATextCanNotCommandTheTerminal) {
  LedgerMember evil = member(1, "a\x1b[2J\n\xff\xc3", 1, 1);
  const Overview overview = overview_of({evil});
  EXPECT_THAT(top_text(overview), HasSubstr("a?[2J???"));
  EXPECT_FALSE(nlohmann::json::parse(top_json(overview), nullptr, false).is_discarded());
}

TEST(TopText, IsCutToTheScreen) {
  EXPECT_EQ(cut_to_screen("a\nbbbb\nc\nd\n", 10, 2), "a\nbb\nc\nd\n");
  EXPECT_EQ(cut_to_screen("a\nb\nc\nd\n", 4, 9), "a\nb\n... 2 more lines\n");
  EXPECT_EQ(cut_to_screen("\u2588\u2588\u2591 \u00b7 free\n", 9, 5), "\u2588\u2588\u2591 \u00b7\n");
}

class Top : public CommandTest {
 protected:
  Top() : name_("spillway-test-top-" + std::to_string(::getpid())) {}
  ~Top() override { ::shm_unlink(("/" + name_).c_str()); }
  Ran top(std::vector<std::string> words) const {
    words.insert(words.begin(), "top");
    return run(words, {{"SPILLWAY_LEDGER", name_}});
  }
  std::unique_ptr<Ledger> join() const {
    std::string why_not;
    auto ledger = Ledger::join(name_, &why_not);
    EXPECT_NE(ledger, nullptr) << why_not;
    return ledger;
  }
  std::string name_;
};

TEST_F(Top, AnIntervalIsANumber) {
  for (const char* wrong : {"nan", "0", "inf"}) {
    const Ran ran = top({"--interval", wrong});
    EXPECT_EQ(ran.code, 2) << wrong;
    EXPECT_THAT(ran.err, HasSubstr("--interval"));
  }
}

TEST_F(Top, WhoReadsDataIsToldWhyThereIsNone) {
  const auto ledger = join();
  ASSERT_EQ(::chmod(("/dev/shm/" + name_).c_str(), 0666), 0);
  const pid_t pid = start({"top", "--json", "--interval", "0.1"}, {{"SPILLWAY_LEDGER", name_}});
  for (int i = 0; i < 2000 && !read("err").ends_with('\n'); ++i) ::usleep(10'000);
  ::kill(pid, SIGTERM);
  const Ran ran = wait(pid);
  EXPECT_THAT(ran.err, HasSubstr("spillway: top: "));
  EXPECT_EQ(ran.out, "");
}

TEST_F(Top, ShowsTheLivingAndTakesNoPart) {
  EXPECT_THAT(top({"--once"}).out, HasSubstr("no process takes part"));
  const auto ledger = join();
  LedgerEntry entry = member(0, "train.py", 10 * kGiB, 4 * kGiB).entry;
  entry.failures = 3;
  entry.rescued = 2;
  entry.guarantee_bytes = kGiB;
  entry.devices[0].spare_bytes = 2 * kGiB;
  entry.devices[0].spilled_bytes = 3 * kGiB;
  entry.devices[0].spilled_peer_bytes = kGiB;
  ledger->show(entry);
  const Ran ran = top({"--once"});
  EXPECT_THAT(ran.out, HasSubstr("4.00 GiB  2.00 GiB  3.00 GiB (1.00 GiB peer)  "));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("1 process on 1 device, 3 memory failures, 2 rescued"));
  EXPECT_THAT(ran.out, HasSubstr("in use 32.00 GiB: held 10.00 GiB (4.00 GiB cached), other 22.00 GiB"));
  EXPECT_THAT(ran.out, HasSubstr(std::to_string(::getpid()) + "  train.py"));
  EXPECT_EQ(ledger->peers(), 0u);
  const auto json = nlohmann::json::parse(top({"--once", "--json"}).out);
  EXPECT_EQ(json["processes"][0]["pid"], ::getpid());
  EXPECT_EQ(json["processes"][0]["guarantee_bytes"], kGiB);
  EXPECT_EQ(json["devices"][0]["processes"][0]["cached_bytes"], 4 * kGiB);
  EXPECT_EQ(json["devices"][0]["processes"][0]["spare_bytes"], 2 * kGiB);
  EXPECT_EQ(json["devices"][0]["processes"][0]["spilled_bytes"], 3 * kGiB);
  EXPECT_EQ(json["devices"][0]["processes"][0]["spilled_peer_bytes"], kGiB);
}

TEST_F(Top, LooksAgainUntilItIsInterrupted) {
  const auto ledger = join();
  for (const int stop : {SIGINT, SIGTERM}) {
    const pid_t pid = start({"top", "--json", "--interval", "0.1"}, {{"SPILLWAY_LEDGER", name_}});
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    ::kill(pid, stop);
    const Ran ran = wait(pid);
    EXPECT_EQ(ran.code, 0);
    EXPECT_GE(std::count(ran.out.begin(), ran.out.end(), '\n'), 2) << "one line a look";
  }
}

TEST_F(Top, SaysWhatIsNoLedger) {
  const int file = ::shm_open(("/" + name_).c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::ftruncate(file, 4096), 0);
  Ran ran = top({"--once"});
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, HasSubstr("its size is not a ledger's"));
  ASSERT_EQ(::fchmod(file, 0644), 0);
  ran = top({"--once"});
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, HasSubstr("others may use it"));
  ::close(file);
}

TEST_F(Top, RefusesWhatMakesNoSense) {
  EXPECT_EQ(top({"--interval", "0"}).code, 2);
  EXPECT_EQ(top({"--interval", "soon"}).code, 2);
  const Ran off = run({"top", "--once"}, {{"SPILLWAY_LEDGER", "off"}});
  EXPECT_EQ(off.code, 2);
  EXPECT_THAT(off.err, HasSubstr("SPILLWAY_LEDGER is off"));
}

}  // namespace
}  // namespace spillway::tools
