// Three devices over PCIe: an atomic on a peer's memory is a plain read and write there, so that a block that
// kernels add to would get wrong values without an error.
#include "tests/strategies/tiers/peers.h"

namespace spillway::testing {
namespace {

using PciePeers = PeerSpill;

TEST_F(PciePeers, TakeNoBlocks) {
  const auto blocks = three_blocks();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  EXPECT_EQ(memory().spilled_peer, 0u);
  EXPECT_EQ(charged(kPeer), 0u);
  EXPECT_GE(on_host(), 18 * kMiB);
  expect_values(blocks);
}

TEST_F(PciePeers, AreRefusedWithTheReason) {
  with({.host_bytes = 0, .peer_bytes = 256 * kMiB});
  three_blocks();
  ASSERT_EQ(get(20 * kMiB), 0u);
  EXPECT_NE(story().find("not spill_to_peer: no peer with native atomics"), std::string::npos) << story();
}

}  // namespace
}  // namespace spillway::testing
