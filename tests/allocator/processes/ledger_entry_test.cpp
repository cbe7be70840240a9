// What members of the ledger show, as who is no member reads it.
#include <sys/stat.h>

#include <cstddef>
#include <cstring>

#include "processes/ledger_segment.h"
#include "tests/allocator/processes/ledger_fixture.h"

namespace spillway {
namespace {

TEST_F(LedgerTest, AMemberShowsItselfToWhoIsNone) {
  std::vector<LedgerMember> members;
  std::string why_not;
  EXPECT_EQ(read_ledger(name_, &members, &why_not), LedgerRead::kNone);
  const auto ledger = join();
  ASSERT_EQ(read_ledger(name_, &members, &why_not), LedgerRead::kRead) << why_not;
  ASSERT_EQ(members.size(), 1u);
  EXPECT_FALSE(members[0].has_entry) << "it has not shown anything yet";
  ledger->show(entry_of(7));
  read_ledger(name_, &members, &why_not);
  ASSERT_TRUE(members.at(0).has_entry);
  EXPECT_EQ(members[0].process, static_cast<uint64_t>(::getpid()));
  EXPECT_STREQ(members[0].entry.program, "program 7");
  EXPECT_EQ(members[0].entry.devices[0].held_bytes, 7u);
  EXPECT_LT(members[0].age_ns, 60'000'000'000u);
  EXPECT_EQ(members[0].need_bytes, 0u);
  EXPECT_EQ(ledger->peers(), 0u) << "the reader is no member";
}

TEST_F(LedgerTest, AMemberSeesWhatTheOthersWouldGive) {
  constexpr uint64_t kAll = UINT64_MAX;
  const auto ledger = join(), one = join(), other = join();
  ledger->show(entry_of(1000));
  EXPECT_EQ(ledger->spare_elsewhere(kCard, kAll), 0u) << "its own, and what has not been shown, are not";
  one->show(entry_of(300));
  other->show(entry_of(40));
  EXPECT_EQ(ledger->spare_elsewhere(kCard, kAll), 340u);
  EXPECT_EQ(ledger->spare_elsewhere(kCard, 100), 100u);
  EXPECT_EQ(ledger->spare_elsewhere(DeviceUuid{9}, kAll), 0u) << "another card";
  LedgerEntry entry = entry_of(300);
  entry.device_count = 2;
  entry.devices[1] = {.uuid = DeviceUuid{9}, .spare_bytes = 7};
  one->show(entry);
  EXPECT_EQ(ledger->spare_elsewhere(DeviceUuid{9}, kAll), 7u);
  EXPECT_EQ(ledger->spare_elsewhere(kCard, kAll), 340u);
}

TEST_F(LedgerTest, WhoUsesOnlyOtherCardsIsNoPeerOnThisOne) {
  const auto ledger = join(), other = join();
  EXPECT_EQ(ledger->peers_on(DeviceUuid{9}), 1u) << "it has shown nothing yet";
  other->show(entry_of(40));
  EXPECT_EQ(ledger->peers_on(kCard), 1u);
  EXPECT_EQ(ledger->peers_on(DeviceUuid{9}), 0u);
  LedgerEntry entry = entry_of(40);
  entry.devices[0].spilled_peer_bytes = 1;
  other->show(entry);
  EXPECT_EQ(ledger->peers_on(DeviceUuid{9}), 1u) << "its memory may lie there";
  wait_until([&] { return ledger->spare_elsewhere(kCard, 100) == 0; });
  EXPECT_EQ(ledger->peers_on(DeviceUuid{9}), 1u) << "nobody knows what it has now";
}

// Of a stopped process nobody knows what it has now, and it gives nothing.
TEST_F(LedgerTest, WhatWasShownLongAgoIsNotOffered) {
  const auto ledger = join(), other = join();
  other->show(entry_of(40));
  EXPECT_EQ(ledger->spare_elsewhere(kCard, 100), 40u);
  wait_until([&] { return ledger->spare_elsewhere(kCard, 100) == 0; });
  other->show(entry_of(40));
  EXPECT_EQ(ledger->spare_elsewhere(kCard, 100), 40u);
}

TEST_F(LedgerTest, NoNumberThatAMemberShowsOverflows) {
  const auto ledger = join(), liar = join(), other = join();
  LedgerEntry entry = entry_of(UINT64_MAX);
  entry.device_count = UINT64_MAX;
  liar->show(entry);
  other->show(entry);
  EXPECT_EQ(ledger->spare_elsewhere(kCard, 1000), 1000u);
  EXPECT_EQ(ledger->spare_elsewhere(DeviceUuid{9}, 1000), 0u);
  EXPECT_GT(ledger->spare_elsewhere(kCard, UINT64_MAX), uint64_t{1} << 50);
}

TEST_F(LedgerTest, TheDeadHaveNothingToGive) {
  const auto ledger = join();
  const pid_t peer = start_peer(300, milliseconds(0), /*shows=*/true);
  const auto shown = [&] { return ledger->spare_elsewhere(kCard, 1000); };
  wait_until([&] { return shown() == 300; });
  end(peer);
  EXPECT_EQ(shown(), 0u);
}

TEST_F(LedgerTest, TheDeadAndTheirSuccessorsShowNothingOfTheDead) {
  const auto ledger = join();
  const pid_t dead = start_peer(1);
  std::vector<LedgerMember> members;
  std::string why_not;
  {
    const auto other = join();  // takes the third slot, and leaves it with an entry
    other->show(entry_of(9));
  }
  end(dead);
  read_ledger(name_, &members, &why_not);
  EXPECT_EQ(members.size(), 1u);
  start_peer(1);
  start_peer(1);
  read_ledger(name_, &members, &why_not);
  ASSERT_EQ(members.size(), 3u);
  for (const LedgerMember& member : members) EXPECT_FALSE(member.has_entry) << member.entry.program;
}

// Every field of an entry is of one writing, however often it is written meanwhile.
TEST_F(LedgerTest, AnEntryIsNeverAMixture) {
  const auto ledger = join();
  ledger->show(entry_of(0));
  const std::jthread writer([&](const std::stop_token& over) {
    for (uint64_t value = 1; !over.stop_requested(); ++value) {
      ledger->show(entry_of(value));
      // A reader that meets one writing after another may find no whole entry for long.
      if (value % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  unsigned read = 0;
  std::vector<LedgerMember> members;
  std::string why_not;
  for (const auto deadline = Clock::now() + milliseconds(20000); read < 2000 && Clock::now() < deadline;) {
    ASSERT_EQ(read_ledger(name_, &members, &why_not), LedgerRead::kRead);
    if (!members.at(0).has_entry) continue;
    ++read;
    const LedgerEntry& entry = members[0].entry;
    ASSERT_EQ(entry.failures, entry.devices[0].held_bytes);
    ASSERT_EQ(entry.failures, entry.devices[0].cached_bytes);
    ASSERT_EQ(entry.program, "program " + std::to_string(entry.failures));
  }
  EXPECT_EQ(read, 2000u);
}

// Stopped in the middle of writing, a member looks as one that was killed there.
TEST_F(LedgerTest, AWriterThatStopsHalfWayLeavesNoMixture) {
  const pid_t writer = ::fork();
  if (writer == 0) {
    std::string why_not;
    const std::unique_ptr<Ledger> ledger = Ledger::join(name_, &why_not);
    for (uint64_t value = 0; ledger != nullptr; ++value) ledger->show(entry_of(value));
    ::_exit(1);
  }
  children_.push_back(writer);
  std::vector<LedgerMember> members;
  std::string why_not;
  wait_until([&] { return read_ledger(name_, &members, &why_not) == LedgerRead::kRead && !members.empty(); });
  std::mt19937 random(3);
  unsigned half_way = 0;
  const auto deadline = Clock::now() + milliseconds(30000);
  while (half_way < 5 && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    int status = 0;
    ::kill(writer, SIGSTOP);
    ::waitpid(writer, &status, WUNTRACED);
    ASSERT_TRUE(WIFSTOPPED(status));
    read_ledger(name_, &members, &why_not);
    ASSERT_EQ(members.size(), 1u);
    const LedgerEntry& entry = members[0].entry;
    if (!members[0].has_entry) ++half_way;
    ASSERT_EQ(entry.failures, entry.devices[0].cached_bytes);
    ::kill(writer, SIGCONT);
  }
  EXPECT_GT(half_way, 0u) << "no stop came half way: this test has tested nothing";
}

TEST_F(LedgerTest, AnEntryWhoseWriterStoppedHalfWayIsNone) {
  const auto ledger = join();
  ledger->show(entry_of(7));
  const int file = ::shm_open(("/" + name_).c_str(), O_RDWR, 0600);
  const uint64_t odd = 3;
  const size_t at = offsetof(ledger::Segment, slots) + offsetof(ledger::Slot, shown);
  ASSERT_EQ(::pwrite(file, &odd, sizeof odd, static_cast<off_t>(at)), static_cast<ssize_t>(sizeof odd));
  std::vector<LedgerMember> members;
  std::string why_not;
  read_ledger(name_, &members, &why_not);
  EXPECT_FALSE(members.at(0).has_entry);
  ledger->show(entry_of(8));
  read_ledger(name_, &members, &why_not);
  EXPECT_TRUE(members.at(0).has_entry) << "and its owner can write it again";
  ::close(file);
}

TEST_F(LedgerTest, AReaderSaysWhatIsNoLedgerAndLeavesItAlone) {
  std::vector<LedgerMember> members;
  std::string why_not;
  const int file = ::shm_open(("/" + name_).c_str(), O_RDWR | O_CREAT, 0600);
  for (const size_t size : {size_t{0}, size_t{10}, sizeof(ledger::Segment)}) {
    const std::string garbage(size, '\x7f');
    ASSERT_EQ(::pwrite(file, garbage.data(), size, 0), static_cast<ssize_t>(size));
    EXPECT_EQ(read_ledger(name_, &members, &why_not), LedgerRead::kBroken);
    EXPECT_FALSE(why_not.empty());
  }
  const uint64_t magic = ledger::kMagic;
  const uint32_t older = ledger::kLayout - 1;
  ASSERT_EQ(::pwrite(file, &magic, sizeof magic, 0), static_cast<ssize_t>(sizeof magic));
  ASSERT_EQ(::pwrite(file, &older, sizeof older, 8), static_cast<ssize_t>(sizeof older));
  EXPECT_EQ(read_ledger(name_, &members, &why_not), LedgerRead::kBroken);
  EXPECT_NE(why_not.find("its layout is " + std::to_string(older) + ","), std::string::npos) << why_not;
  ASSERT_EQ(::fchmod(file, 0666), 0);
  EXPECT_EQ(read_ledger(name_, &members, &why_not), LedgerRead::kRefused);
  ::close(file);
}

// Whatever lies behind a right beginning, reading ends and stays in bounds, and so does being a member.
TEST_F(LedgerTest, NoContentIsTrusted) {
  const auto ledger = join();
  std::mt19937_64 random(5);
  const int file = ::shm_open(("/" + name_).c_str(), O_RDWR, 0600);
  std::vector<uint64_t> words((sizeof(ledger::Segment) - offsetof(ledger::Segment, slots)) / 8);
  for (int round = 0; round < 20; ++round) {
    for (uint64_t& word : words) word = random() % 4 == 0 ? random() : 0;
    // Owners that live, so that the rest is looked at.
    for (size_t slot = 0; slot < ledger::kSlots; ++slot)
      words[slot * sizeof(ledger::Slot) / 8] = ledger::packed(this_process());
    ASSERT_GT(::pwrite(file, words.data(), words.size() * 8, offsetof(ledger::Segment, slots)), 0);
    std::vector<LedgerMember> members;
    std::string why_not;
    EXPECT_EQ(read_ledger(name_, &members, &why_not), LedgerRead::kRead);
    EXPECT_EQ(members.size(), ledger::kSlots);
    for (const LedgerMember& member : members) EXPECT_LT(std::strlen(member.entry.program), 96u);
    Ledger::Need need;
    for (int i = 0; i < 100 && ledger->wait_for_need(&need, milliseconds(0)); ++i) ledger->answer(need, 1);
    ask(*ledger, milliseconds(10));
  }
  ::close(file);
}

}  // namespace
}  // namespace spillway
