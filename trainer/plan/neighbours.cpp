#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "trainer/plan/choices.h"
#include "trainer/plan/device_map.h"
#include "trainer/plan/devices/peers.h"
#include "trainer/plan/estimate.h"
#include "trainer/plan/plan.h"

namespace spillway::trainer {
namespace {

uint64_t less(uint64_t before, uint64_t after) {
  return before > after ? before - after : 0;
}

// Half of the layers first, then all: two steps from none to all, whatever the depth. The first layers are
// taken, because their activations live longest. `layers` are those of the plan of which a part is computed
// again, or the whole; of the latter there is nothing more to have.
bool more_recompute(Plan* plan, std::set<uint32_t> Plan::* layers, const Shape& shape) {
  std::set<uint32_t> have = layers_here(plan->recompute, shape);
  have.merge(layers_here(plan->*layers, shape));
  const size_t half = (shape.layers() + 1) / 2;
  if (have.size() >= shape.layers()) return false;
  const size_t want = have.size() < half ? half : shape.layers();
  for (uint32_t layer = shape.first_layer(); layer < shape.end_layer() && have.size() < want; ++layer)
    if (have.insert(layer).second) (plan->*layers).insert(layer);
  *plan = normalised(*plan);
  return true;
}

// The same, of what layers keep elsewhere.
bool more_offload(Plan* plan, const Shape& shape) {
  const size_t half = (shape.layers() + 1) / 2, have = plan->offload.size();
  const size_t want = have < half ? half : shape.layers();
  for (uint32_t layer = 0; layer < shape.layers() && plan->offload.size() < want; ++layer)
    plan->offload.insert(layer);
  return plan->offload.size() > have;
}

// What is on a peer goes there too; on a disk it stays.
bool offload_to_host(Plan* plan, const Shape& shape) {
  if (!plan->offload.empty() && plan->offload_to == Place::kNvme) return false;
  const bool moves = std::exchange(plan->offload_to, Place::kHost) == Place::kPeer && !plan->offload.empty();
  return more_offload(plan, shape) || moves;
}

// From the host it would free nothing of a device.
bool offload_to_nvme(Plan* plan, const Shape& shape) {
  const Place from = std::exchange(plan->offload_to, Place::kNvme);
  if (!plan->offload.empty() && from == Place::kHost) return false;
  const bool moves = from == Place::kPeer && !plan->offload.empty();
  return more_offload(plan, shape) || moves;
}

bool offload_to_peer(Plan* plan, const Shape& shape, const Machine& machine, uint32_t device) {
  if (!plan->offload.empty() && plan->offload_to != Place::kPeer) return false;
  const bool more = more_offload(plan, shape), is_new = !plan->peers.contains(device);
  plan->offload_to = Place::kPeer;
  return (more || is_new) && find_peer(plan, shape, machine, device);
}

// From a peer too: it may be the one that is short of memory.
bool to_host(Place* place) {
  return std::exchange(*place, Place::kHost) < Place::kHost;
}

// From the host it would free nothing of a device.
bool to_nvme(Place* place) {
  return std::exchange(*place, Place::kNvme) < Place::kHost;
}

bool to_peer(Place Plan::* place, Plan* plan, const Shape& shape, const Machine& machine, uint32_t device) {
  if (plan->*place > Place::kPeer || plan->is_away(plan->*place, device)) return false;
  plan->*place = Place::kPeer;
  return find_peer(plan, shape, machine, device);
}

bool halve(uint32_t* batch) {
  if (*batch < 2) return false;
  *batch = (*batch + 1) / 2;
  return true;
}

// By halves, as far as it takes to free something.
bool shorten_pipeline(Plan* plan, const Shape& shape, const Machine& machine) {
  const std::vector<uint64_t> now = estimate(shape, *plan, machine).device_peak_bytes;
  plan->pipeline = in_flight(*plan, shape.batch);
  while (halve(&plan->pipeline))
    if (estimate(shape, *plan, machine).device_peak_bytes != now) return true;
  return false;
}

bool fewer_update_slots(Plan* plan) {
  return std::exchange(plan->update_slots, kLeastUpdateSlots) > kLeastUpdateSlots;
}

// A bit-exact move costs the micro-batches under way, any other the whole step.
uint64_t redo_us(const Move& move, const Plan& from, const Shape& shape, const Estimate& now) {
  if (move.kind == MoveKind::kSplitEvaluation) return 0;
  if (move.guarantee != Guarantee::kBitExact) return now.step_us;
  const uint64_t batch = std::max(1u, shape.batch);
  const uint64_t rows = uint64_t{from.micro_batch} * in_flight(from, shape);
  return now.step_us * std::min(rows, batch) / batch;
}

bool goes_to_peer(MoveKind kind) {
  return kind == MoveKind::kOptimizerToPeer || kind == MoveKind::kParametersToPeer ||
         kind == MoveKind::kGradientsToPeer || kind == MoveKind::kActivationsToPeer;
}

// Where these free nothing, they would only cost: no other move comes after them, or a device has room for
// as many layers as there are.
bool only_adds(MoveKind kind) {
  return kind == MoveKind::kRecomputeSegments || kind == MoveKind::kChunkHead ||
         kind == MoveKind::kParametersToHost || kind == MoveKind::kGradientsToHost ||
         kind == MoveKind::kParametersToNvme || kind == MoveKind::kGradientsToNvme ||
         kind == MoveKind::kOffloadActivations || kind == MoveKind::kActivationsToNvme ||
         kind == MoveKind::kShortenPipeline || kind == MoveKind::kTileLayers || goes_to_peer(kind);
}

bool goes_to_nvme(MoveKind kind) {
  return kind == MoveKind::kOptimizerToNvme || kind == MoveKind::kParametersToNvme ||
         kind == MoveKind::kGradientsToNvme || kind == MoveKind::kActivationsToNvme;
}

bool frees(const Estimate& now, const Estimate& then) {
  const auto less_somewhere = [](const std::vector<uint64_t>& before, const std::vector<uint64_t>& after) {
    return !std::equal(before.begin(), before.end(), after.begin(), std::less_equal<>());
  };
  return less_somewhere(now.device_peak_bytes, then.device_peak_bytes) ||
         less_somewhere(now.evaluation_peak_bytes, then.evaluation_peak_bytes);
}

bool apply(MoveKind kind, Plan* plan, const Shape& shape, const Machine& machine, uint32_t device) {
  switch (kind) {
    case MoveKind::kRecompute:
      return more_recompute(plan, &Plan::recompute, shape);
    case MoveKind::kRecomputeAttention:
      return more_recompute(plan, &Plan::recompute_attention, shape);
    case MoveKind::kRecomputeMlp:
      return more_recompute(plan, &Plan::recompute_mlp, shape);
    case MoveKind::kRecomputeSegments:
      return recompute_in_segments(plan, shape);
    case MoveKind::kOffloadActivations:
      return offload_to_host(plan, shape);
    case MoveKind::kActivationsToPeer:
      return offload_to_peer(plan, shape, machine, device);
    case MoveKind::kOptimizerToPeer:
      return to_peer(&Plan::optimizer, plan, shape, machine, device);
    case MoveKind::kParametersToPeer:
      return to_peer(&Plan::parameters, plan, shape, machine, device);
    case MoveKind::kGradientsToPeer:
      return to_peer(&Plan::gradients, plan, shape, machine, device);
    case MoveKind::kOptimizerToHost:
      return to_host(&plan->optimizer);
    case MoveKind::kParametersToHost:
      return machine.host_is_apart && to_host(&plan->parameters);
    case MoveKind::kGradientsToHost:
      return machine.host_is_apart && to_host(&plan->gradients);
    case MoveKind::kOptimizerToNvme:
      return to_nvme(&plan->optimizer);
    case MoveKind::kParametersToNvme:
      return machine.host_is_apart && to_nvme(&plan->parameters);
    case MoveKind::kGradientsToNvme:
      return machine.host_is_apart && to_nvme(&plan->gradients);
    case MoveKind::kActivationsToNvme:
      return machine.host_is_apart && offload_to_nvme(plan, shape);
    case MoveKind::kShiftLayers:
      return shift_layers(plan, shape, machine, device);
    case MoveKind::kShortenPipeline:
      return shorten_pipeline(plan, shape, machine);
    case MoveKind::kFewerUpdateSlots:
      return fewer_update_slots(plan);
    case MoveKind::kTileLayers:
      return tile_layers(plan, shape);
    case MoveKind::kChunkHead:
      return chunk_head(plan, shape.model);
    case MoveKind::kSplitMicroBatch:
      plan->micro_batch = std::min(plan->micro_batch, std::max(1u, shape.batch));
      return halve(&plan->micro_batch);
    case MoveKind::kSplitEvaluation:
      return halve(&plan->evaluation_batch);
  }
  return false;
}

}  // namespace

const char* name_of(Guarantee guarantee) {
  switch (guarantee) {
    case Guarantee::kBitExact:
      return "bit_exact";
    case Guarantee::kNumericallyEqual:
      return "numerically_equal";
    case Guarantee::kStatisticsChange:
      return "statistics_change";
  }
  return "?";
}

const char* name_of(MoveKind kind) {
  switch (kind) {
    case MoveKind::kRecompute:
      return "recompute";
    case MoveKind::kRecomputeAttention:
      return "recompute_attention";
    case MoveKind::kRecomputeMlp:
      return "recompute_mlp";
    case MoveKind::kRecomputeSegments:
      return "recompute_segments";
    case MoveKind::kOffloadActivations:
      return "offload_activations";
    case MoveKind::kActivationsToPeer:
      return "activations_to_peer";
    case MoveKind::kOptimizerToPeer:
      return "optimizer_to_peer";
    case MoveKind::kParametersToPeer:
      return "parameters_to_peer";
    case MoveKind::kGradientsToPeer:
      return "gradients_to_peer";
    case MoveKind::kOptimizerToHost:
      return "optimizer_to_host";
    case MoveKind::kParametersToHost:
      return "parameters_to_host";
    case MoveKind::kGradientsToHost:
      return "gradients_to_host";
    case MoveKind::kOptimizerToNvme:
      return "optimizer_to_nvme";
    case MoveKind::kParametersToNvme:
      return "parameters_to_nvme";
    case MoveKind::kGradientsToNvme:
      return "gradients_to_nvme";
    case MoveKind::kActivationsToNvme:
      return "activations_to_nvme";
    case MoveKind::kShiftLayers:
      return "shift_layers";
    case MoveKind::kShortenPipeline:
      return "shorten_pipeline";
    case MoveKind::kFewerUpdateSlots:
      return "fewer_update_slots";
    case MoveKind::kTileLayers:
      return "tile_layers";
    case MoveKind::kChunkHead:
      return "chunk_head";
    case MoveKind::kSplitMicroBatch:
      return "split_micro_batch";
    case MoveKind::kSplitEvaluation:
      return "split_evaluation";
  }
  return "?";
}

Guarantee guarantee_of(MoveKind kind) {
  switch (kind) {
    case MoveKind::kTileLayers:  // the kernels of another size may sum in another order
    case MoveKind::kChunkHead:   // sums of another order
    case MoveKind::kSplitMicroBatch:
    case MoveKind::kSplitEvaluation:
      return Guarantee::kNumericallyEqual;
    default:
      return Guarantee::kBitExact;
  }
}

std::vector<Move> neighbours(const Plan& plan, const Shape& shape, const Machine& machine, Guarantee floor,
                             uint32_t device) {
  const Plan from = normalised(plan);
  Estimator estimator(shape, machine);
  const Estimate now = estimator.of(from);
  const size_t short_one = std::min<size_t>(device, now.device_peak_bytes.size() - 1);
  std::vector<Move> moves;
  for (const MoveKind kind : kMoveKinds) {
    Move move{.kind = kind, .to = from, .name = name_of(kind), .guarantee = guarantee_of(kind)};
    if (move.guarantee > floor || !apply(kind, &move.to, shape, machine, device)) continue;
    move.to = normalised(move.to);
    if (!shape.stage.is_alone() && move.to.streams()) continue;  // several micro-batches are under way
    const Estimate then = estimator.of(move.to);
    move.bytes_freed = less(now.device_peak_bytes[short_one], then.device_peak_bytes[short_one]);
    move.evaluation_bytes_freed =
        less(now.evaluation_peak_bytes[short_one], then.evaluation_peak_bytes[short_one]);
    if (only_adds(kind) && !frees(now, then)) continue;
    // A peer gets what this device loses: that of another one would not help.
    if (goes_to_peer(kind) && move.bytes_freed + move.evaluation_bytes_freed == 0) continue;
    // Where all that would go there stays on the host, the move is that to the host.
    if (goes_to_nvme(kind) && then.nvme_bytes == now.nvme_bytes) continue;
    move.cost_us = redo_us(move, from, shape, now) + less(then.step_us, now.step_us);
    moves.push_back(std::move(move));
  }
  // Layers pass to the host with one micro-batch under way: where fewer help too, that comes before it.
  const bool shortens = std::ranges::any_of(moves, [](const Move& move) {
    return move.kind == MoveKind::kShortenPipeline && move.bytes_freed > 0;
  });
  if (shortens) std::erase_if(moves, [](const Move& move) { return move.to.streams(); });
  std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
    return std::tie(a.cost_us, a.guarantee, a.kind) < std::tie(b.cost_us, b.guarantee, b.kind);
  });
  return moves;
}

}  // namespace spillway::trainer
