// The contract of Plan: values, texts, the lattice of joins, and moves that only ever lead downwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/sanitized.h"
#include "tests/trainer/small_models.h"
#include "trainer/plan/estimate.h"
#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/plan/parameters/tiles.h"
#include "trainer/plan/parameters/weight_storage.h"
#include "trainer/plan/plan.h"

namespace spillway::trainer {
namespace {

using testing::HasSubstr;

constexpr uint32_t kLayers = 6;
const Shape kShape{.model = small_gpt2(kLayers, 384, 6, 256), .batch = 12};
const Machine kMachine{.devices = 2};

Plan random_plan(std::mt19937_64& random) {
  Plan plan;
  plan.micro_batch = 1 + random() % 16;
  plan.evaluation_batch = 1 + random() % 16;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    if (random() % 2) plan.recompute.insert(layer);
    if (random() % 3 == 0) plan.recompute_attention.insert(layer);
    if (random() % 3 == 0) plan.recompute_mlp.insert(layer);
    if (random() % 3 == 0) plan.offload.insert(layer);
    if (random() % 3 == 0) plan.placement[layer] = random() % 3;
  }
  plan.optimizer = static_cast<Place>(random() % 4);
  plan.recompute_segment = 1 + random() % 4;
  plan.head_chunks = 1 + random() % 4;
  plan.parameters = static_cast<Place>(random() % 4);
  plan.gradients = static_cast<Place>(random() % 4);
  plan.offload_to = static_cast<Place>(1 + random() % 3);
  for (uint32_t device = 0; device < 2; ++device)
    if (random() % 2) plan.peers[device] = random() % 3;
  plan.pipeline = 1 + random() % 4;
  plan.tiles = 1 + random() % 4;
  plan.just_in_time = random() % 2;
  plan.update_slots = kLeastUpdateSlots + random() % 4;
  plan.update_on_host = random() % 2;
  if (random() % 4 == 0) plan.parameters = plan.gradients = plan.optimizer = Place::kHost, plan.tiles = 1;
  return normalised(plan);
}

TEST(Plan, JoinIsCommutativeAssociativeAndIdempotent) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const Plan a = random_plan(random), b = random_plan(random), c = random_plan(random);
    ASSERT_EQ(join(a, b), join(b, a)) << to_string(a) << " | " << to_string(b);
    ASSERT_EQ(join(join(a, b), c), join(a, join(b, c)));
    ASSERT_EQ(join(a, a), a);
  }
}

TEST(Plan, JoinNeedsNoMoreActivationsThanEitherSide) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 500; ++i) {
    Plan a = random_plan(random), b = random_plan(random);
    a.placement.clear(), b.placement.clear();
    const auto peak = [](const Plan& plan) { return estimate(kShape, plan, kMachine).device_peak_bytes[0]; };
    a.recompute = b.recompute, a.recompute_segment = b.recompute_segment;
    a.recompute_attention = b.recompute_attention, a.recompute_mlp = b.recompute_mlp;
    a.offload = b.offload;  // a layer alone leaves its device sooner than one that another follows
    a.update_on_host = b.update_on_host = false;  // states that also go to a disk, or tiles, pass the device
    // What is on a peer is no less there.
    a.peers.clear(), b.peers.clear(), a.offload_to = b.offload_to = Place::kHost;
    ASSERT_LE(peak(join(a, b)), std::min(peak(a), peak(b)));
  }
}

TEST(Plan, TextAndTomlSurviveTheRoundTrip) {
  std::mt19937_64 random(9);
  for (int i = 0; i < 500; ++i) {
    const Plan plan = random_plan(random);
    std::string error;
    const auto back = parse_plan(to_toml(plan), kLayers, Plan{}, &error);
    ASSERT_TRUE(back) << error << "\n" << to_toml(plan);
    ASSERT_EQ(back.value_or(Plan{}), plan);
    ASSERT_EQ(hash(back.value_or(Plan{})), hash(plan));
  }
}

TEST(Plan, HashIsStableAcrossBuildsAndTellsPlansApart) {
  Plan plan{.micro_batch = 4,
            .evaluation_batch = 8,
            .recompute = {0, 1, 2, 5},
            .optimizer = Place::kHost,
            .placement = {{4, 1}, {5, 1}}};
  EXPECT_EQ(to_string(plan), "micro_batch=4 evaluation_batch=8 recompute=0-2,5 optimizer=host device1=4-5");
  EXPECT_EQ(to_string({.parameters = Place::kHost, .gradients = Place::kHost}),
            "micro_batch=1 evaluation_batch=1 parameters=host gradients=host");
  EXPECT_EQ(to_string({.parameters = Place::kNvme, .gradients = Place::kNvme}),
            "micro_batch=1 evaluation_batch=1 parameters=nvme gradients=nvme");
  EXPECT_EQ(to_string({.just_in_time = true}), "micro_batch=1 evaluation_batch=1 update=just_in_time");
  EXPECT_EQ(hash(Plan{}), 0x643c0d9b87e635a9ull) << std::hex << hash(Plan{});
  std::mt19937_64 random(10);
  std::map<uint64_t, std::string> seen;
  for (int i = 0; i < 5000; ++i) {
    const Plan other = random_plan(random);
    const auto [it, fresh] = seen.emplace(hash(other), to_string(other));
    ASSERT_EQ(it->second, to_string(other));
  }
}

TEST(Plan, ALayerThatIsComputedAgainIsNotNamedForItsParts) {
  const Plan plan{.recompute = {1}, .recompute_attention = {0, 1}, .recompute_mlp = {1, 2}};
  EXPECT_EQ(normalised(plan), (Plan{.recompute = {1}, .recompute_attention = {0}, .recompute_mlp = {2}}));
  EXPECT_EQ(join({.recompute_mlp = {1, 2}}, {.recompute = {1}}),
            (Plan{.recompute = {1}, .recompute_mlp = {2}}));
  EXPECT_EQ(normalised({.recompute = {0, 1}, .recompute_segment = 5}).recompute_segment, 2u);
  EXPECT_EQ(normalised({.recompute_segment = 5}), Plan{});
}

TEST(Plan, SlotsAreForStatesThatComeFromMemoryBesideAForward) {
  Plan plan{.optimizer = Place::kHost, .just_in_time = true, .update_slots = 50};
  EXPECT_EQ(normalised(plan).update_slots, 50u);
  EXPECT_EQ(to_string(plan),
            "micro_batch=1 evaluation_batch=1 optimizer=host update=just_in_time update_slots=50");
  EXPECT_EQ(join(plan, {.optimizer = Place::kHost}).update_slots, kLeastUpdateSlots);
  plan.optimizer = Place::kNvme;  // the host's buffers are those of a few tiles
  EXPECT_EQ(normalised(plan).update_slots, kLeastUpdateSlots);
  plan.optimizer = Place::kHost, plan.just_in_time = false;
  EXPECT_EQ(normalised(plan).update_slots, kLeastUpdateSlots);
}

TEST(Plan, TheHostUpdatesWhatItHasAllOf) {
  Plan plan{.update_slots = 50, .update_on_host = true};
  EXPECT_EQ(normalised(plan), Plan{});
  plan.parameters = plan.gradients = plan.optimizer = Place::kHost, plan.just_in_time = true;
  EXPECT_EQ(to_string(normalised(plan)),
            "micro_batch=1 evaluation_batch=1 optimizer=host parameters=host gradients=host "
            "update=just_in_time update_on=host")
      << "no states come";
  EXPECT_TRUE(join(plan, {}).update_on_host);
  plan.tiles = 2;
  EXPECT_FALSE(normalised(plan).update_on_host);
}

TEST(Plan, TilesAreOfLayersOfWhichTheDeviceHasNothing) {
  Plan plan{.optimizer = Place::kNvme, .tiles = 4};
  EXPECT_EQ(normalised(plan).tiles, 1u);
  plan.parameters = plan.gradients = Place::kHost;
  EXPECT_EQ(normalised(plan).tiles, 4u);
  EXPECT_EQ(to_string(plan),
            "micro_batch=1 evaluation_batch=1 optimizer=nvme parameters=host gradients=host tiles=4");
  EXPECT_EQ(tiles_of(plan, {.precision = Precision::kInt8}), 1u);
  EXPECT_EQ(tiles_of(plan, {.optimizer = OptimizerKind::kAdafactor}), 1u);
  plan.optimizer = Place::kDevice;
  EXPECT_EQ(normalised(plan).tiles, 1u);
}

Parameter matrix_of(int layer, std::vector<int64_t> sizes) {
  Parameter matrix;
  matrix.layer = layer, matrix.sizes = std::move(sizes);
  return matrix;
}

TEST(Plan, TilesOfAMatrixHaveAMultipleOfLinesAndOfTheOptimizersTiles) {
  const Parameter matrix = matrix_of(0, {1000, 4096});
  const MatrixCut cut = cut_of(matrix, 4).value();
  EXPECT_EQ(cut.row_tile, 256);
  EXPECT_EQ(cut.row_tiles(), 4);
  EXPECT_EQ(cut.column_tile, 1024);
  EXPECT_EQ(cut.update_tile, 256 * 4096);
  EXPECT_EQ(cut_of(matrix, 1000).value().row_tile, kTileLines);
  EXPECT_EQ(cut_of(matrix, 1000).value().update_tile, 1 << 18);
  EXPECT_EQ(cut_of(matrix_of(0, {40, 24}), 4).value().row_tiles(), 1);
  EXPECT_FALSE(cut_of(matrix_of(0, {4096}), 4));
  EXPECT_FALSE(cut_of(matrix_of(-1, {4096, 4096}), 4));
}

TEST(Neighbours, LayersComeInTilesWhereThatFreesAnything) {
  Plan plan{.micro_batch = 1, .optimizer = Place::kHost};
  plan.parameters = plan.gradients = Place::kHost;
  const Shape large{small_gpt2(2, 1024, 2, 16), 4};
  const auto tile = [&](const Plan& from, Guarantee floor) {
    std::optional<Move> found;
    for (const Move& move : neighbours(from, large, kMachine, floor))
      if (move.kind == MoveKind::kTileLayers) found = move;
    return found;
  };
  const Move move = tile(plan, Guarantee::kNumericallyEqual).value();
  EXPECT_EQ(move.to.tiles, 4u);
  // Two slots of weights and three of gradients, and a fresh gradient.
  EXPECT_GT(move.bytes_freed, uint64_t{5} * (8 - 1) * (4 << 20));
  EXPECT_FALSE(tile(move.to, Guarantee::kNumericallyEqual));
  EXPECT_FALSE(tile(plan, Guarantee::kBitExact));
  plan.gradients = Place::kDevice;
  EXPECT_FALSE(tile(plan, Guarantee::kNumericallyEqual));
}

TEST(Plan, ASegmentHasRecomputedLayersInARowOnOneDevice) {
  const Plan plan{.recompute = {0, 1, 2, 4, 5}, .placement = {{5, 1}}, .recompute_segment = 2};
  std::vector<uint32_t> ends;
  for (uint32_t layer = 0; layer < 6; layer = ends.back()) ends.push_back(plan.segment_end(layer, 6));
  EXPECT_EQ(ends, (std::vector<uint32_t>{2, 3, 4, 5, 6}));
}

TEST(Plan, TheLastLayerKeepsWhatItsBackwardNeedsAtOnce) {
  const Plan plan{.offload = {0, 2, 5}};
  EXPECT_EQ(to_string(plan), "micro_batch=1 evaluation_batch=1 offload=0,2,5");
  EXPECT_TRUE(plan.offloads(0, 1, 6));
  EXPECT_FALSE(plan.offloads(1, 2, 6));
  EXPECT_TRUE(plan.offloads(2, 5, 6)) << "the first of a segment counts";
  EXPECT_FALSE(plan.offloads(2, 6, 6)) << "a segment up to the last";
  EXPECT_FALSE(plan.offloads(5, 6, 6));
}

// Without one of n layers a device has n - 1 at the end: so many it may have before the first one has left.
TEST(Plan, WhatALayerKeepsLeavesBeforeTheDeviceWouldHaveMoreThanAtTheEnd) {
  EXPECT_EQ((Plan{.offload = {0}}.offloaded_until(0, 8)), 6u);
  EXPECT_EQ((Plan{.offload = {2}}.offloaded_until(2, 12)), 10u);
  const Plan first{.offload = {0, 1}}, spread{.offload = {0, 4}};
  EXPECT_EQ(first.offloaded_until(0, 8), 5u);
  EXPECT_EQ(first.offloaded_until(1, 8), 6u);
  EXPECT_EQ(spread.offloaded_until(0, 8), 5u);
  EXPECT_EQ(spread.offloaded_until(4, 8), 6u);
  Plan all{.offload = {0, 1, 2, 3}};
  for (uint32_t layer = 0; layer < 4; ++layer)
    EXPECT_EQ(all.offloaded_until(layer, 4), std::min(3u, layer + 1)) << "there is no room";
  all.placement = {{2, 1}, {3, 1}};
  all.offload = {0, 2};
  EXPECT_EQ(all.offloaded_until(0, 4), 2u) << "the next one that is offloaded";
  EXPECT_EQ(all.offloaded_until(2, 4), 3u) << "but before the head";
  Plan again{.recompute = {0, 1, 2, 3, 4, 5}, .offload = {0}};
  EXPECT_EQ(again.offloaded_until(0, 8), 6u) << "two layers keep all that they have";
}

TEST(Plan, ALayerNamedOnDeviceZeroIsTheSameAsOneNotNamed) {
  EXPECT_EQ(normalised(Plan{.placement = {{2, 0}}}), Plan{});
  EXPECT_EQ(hash(Plan{.placement = {{2, 0}}}), hash(Plan{}));
}

struct BadPlan {
  const char* toml;
  const char* says;
};

TEST(Plan, ErrorsNameTheLineAndTheNearestKey) {
  const BadPlan cases[] = {
      {"\nmicro_bach = 4", "line 2: unknown key 'micro_bach': did you mean 'micro_batch'?"},
      {"micro_batch = 0", "'micro_batch' must be between 1 and"},
      {"micro_batch = 2.0", "'micro_batch' must be an integer, not a number"},
      {"micro_batch = \"4\"", "must be an integer, not text"},
      {"recompute = 7", "up to 6"},
      {"recompute = [6]", "layers from 0 to 5"},
      {"recompute = \"some\"", "\"none\", \"all\""},
      {"recompute_mlp = [6]", "'recompute_mlp' must list layers from 0 to 5"},
      {"recompute_attention = 7", "'recompute_attention' must be \"none\", \"all\""},
      {"recompute_atention = 1", "did you mean 'recompute_attention'?"},
      {"offload = [6]", "'offload' must list layers from 0 to 5"},
      {"offload = \"some\"", "'offload' must be \"none\", \"all\""},
      {"recompute_segment = 0", "'recompute_segment' must be between 1 and"},
      {"optimizer = \"disk\"", "\"device\", \"peer\", \"host\" or \"nvme\", not \"disk\""},
      {"optimizer = \"\"", "\"host\" or \"nvme\""},
      {"parameters = \"hots\"",
       "'parameters' must be \"device\", \"peer\", \"host\" or \"nvme\", not \"hots\""},
      {"offload_to = \"device\"", "'offload_to' must be \"peer\", \"host\" or \"nvme\", not \"device\""},
      {"peers = [1]", "'peers' must be a table of devices and the peer of each"},
      {"peers = {0 = 0}",
       "'peers' must give device 0 another device: device indices are numbers from 0 to 63"},
      {"peers = {gpu = 1}", "'peers' has a device \"gpu\": device indices are numbers from 0 to 63"},
      {"gradients = 1", "'gradients' must be"},
      {"devices = [0, -1]", "has none for layer 1: device indices are numbers from 0 to 63"},
      {"devices = \"evenly\"", "'devices' must be \"first\", a list"},
      {"devices = {\"0\" = [0, 1, 2, 3, 4], \"1\" = [4, 5]}", "layer 4 on device 0 and on device 1"},
      {"devices = {\"0\" = [0, 1, 2], \"1\" = [4, 5]}", "names no device for layer 3"},
      {"devices = {\"0\" = [0, 1, 2, 3, 4, 5], \"1\" = [6]}",
       "a layer on device 1 that the model does not have: they are from 0 to 5"},
      {"devices = {\"gpu1\" = [0]}", "has a device \"gpu1\": device indices are numbers from 0 to 63"},
      {"devices = {\"1\" = 3}", "must give device 1 a list of layers"},
      {"update = \"later\"", "'update' must be \"at_commit\" or \"just_in_time\", not \"later\""},
      {"update_on = \"processor\"", "'update_on' must be \"device\" or \"host\", not \"processor\""},
      {"update_slots = 2", "'update_slots' must be between 3 and"},
      {"pipeline = 0", "'pipeline' must be between 1 and"},
      {"devices = [0,0,0,0,0,0,1]", "more layers than the model"},
      {"head_chunks = 0", "'head_chunks' must be between 1 and"},
      {"head_chunk = 2", "unknown key 'head_chunk': did you mean 'head_chunks'?"},
      {"devices = 1", "'devices' must be \"first\", a list with a device for each layer, or a table"},
      {"micro_batch = ", "line 1"},
  };
  for (const BadPlan& bad : cases) {
    std::string error;
    EXPECT_FALSE(parse_plan(bad.toml, kLayers, Plan{}, &error)) << bad.toml;
    EXPECT_THAT(error, HasSubstr(bad.says));
  }
}

TEST(Neighbours, RespectTheFloorAndEndAfterABoundedNumberOfMoves) {
  for (const Move& move : neighbours({.micro_batch = 12}, kShape, kMachine, Guarantee::kBitExact))
    EXPECT_EQ(move.guarantee, Guarantee::kBitExact) << move.name;

  std::mt19937_64 random(11);
  for (int walk = 0; walk < (kSanitized ? 6 : 50); ++walk) {
    Plan plan{.micro_batch = walk % 2 ? 12u : 3u, .evaluation_batch = 12, .pipeline = 4};
    int moves = 0;
    for (; moves < 40; ++moves) {
      const auto next = neighbours(plan, kShape, kMachine, Guarantee::kStatisticsChange, random() % 2);
      if (next.empty()) break;
      const Move& move = next[random() % next.size()];
      ASSERT_NE(move.to, plan) << move.name;
      Plan before = plan, after = move.to;  // where layers lie may change back: another device runs out
      before.placement.clear(), after.placement.clear();
      before.peers.clear(), after.peers.clear();
      ASSERT_EQ(join(before, after), after) << "a move never gives back what another move gained";
      plan = move.to;
    }
    EXPECT_LT(moves, 40);
    EXPECT_EQ(plan.micro_batch, 1u);
    EXPECT_EQ(plan.recompute.size(), kLayers);
  }
}

TEST(Neighbours, EveryMoveIsPredictedToFreeMemoryWhereItActs) {
  for (const Move& move : neighbours({.micro_batch = 12, .evaluation_batch = 12}, kShape, kMachine,
                                     Guarantee::kNumericallyEqual))
    EXPECT_GT(move.bytes_freed + move.evaluation_bytes_freed, 0u) << move.name;
}

TEST(Neighbours, ActivationsGoToTheHostHalfOfTheLayersFirstWhereThatFreesAnything) {
  const auto offload = [](const Plan& plan, const Shape& shape) {
    std::optional<Move> found;
    for (const Move& move : neighbours(plan, shape, kMachine, Guarantee::kBitExact))
      if (move.kind == MoveKind::kOffloadActivations) found = move;
    return found;
  };
  const Plan none{.micro_batch = 12};
  const Move first = offload(none, kShape).value(), second = offload(first.to, kShape).value();
  EXPECT_EQ(first.to.offload, (std::set<uint32_t>{0, 1, 2}));
  EXPECT_EQ(second.to.offload, (std::set<uint32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_GT(first.bytes_freed, 0u);
  EXPECT_GT(second.bytes_freed, 0u);
  EXPECT_FALSE(offload(second.to, kShape));
  Shape small = kShape;
  small.offload_least_bytes = uint64_t{1} << 40;
  EXPECT_FALSE(offload(none, small)) << "nothing is large enough";
}

TEST(Neighbours, ActivationsGoToADiskFromTheCardAndStayThere) {
  const auto offload = [](MoveKind kind, const Plan& plan, const Machine& machine) {
    std::optional<Move> found;
    for (const Move& move : neighbours(plan, kShape, machine, Guarantee::kBitExact))
      if (move.kind == kind) found = move;
    return found;
  };
  Machine machine;
  machine.nvme_least_bytes = 0;
  const Plan none{.micro_batch = 12};
  const Move first = offload(MoveKind::kActivationsToNvme, none, machine).value();
  EXPECT_EQ(first.to.offload, (std::set<uint32_t>{0, 1, 2}));
  EXPECT_EQ(first.to.offload_to, Place::kNvme);
  EXPECT_EQ(first.guarantee, Guarantee::kBitExact);
  EXPECT_GT(first.bytes_freed, 0u);
  EXPECT_EQ(offload(MoveKind::kActivationsToNvme, first.to, machine)->to.offload.size(), 6u);
  EXPECT_FALSE(offload(MoveKind::kOffloadActivations, first.to, machine)) << "the host may have no room";
  Plan host = first.to;
  host.offload_to = Place::kHost;
  EXPECT_FALSE(offload(MoveKind::kActivationsToNvme, host, machine)) << "it would free nothing of the card";
  machine.nvme_least_bytes = uint64_t{1} << 40;
  EXPECT_FALSE(offload(MoveKind::kActivationsToNvme, none, machine)) << "that would be the move to the host";
}

// A pass waits for the disk, which writes all layers but the last two, and reads those that are in no buffer.
TEST(Estimate, ActivationsOnADiskTakeItsTimeBothWaysAndFourBuffersOfTheHost) {
  const Shape shape{.model = small_gpt2(16, 384, 6, 256), .batch = 4};
  Plan disk{.micro_batch = 4};
  for (uint32_t layer = 0; layer < 16; ++layer) disk.offload.insert(layer);
  Plan host = disk;
  disk.offload_to = Place::kNvme;
  Machine machine;
  machine.nvme_least_bytes = 0;
  machine.nvme_write_bytes_per_second = 1e9, machine.nvme_read_bytes_per_second = 2e9;
  const Estimate on_disk = estimate(shape, disk, machine), on_host = estimate(shape, host, machine);
  EXPECT_EQ(on_disk.device_peak_bytes, on_host.device_peak_bytes);
  EXPECT_NEAR(double(on_disk.nvme_bytes), double(on_host.host_bytes), 0.01 * double(on_host.host_bytes));
  const double layer = double(on_host.host_bytes) / 15;
  EXPECT_NEAR(double(on_disk.host_bytes), 4 * layer, 4.0 * double(kHugePage));
  machine.nvme_write_bytes_per_second = machine.nvme_read_bytes_per_second = 1e15;
  EXPECT_NEAR(estimate(shape, disk, machine).time.seconds(), on_host.time.seconds(),
              0.01 * on_host.time.seconds());
  machine.flops = machine.memory_bytes_per_second = machine.host_bytes_per_second = 1e18;
  machine.launch_seconds = 0;
  machine.nvme_write_bytes_per_second = 1e9, machine.nvme_read_bytes_per_second = 2e9;
  const double alone = 13 * layer / 1e9 + 11 * layer / 2e9;  // nothing hides it
  EXPECT_NEAR(estimate(shape, disk, machine).time.nvme, alone, 0.01 * alone);
  EXPECT_LT(on_disk.time.nvme, alone);
}

// Their copies run beside what is computed; what it waits for them is the link's.
TEST(Estimate, ActivationsOnTheHostCostWhatTheLinkIsTooSlowFor) {
  Plan plain{.micro_batch = 12}, offloaded = plain;
  offloaded.offload = {0, 1, 2, 3, 4, 5};
  Machine machine;
  const auto slower = [&](double bytes_per_second) {
    machine.host_bytes_per_second = bytes_per_second;
    return estimate(kShape, offloaded, machine).time.seconds() /
           estimate(kShape, plain, machine).time.seconds();
  };
  EXPECT_LT(slower(10e12), 1.01);
  EXPECT_GT(slower(20e9), slower(100e9));
  machine.host_bytes_per_second = 100e9;
  const Estimate needed = estimate(kShape, offloaded, machine);
  EXPECT_NEAR(needed.time.overlapped + needed.time.host_link, 2.0 * double(needed.host_bytes) / 100e9,
              0.02 * needed.time.overlapped + 0.002);
  EXPECT_GT(needed.time.overlapped, 0);
  EXPECT_LT(needed.device_peak_bytes[0], estimate(kShape, plain, machine).device_peak_bytes[0]);
}

TEST(Plan, StatesGoToAPeerBeforeTheHostAndThereBeforeADisk) {
  const auto kinds = [](const Plan& plan, const Machine& machine) {
    std::vector<MoveKind> found;
    for (const Move& move : neighbours(plan, kShape, machine, Guarantee::kBitExact))
      if (move.to.optimizer != plan.optimizer) found.push_back(move.kind);
    return found;
  };
  EXPECT_EQ(kinds({.micro_batch = 12}, kMachine),
            (std::vector<MoveKind>{MoveKind::kOptimizerToPeer, MoveKind::kOptimizerToHost,
                                   MoveKind::kOptimizerToNvme}));
  EXPECT_EQ(kinds({.micro_batch = 12}, {}),
            (std::vector<MoveKind>{MoveKind::kOptimizerToHost, MoveKind::kOptimizerToNvme}));
  EXPECT_EQ(kinds({.micro_batch = 12, .optimizer = Place::kHost}, kMachine), std::vector<MoveKind>{})
      << "it frees nothing of a device";
  Machine small;
  small.nvme_least_bytes = uint64_t{1} << 40;
  EXPECT_EQ(kinds({.micro_batch = 12}, small), std::vector<MoveKind>{MoveKind::kOptimizerToHost});
}

TEST(Plan, LayersGoToAPeerBeforeTheHostAndThereBeforeADisk) {
  const auto kinds = [](const Plan& plan, const Machine& machine) {
    std::vector<MoveKind> found;
    for (const Move& move : neighbours(plan, kShape, machine, Guarantee::kBitExact))
      if (move.to.parameters != plan.parameters || move.to.gradients != plan.gradients)
        found.push_back(move.kind);
    return found;
  };
  using enum MoveKind;
  EXPECT_THAT(kinds({.micro_batch = 12}, kMachine),
              testing::UnorderedElementsAre(kParametersToPeer, kGradientsToPeer, kParametersToHost,
                                            kGradientsToHost, kParametersToNvme, kGradientsToNvme));
  for (const auto& [near, far] :
       {std::pair(kParametersToPeer, kParametersToHost), std::pair(kGradientsToPeer, kGradientsToHost),
        std::pair(kParametersToHost, kParametersToNvme), std::pair(kGradientsToHost, kGradientsToNvme)}) {
    const std::vector<MoveKind> found = kinds({.micro_batch = 12}, kMachine);
    EXPECT_LT(std::ranges::find(found, near), std::ranges::find(found, far));
  }
  EXPECT_EQ(kinds({.micro_batch = 12, .parameters = Place::kHost, .gradients = Place::kHost}, kMachine),
            std::vector<MoveKind>{})
      << "it frees nothing of a device";
  Machine small = kMachine;
  small.nvme_least_bytes = uint64_t{1} << 40;
  small.devices = 1;
  EXPECT_THAT(kinds({.micro_batch = 12}, small),
              testing::UnorderedElementsAre(kParametersToHost, kGradientsToHost));
}

TEST(Estimate, IsTheSumOfItsItems) {
  std::mt19937_64 random(12);
  for (int i = 0; i < 200; ++i) {
    const Estimate estimated = estimate(kShape, random_plan(random), kMachine);
    std::vector<uint64_t> sums(kMachine.devices);
    uint64_t host = 0, nvme = 0;
    for (const EstimateItem& item : estimated.items)
      (item.nvme ? nvme : item.host ? host : sums[item.device]) += item.bytes;
    ASSERT_EQ(nvme, estimated.nvme_bytes);
    ASSERT_EQ(sums, estimated.device_peak_bytes);
    ASSERT_EQ(host, estimated.host_bytes);
  }
}

TEST(WeightStorage, InEightBitsIsOfTheLayersMatricesAlone) {
  const Numerics int8{.precision = Precision::kInt8};
  uint64_t stored = 0, matrices = 0, rows = 0, all = 0;
  for (const Parameter& parameter : parameter_table(small_model_of(Family::kLlama, 0))) {
    stored += stored_bytes(int8, parameter);
    all += parameter.elements();
    if (parameter.layer < 0 || parameter.sizes.size() < 2) continue;
    EXPECT_TRUE(is_in_8_bits(int8, parameter)) << parameter.name;
    matrices += parameter.elements(), rows += uint64_t(parameter.sizes[0]);
  }
  EXPECT_GT(matrices, 0u);
  EXPECT_EQ(stored, 2 * all - matrices + 2 * rows);
}

TEST(WeightStorage, ATileIsOfWholeRowsAndWholeBlocks) {
  const std::vector<int64_t> sizes{3000, 1000};
  const Numerics numerics{.precision = Precision::kInt8, .optimizer = OptimizerKind::kAdamW8bit};
  const int64_t tile = tile_elements(numerics, sizes, true);
  EXPECT_EQ(tile % 1000, 0);
  EXPECT_EQ(tile % kQuantizationBlock, 0);
  EXPECT_GT(tile, kTileElements / 2);
  EXPECT_LE(tile, kTileElements);
}

// What the estimate counts, and what the optimizer goes through.
TEST(Tiles, RunsOfThemAreTheirList) {
  const std::vector<int64_t> sizes{3000, 1000};
  const std::vector<std::vector<Span>> cuts{{{0, 3'000'000}},
                                            {{100, 5}},
                                            {{kTileElements - 1, 2}},
                                            {{7, 1'000'000}, {kTileElements * 4, kTileElements}}};
  for (const Numerics& numerics : {Numerics{}, Numerics{.precision = Precision::kInt8}})
    for (const std::vector<Span>& spans : cuts) {
      std::vector<int64_t> lengths;
      for (const TileRun& run : tile_runs(numerics, {sizes, spans}, true))
        lengths.insert(lengths.end(), size_t(run.count), run.length);
      std::vector<int64_t> listed;
      for (const Span& tile : tiles_of(numerics, {sizes, spans}, true)) listed.push_back(tile.length);
      EXPECT_EQ(lengths, listed);
    }
}

TEST(EightBitAdamW, NeedsNoRoomBesideItsStatesAndIsOneTileThere) {
  const std::vector<int64_t> sizes{3000, 1000};
  const Numerics floats{.optimizer = OptimizerKind::kAdamW8bit};
  const auto room = [&](bool states_on_host) {
    UpdateRoom room;
    room.add(update_needs(floats, {sizes, {{0, 3000 * 1000}}}, states_on_host));
    return room.bytes(kLeastUpdateSlots);
  };
  EXPECT_EQ(tile_elements(floats, sizes, false), 3000 * 1000);
  EXPECT_EQ(room(false), 0u);
  const uint64_t tile = kTileElements, scales = kTileElements / kQuantizationBlock;
  EXPECT_EQ(tile_elements(floats, sizes, true), kTileElements);
  EXPECT_EQ(room(true), 3 * (2 * tile + 2 * 4 * scales));
}

}  // namespace
}  // namespace spillway::trainer
