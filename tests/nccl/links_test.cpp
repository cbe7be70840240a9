// How the cards of the table are connected, in NCCL's model.
#include <gtest/gtest.h>

#include "simulator/cards/cards.h"
#include "simulator/libraries/nccl/model.h"

namespace {

using spillway::nccl::links_of;

constexpr double kMostOverPciExpress = 64;  // GB/s: generation 5, 16 lanes, one way

// A card that is not in NCCL's table meets its peers over PCIe, and nobody is told.
TEST(Links, ACardWithNvlinkIsConnectedByIt) {
  int with_nvlink = 0;
  for (const spillway::cards::Card& card : spillway::cards::cards()) {
    SCOPED_TRACE(card.id);
    const double bus = links_of(card.name).bytes_per_ns;
    if (card.peer_gbs > kMostOverPciExpress) {
      ++with_nvlink;
      EXPECT_GT(bus, 0.8 * card.peer_gbs)
          << "add the card to kConnected in simulator/libraries/nccl/model.cpp";
      EXPECT_LT(bus, 1.2 * card.peer_gbs);
    } else {
      EXPECT_LE(bus, card.peer_gbs) << "its copies to a peer go over PCIe, and so do its collectives";
    }
  }
  EXPECT_GT(with_nvlink, 0);
}

}  // namespace
