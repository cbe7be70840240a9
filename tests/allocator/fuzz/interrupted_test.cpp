// What another thread does while the allocator waits for the driver: a wait that was over before counts for
// nothing that came after it.
#include "tests/allocator/fuzz/interrupted_driver.h"

#include <vector>

#include "strategies/ladder/ladder.h"

namespace spillway::testing {
namespace {

class Interrupted : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    allocator = std::make_unique<Allocator>(driver.table());
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(make_wait_for_events());
    ladder->add(make_stitch());
    allocator->set_handler(ladder.get());
    allocator->limit(kDevice, 32 * kMiB);
  }
  void TearDown() override {
    allocator->set_handler(nullptr);
    SimulatedDevice::TearDown();
  }
  InterruptedDriver driver;
  std::unique_ptr<Ladder> ladder;
};

// The stream has come to rest, and goes on before the allocator looks again.
TEST_F(Interrupted, AWaitForAStreamDrainsNothingThatWasFreedAfterIt) {
  const StreamId own = new_stream(), other = new_stream();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(get(4 * kMiB, own));
  for (size_t i = 0; i < 8; i += 2) put(blocks[i]);
  driver.after_next_wait([&] {
    launch(own, blocks[1], 4 * kMiB, 10'000'000);
    EXPECT_EQ(allocator->free(blocks[1]), Status::kOk);
  });
  ASSERT_NE(get(16 * kMiB, other), 0u) << failure->text;
  EXPECT_EQ(text(control->violations), "") << "the kernel still writes to pages that were taken";
  table.cuCtxSynchronize();
}

// Two blocks wait for events of one stream. Somebody else sees the first pass before the one that waited for
// it does.
TEST_F(Interrupted, AnEventThatSomebodyElseSawPassIsNotTakenForTheNext) {
  allocator->limit(kDevice, 34 * kMiB);
  const uint64_t small = get(512);  // on a page of its own
  const StreamId own = new_stream(), other = new_stream();
  const uint64_t first = get(16 * kMiB, own), second = get(16 * kMiB, own);
  for (const uint64_t block : {first, second}) {
    launch(other, block, 16 * kMiB, 1'000'000);
    allocator->record_stream(block, other);
    put(block);
  }
  driver.after_next_wait([&] {
    launch({}, small, 512, 1);  // a thread that only looks on could see more
    let_time_pass();            // looks at the events now and then
  });
  EXPECT_EQ(get(16 * kMiB, own), first);
  EXPECT_EQ(memory().pending, 16 * kMiB) << "the second kernel still runs";
}

}  // namespace
}  // namespace spillway::testing
