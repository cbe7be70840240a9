// What `spillway rehearse` offers to change in a command that does not fit.
#include "tools/spillway/rehearse/offers.h"

#include <gmock/gmock.h>

namespace spillway::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Words> batches_of(const Words& command) {
  RunOptions options;
  options.command = command;
  std::vector<Words> commands;
  for (const Offer& offer : smaller_batches(options)) commands.push_back(offer.options.command);
  return commands;
}

TEST(RehearseOffers, HalveABatchHoweverItIsGiven) {
  EXPECT_THAT(batches_of({"t.py", "--batch-size", "16", "--lr", "3"}),
              ElementsAre(Words{"t.py", "--batch-size", "8", "--lr", "3"},
                          Words{"t.py", "--batch-size", "4", "--lr", "3"},
                          Words{"t.py", "--batch-size", "2", "--lr", "3"}));
  EXPECT_THAT(batches_of({"t.py", "--per_device_train_batch_size=3"}),
              ElementsAre(Words{"t.py", "--per_device_train_batch_size=1"}));
  EXPECT_THAT(batches_of({"t.py", "train.batch_size=2", "eval.batch_size=8"}),
              ElementsAre(Words{"t.py", "train.batch_size=1", "eval.batch_size=8"}));
  EXPECT_THAT(batches_of({"t.py", "-bs", "2"}), ElementsAre(Words{"t.py", "-bs", "1"}));
}

TEST(RehearseOffers, LeaveAloneWhatIsNoBatchOfKnownMeaning) {
  for (const Words& command :
       {Words{"t.py"}, Words{"t.py", "--batch-size"}, Words{"t.py", "--batch-size", "auto"},
        Words{"t.py", "--batch-size", "1"}, Words{"t.py", "--batch-size", "-4"},
        Words{"t.py", "--batch-size", "99999999999999999999"}, Words{"t.py", "--batches", "16"},
        Words{"t.py", "--eval-batch-size", "16"}, Words{"t.py", "--evaluation-batch-size", "16"},
        Words{"t.py", "--test-batch-size=16"}, Words{"t.py", "--val_batch_size", "16"},
        Words{"t.py", "--batch-size=16k"}, Words{"t.py", "="},
        Words{"t.py", "--batch-size=4", "--micro-batch-size=2"}, Words{"t.py", "--", "-"}})
    EXPECT_THAT(batches_of(command), IsEmpty()) << ::testing::PrintToString(command);
}

TEST(RehearseOffers, NameTheOtherAllocators) {
  RunOptions options;
  EXPECT_EQ(other_allocators(options).size(), 2U);
  options.allocator = "expandable";
  ASSERT_EQ(other_allocators(options).size(), 1U);
  EXPECT_EQ(other_allocators(options).front().options.allocator, "spillway");
}

}  // namespace
}  // namespace spillway::tools
