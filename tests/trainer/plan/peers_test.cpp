// What is on a peer, by the estimate: whose memory it takes, which link it passes, and which device is
// chosen.
#include "trainer/plan/devices/peers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/small_models.h"
#include "trainer/plan/device_map.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/planner.h"

namespace spillway::trainer {
namespace {

const Shape kPeerShape{.model = small_gpt2(6, 384, 6, 256), .batch = 12};
const Plan kPeerless{.micro_batch = 12};

Plan with_states_on(uint32_t peer) {
  Plan plan = kPeerless;
  plan.optimizer = Place::kPeer;
  plan.peers = {{0, peer}};
  return plan;
}

std::optional<Move> peer_move_of(MoveKind kind, const Plan& plan, const Machine& machine,
                                 uint32_t device = 0) {
  for (const Move& move : neighbours(plan, kPeerShape, machine, Guarantee::kBitExact, device))
    if (move.kind == kind) return move;
  return std::nullopt;
}

TEST(Peers, TextAndTomlNameThem) {
  Plan plan = with_states_on(2);
  plan.parameters = plan.offload_to = Place::kPeer;
  plan.offload = {0};
  EXPECT_EQ(
      to_string(plan),
      "micro_batch=12 evaluation_batch=1 optimizer=peer parameters=peer offload=0 offload_to=peer peer0=2");
  std::string error;
  EXPECT_EQ(parse_plan("optimizer = \"peer\"\npeers = {0 = 2}\n", 6, kPeerless, &error), with_states_on(2))
      << error;
  plan.offload.clear();
  EXPECT_EQ(normalised(plan).offload_to, Place::kHost) << "nothing goes there";
}

TEST(Peers, WhatIsThereCountsThereAndWhatHasNoPeerStays) {
  const Machine machine{.devices = 3};
  const Estimate plain = estimate(kPeerShape, kPeerless, machine),
                 there = estimate(kPeerShape, with_states_on(2), machine);
  EXPECT_EQ(there.device_peak_bytes[1], 0u);
  EXPECT_EQ(there.device_peak_bytes[2], 8 * parameter_count(kPeerShape.model));
  EXPECT_EQ(there.evaluation_peak_bytes[2], there.device_peak_bytes[2]);
  EXPECT_LT(there.device_peak_bytes[0], plain.device_peak_bytes[0]);
  EXPECT_EQ(there.host_bytes, 0u);
  Plan of_another = with_states_on(2);
  of_another.peers = {{1, 2}};
  EXPECT_EQ(estimate(kPeerShape, of_another, machine).device_peak_bytes, plain.device_peak_bytes);
}

TEST(Peers, CopiesTakeTheLinkBetweenDevices) {
  Machine machine{.devices = 2, .launch_seconds = 1e-30};
  Plan host = kPeerless;
  host.optimizer = Place::kHost;
  const StepTime there = estimate(kPeerShape, with_states_on(1), machine).time,
                 on_host = estimate(kPeerShape, host, machine).time;
  EXPECT_EQ(there.host_link, 0);
  EXPECT_GT(there.peer_link, 0);
  EXPECT_LT(there.seconds(), on_host.seconds());
  machine.peer_bytes_per_second = machine.host_bytes_per_second;
  EXPECT_DOUBLE_EQ(estimate(kPeerShape, with_states_on(1), machine).time.seconds(), on_host.seconds());
}

// Passes with all of them there, at the same rates as with the host in the peer's place.
TEST(Peers, StreamsCostAsMuchAsTheHostsAtTheSameRate) {
  const Machine machine{.devices = 2, .host_bytes_per_second = 1e9, .peer_bytes_per_second = 1e9};
  Plan there{.micro_batch = 4}, host{.micro_batch = 4};
  there.peers = {{0, 1}};
  there.parameters = there.gradients = there.offload_to = Place::kPeer;
  host.parameters = host.gradients = Place::kHost;
  there.offload = host.offload = {0, 1, 2, 3, 4, 5};
  const Estimate a = estimate(kPeerShape, there, machine), b = estimate(kPeerShape, host, machine);
  EXPECT_NEAR(a.time.seconds(), b.time.seconds(), 1e-9);
  EXPECT_EQ(a.device_peak_bytes[0], b.device_peak_bytes[0]);
  EXPECT_EQ(a.device_peak_bytes[1], b.host_bytes);
  EXPECT_STREQ(a.time.limit(), "peer link");
}

TEST(Peers, MovesGoToTheDeviceWithMostRoomAndNoneWhereNoneHasRoom) {
  const uint64_t states = 8 * parameter_count(kPeerShape.model), large = uint64_t{1} << 40;
  const auto to = [&](std::vector<uint64_t> limits) -> std::optional<uint32_t> {
    const auto move = peer_move_of(MoveKind::kOptimizerToPeer, kPeerless,
                                   {.devices = 3, .device_limits = std::move(limits)});
    if (!move) return std::nullopt;
    EXPECT_GT(move->bytes_freed, 0u);
    return move->to.peer_of(0);
  };
  EXPECT_EQ(to({large, 2 * states, 3 * states}), 2u);
  EXPECT_EQ(to({large, 3 * states, 2 * states}), 1u);
  EXPECT_EQ(to({large, states, states / 2}), 1u);
  EXPECT_EQ(to({large, states / 2, states / 2}), std::nullopt);
  EXPECT_FALSE(peer_move_of(MoveKind::kOptimizerToPeer, kPeerless, {.devices = 2, .has_peer_access = false}));
  EXPECT_FALSE(peer_move_of(MoveKind::kOptimizerToPeer, kPeerless, {.devices = 1}));
}

TEST(Peers, EachKindHasAMoveOfItsOwnAndTheHostHasOneFromThere) {
  const Machine machine{.devices = 2};
  for (const MoveKind kind : {MoveKind::kOptimizerToPeer, MoveKind::kParametersToPeer,
                              MoveKind::kGradientsToPeer, MoveKind::kActivationsToPeer}) {
    const auto move = peer_move_of(kind, kPeerless, machine);
    ASSERT_TRUE(move) << name_of(kind);
    EXPECT_EQ(move->to.peers, (DeviceMap{{0, 1}})) << name_of(kind);
    EXPECT_TRUE(move->to.uses_peers()) << name_of(kind);
    EXPECT_GT(move->bytes_freed, 0u) << name_of(kind);
  }
  const auto back = peer_move_of(MoveKind::kOptimizerToHost, with_states_on(1), machine, 1);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->bytes_freed, 8 * parameter_count(kPeerShape.model)) << "of the peer, which is short";
}

TEST(Peers, ThoseThatAPlanDoesNotNameAreTheRoomiest) {
  Plan plan = kPeerless;
  choose_peers(&plan, kPeerShape, {.devices = 3});
  EXPECT_TRUE(plan.peers.empty()) << "it wants none";
  plan.optimizer = Place::kPeer;
  choose_peers(&plan, kPeerShape, {.devices = 3, .device_limits = {1 << 20, 1 << 30, uint64_t{1} << 31}});
  EXPECT_EQ(plan.peers, (DeviceMap{{0, 2}}));
  Plan spread = kPeerless;
  spread.gradients = Place::kPeer;
  for (uint32_t layer = 0; layer < 6; ++layer) spread.placement[layer] = 1 + layer % 2;
  choose_peers(&spread, kPeerShape, {.devices = 4});
  EXPECT_EQ(spread.peers, (DeviceMap{{0, 3}, {1, 3}, {2, 3}}));
}

// A table of words on the first device, whose moments no other device takes with a layer.
TEST(Peers, ThePlannerUsesTheMemoryOfADeviceThatIsIdle) {
  Shape shape{.model = small_gpt2(1, 512, 8, 64), .batch = 4};
  shape.model.vocabulary = 50000;
  Machine machine{.devices = 2};
  const Plan plain{.micro_batch = 4};
  machine.device_bytes = estimate(shape, plain, machine).device_peak_bytes[0] * 3 / 4;
  const Planned planned = find_plan(shape, machine, Guarantee::kBitExact, plain);
  ASSERT_TRUE(planned.best);
  EXPECT_TRUE(planned.best->plan.uses_peers()) << to_string(planned.best->plan);
  machine.device_limits = {machine.device_bytes, 64 << 20};
  const Planned small = find_plan(shape, machine, Guarantee::kBitExact, plain);
  ASSERT_TRUE(small.best);
  EXPECT_FALSE(small.best->plan.uses_peers()) << "the other one has no room";
}

}  // namespace
}  // namespace spillway::trainer
