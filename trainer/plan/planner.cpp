#include "trainer/plan/planner.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "trainer/plan/choices.h"

namespace spillway::trainer {
namespace {

// The choices of one axis beside the others' of `from`: the fastest first, and each needing no more memory,
// as far as both are known before the estimate.
struct PlanAxis {
  std::vector<Plan> (*choices)(const Plan& from, const Shape& shape, const Machine& machine);
  Guarantee guarantee = Guarantee::kBitExact;  // of what differs from the first choice
};

// The smallest that give the same number of micro-batches. Many micro-batches are counted in steps of a
// twentieth.
std::vector<Plan> micro_batches(const Plan& from, const Shape& shape, const Machine&) {
  std::vector<Plan> plans;
  const uint32_t batch = std::max(1u, shape.batch);
  for (uint32_t count = 1; plans.empty() || plans.back().micro_batch > 1; count += 1 + count / 20) {
    Plan plan = from;
    plan.micro_batch = (batch + count - 1) / std::min(count, batch);
    if (count >= batch) plan.micro_batch = 1;
    if (plans.empty() || plan.micro_batch < plans.back().micro_batch) plans.push_back(std::move(plan));
  }
  return plans;
}

// To the host goes first what crosses the link once a step, then once a micro-batch, then twice. A disk is
// for what the host has no room for, in the same order. Layers that pass the link are updated before their
// next forward, beside which the update's copies pass.
std::vector<Plan> host_places(const Plan& from, const Shape& shape, const Machine& machine) {
  constexpr Place Plan::* kOrder[] = {&Plan::optimizer, &Plan::gradients, &Plan::parameters};
  std::vector<Plan> plans{from};
  for (const auto place : kOrder) plans[0].*place = Place::kDevice;
  plans[0].just_in_time = false;
  for (const auto place : kOrder) {
    plans.push_back(plans.back());
    plans.back().*place = Place::kHost;
    plans.back().just_in_time = place != &Plan::optimizer;
  }
  // A stage has its layers on its device.
  if (!shape.stage.is_alone()) plans.resize(2);
  if (machine.host_bytes == 0) return plans;
  const size_t levels = plans.size();
  for (size_t i = 1; i < levels; ++i)
    for (size_t on_disk = 0; on_disk < i; ++on_disk) {
      plans.push_back(on_disk == 0 ? plans[i] : plans.back());
      plans.back().*kOrder[on_disk] = Place::kNvme;
    }
  return plans;
}

// `first` layers on the first device, which also has the embedding and the head, and the others evenly on the
// others.
Plan spread(Plan plan, uint32_t layers, uint32_t devices, uint32_t first) {
  for (uint32_t layer = first; layer < layers; ++layer)
    plan.placement[layer] = 1 + (layer - first) * (devices - 1) / (layers - first);
  return plan;
}

// On one device, on two, four, and so on up to all; of each with fewer and fewer eighths of the layers on the
// first.
std::vector<Plan> placements(const Plan& from, const Shape& shape, const Machine& machine) {
  constexpr uint32_t kShares = 8;
  std::vector<Plan> plans{from};
  plans[0].placement.clear();
  const uint32_t layers = shape.layers(), most = std::min(machine.devices, layers);
  for (uint32_t devices = 2; devices <= most;
       devices = devices < most ? std::min(2 * devices, most) : most + 1)
    for (uint32_t shares = devices == 2 ? kShares : kShares / devices + 1; shares > 0; --shares)
      if (Plan plan = spread(plans[0], layers, devices, layers * (shares - 1) / kShares);
          plan != plans.back())
        plans.push_back(std::move(plan));
  return plans;
}

// In chunks where a token's logits are more than its hidden state: from four on twice as many each time, up
// to what a move would take.
std::vector<Plan> heads(const Plan& from, const Shape& shape, const Machine&) {
  std::vector<Plan> plans{from};
  plans[0].head_chunks = 1;
  Plan most = plans[0];
  if (shape.model.vocabulary <= shape.model.width || !chunk_head(&most, shape.model)) return plans;
  for (uint32_t chunks = 4; chunks < most.head_chunks; chunks *= 2) {
    plans.push_back(plans[0]);
    plans.back().head_chunks = chunks;
  }
  plans.push_back(most);
  return plans;
}

// With as many micro-batches under way as devices, or one: by the estimate more are no faster.
std::vector<Plan> pipelines(const Plan& from, const Shape& shape, const Machine&) {
  std::set<uint32_t> used{0};
  for (const auto& [layer, device] : from.placement) used.insert(device);
  const auto devices = from.streams() ? 1 : uint32_t(used.size());
  std::vector<Plan> plans;
  for (const uint32_t most : {devices, 1u}) {
    Plan plan = from;
    plan.pipeline = std::min(most, std::max(1u, shape.batch));
    if (plans.empty() || plan.pipeline < plans.back().pipeline) plans.push_back(std::move(plan));
  }
  return plans;
}

// The memory of devices that have no layers, in the order in which the host's is used: beside a plan that has
// nothing on the host.
std::vector<Plan> peer_places(const Plan& from, const Shape&, const Machine& machine) {
  std::vector<Plan> plans{from};
  std::set<uint32_t> used{0};
  for (const auto& [layer, device] : from.placement) used.insert(device);
  std::vector<uint32_t> idle;
  for (uint32_t device = 0; device < machine.devices; ++device)
    if (!used.contains(device)) idle.push_back(device);
  const bool is_on_host = std::max({from.optimizer, from.gradients, from.parameters}) > Place::kDevice;
  if (idle.empty() || is_on_host || !machine.has_peer_access) return plans;
  Plan plan = from;
  size_t next = 0;
  for (const uint32_t device : used) plan.peers[device] = idle[next++ % idle.size()];
  plan.offload_to = Place::kPeer;
  plans.push_back(plan);
  for (const auto place : {&Plan::optimizer, &Plan::gradients, &Plan::parameters}) {
    plan.*place = Place::kPeer;
    plan.just_in_time = place != &Plan::optimizer;
    plans.push_back(plan);
  }
  return plans;
}

// States that come beside the forward, or with as few slots as an update needs; or an update by the host.
std::vector<Plan> ways_of_updates(const Plan& from, const Shape& shape, const Machine&) {
  Plan few = from;
  few.update_slots = kLeastUpdateSlots, few.update_on_host = false;
  std::vector<Plan> plans;
  for (const auto change : {prefetch_states, update_on_host})
    if (Plan plan = few; change(&plan, shape)) plans.push_back(std::move(plan));
  plans.push_back(std::move(few));
  return plans;
}

// Whole, or in as many tiles as a move would take.
std::vector<Plan> tilings(const Plan& from, const Shape& shape, const Machine&) {
  std::vector<Plan> plans{from};
  plans[0].tiles = 1;
  if (Plan tiled = plans[0]; tile_layers(&tiled, shape)) plans.push_back(std::move(tiled));
  return plans;
}

constexpr PlanAxis kAxes[] = {{host_places},
                              {placements},
                              {peer_places},
                              {ways_of_updates},
                              {pipelines},
                              {tilings, Guarantee::kNumericallyEqual},
                              {heads, Guarantee::kNumericallyEqual}};

// What may be computed again of a layer, or be kept on the host.
using Kept = std::set<uint32_t> Plan::*;
constexpr Kept kKept[] = {&Plan::recompute, &Plan::recompute_mlp, &Plan::recompute_attention, &Plan::offload};

// With several micro-batches under way nothing goes to the host.
std::span<const Kept> kept_beside(const Plan& plan, const Shape& shape) {
  const bool has_several = plan.pipeline > 1 || !shape.stage.is_alone();
  return std::span(kKept).first(std::size(kKept) - (has_several ? 1 : 0));
}

// Of the first layers, because their activations live longest.
Plan with_recompute(Plan plan, Kept what, uint32_t layers, uint32_t first) {
  for (const Kept each : kKept) (plan.*each).clear();
  plan.recompute_segment = 1;
  for (uint32_t i = 0; i < layers; ++i) (plan.*what).insert((plan.*what).end(), first + i);
  return plan;
}

// What keeps least: all layers, or all but the last, whose activations are needed at once and may be the peak
// beside its input; their inputs on the host; and in segments, where a model has enough layers.
std::vector<Plan> with_all_recomputed(const Plan& plan, const Shape& shape) {
  std::vector<Plan> plans{with_recompute(plan, &Plan::recompute, shape.layers(), shape.first_layer())};
  if (shape.layers() > 1)
    plans.push_back(with_recompute(plan, &Plan::recompute, shape.layers() - 1, shape.first_layer()));
  Plan segments = plans[0];
  if (recompute_in_segments(&segments, shape)) plans.push_back(std::move(segments));
  if (plan.pipeline > 1 || !shape.stage.is_alone()) return plans;
  plans.push_back(plans[0]);
  plans.back().offload = plans[0].recompute;
  return plans;
}

// Where the host has no room for what it would keep of layers, a disk may have.
std::optional<Plan> with_activations_on_disk(const Plan& plan, const Machine& machine) {
  if (plan.offload.empty() || plan.offload_to != Place::kHost || machine.host_bytes == 0) return std::nullopt;
  Plan there = plan;
  there.offload_to = Place::kNvme;
  return there;
}

// The first of `count` numbers of which `holds` is true, if it is true of all behind one of them; `count` if
// the last one is false. Of a weaker `holds` the answer is never larger, whatever both are.
uint32_t first_of(uint32_t count, const std::function<bool(uint32_t)>& holds) {
  if (count == 0 || !holds(count - 1)) return count;
  uint32_t below = 0, found = count - 1;
  while (below < found) {
    const uint32_t middle = below + (found - below) / 2;
    if (holds(middle))
      found = middle;
    else
      below = middle + 1;
  }
  return found;
}

uint64_t lack(uint64_t needed, uint64_t available) {
  return available > 0 && needed > available ? needed - available : 0;
}

class PlanSearch {
 public:
  PlanSearch(const Shape& shape, const Machine& machine, Guarantee floor, const Plan& from)
      : shape_(shape),
        machine_(machine),
        floor_(floor),
        splits_(floor >= Guarantee::kNumericallyEqual),
        estimator_(shape, machine),
        from_(with_recompute(from, &Plan::recompute, 0, 0)) {
    from_.placement.clear(), from_.peers.clear();
    from_.pipeline = from_.tiles = 1, from_.update_slots = kLeastUpdateSlots;
    from_.update_on_host = false, from_.offload_to = Place::kHost;
    from_.micro_batch = std::clamp(from.micro_batch, 1u, std::max(1u, shape.batch));
  }

  Planned run_batches(const Plan& from) {
    const std::vector<Plan> plans = batches(from);
    const uint32_t last = uint32_t(plans.size()) - 1;
    const uint32_t at = first_of(last + 1, [&](uint32_t i) { return look(plans[i]).fits(); });
    out_.alternatives = {look(plans[std::min(at, last)])};
    if (at <= last) out_.best = out_.alternatives.front();
    out_.estimates = uint32_t(seen_.size());
    return std::move(out_);
  }

  Candidate only(const Plan& plan) { return look(plan); }

  Planned run() {
    combine(from_, 0, [this](const Plan& plan) { search(plan); });
    combine(from_, 0, [this](const Plan& plan) { list(plan); });
    rank();
    out_.estimates = uint32_t(seen_.size());
    return std::move(out_);
  }

 private:
  void combine(const Plan& plan, size_t axis, const std::function<void(const Plan&)>& visit) {
    if (axis == std::size(kAxes)) return visit(plan);
    std::vector<Plan> choices{plan};
    if (kAxes[axis].guarantee <= floor_) choices = kAxes[axis].choices(plan, shape_, machine_);
    for (const Plan& choice : choices) combine(choice, axis + 1, visit);
  }

  std::vector<Plan> batches(const Plan& plan) const {
    return splits_ ? micro_batches(plan, shape_, machine_) : std::vector<Plan>{plan};
  }

  // The fastest of one combination. Smaller micro-batches are slower, so it ends where one that recomputes
  // nothing is too slow. Of several under way there are more then, which may be faster, up to a size.
  void search(const Plan& combination) {
    const std::vector<Plan> plans = batches(combination);
    const bool slows_down = combination.pipeline == 1;
    if (slows_down && is_slow(look(plans[0]))) return;
    const uint32_t layers = shape_.layers();
    uint32_t at = first_of(uint32_t(plans.size()), [&](uint32_t i) { return least_fits(plans[i]); });
    for (double before = std::numeric_limits<double>::infinity(); at < plans.size(); ++at) {
      const Candidate& least = look(plans[at]);
      const bool is_slower = least.time.seconds() >= std::exchange(before, least.time.seconds());
      if (is_slow(least)) {
        if (slows_down || is_slower) return;
        continue;
      }
      for (const Kept what : kept_beside(combination, shape_)) {
        const auto with = [&](uint32_t k) -> const Candidate& {
          return look(with_recompute(plans[at], what, k, shape_.first_layer()));
        };
        const auto has_room = [&](uint32_t k) { return with(k).lacking_bytes == 0; };
        const uint32_t most = has_room(layers) ? layers : layers - 1;
        const uint32_t count = first_of(most + 1, has_room);
        if (count <= most) take_where_it_fits(with(count));
      }
      for (const Plan& plan : with_all_recomputed(plans[at], shape_)) take_where_it_fits(look(plan));
    }
  }

  bool least_fits(const Plan& plan) {
    const std::vector<Plan> plans = with_all_recomputed(plan, shape_);
    return std::ranges::any_of(plans, [this](const Plan& least) { return fitting(look(least)) != nullptr; });
  }

  // It, or it with a disk in the host's place; or null.
  const Candidate* fitting(const Candidate& candidate) {
    if (candidate.fits()) return &candidate;
    if (candidate.lacking_bytes > 0 || candidate.lacking_host_bytes == 0) return nullptr;
    const auto there = with_activations_on_disk(candidate.plan, machine_);
    if (!there) return nullptr;
    const Candidate& on_disk = look(*there);
    return on_disk.fits() ? &on_disk : nullptr;
  }
  void take_where_it_fits(const Candidate& candidate) {
    if (const Candidate* const fits = fitting(candidate)) take(*fits);
  }

  bool is_slow(const Candidate& candidate) const {
    return out_.best && candidate.time.seconds() >= out_.best->time.seconds();
  }
  void take(const Candidate& candidate) {
    if (!is_slow(candidate)) out_.best = candidate;
  }

  void list(const Plan& combination) {
    const uint32_t layers = shape_.layers();
    const auto listed = [&](const auto& with) { list_one(combination, with); };
    for (const uint32_t count : std::set<uint32_t>{0, (layers + 1) / 2, layers})
      listed([&](const Plan& plan) {
        return with_recompute(plan, &Plan::recompute, count, shape_.first_layer());
      });
    for (const Kept part : kept_beside(combination, shape_).subspan(1))
      listed([&](const Plan& plan) { return with_recompute(plan, part, layers, shape_.first_layer()); });
    for (size_t i = 1; i < with_all_recomputed(combination, shape_).size(); ++i)
      listed([&](const Plan& plan) { return with_all_recomputed(plan, shape_)[i]; });
  }

  // With the largest micro-batch that fits, or the smallest; none where the row has a larger one.
  void list_one(const Plan& combination, const std::function<Plan(const Plan&)>& with) {
    const std::vector<Plan> plans = batches(combination);
    const auto smallest = uint32_t(plans.size()) - 1;
    uint32_t& last = rows_.try_emplace(techniques_of(with(plans[0])), smallest).first->second;
    const uint32_t at = first_of(last + 1, [&](uint32_t i) { return look(with(plans[i])).fits(); });
    if (at > last && last < smallest) return;
    last = std::min(at, last);
    out_.alternatives.push_back(look(with(plans[last])));
  }

  void rank() {
    const auto order = [](const Candidate& candidate) {
      return std::tuple(candidate.lacking_bytes + candidate.lacking_host_bytes, candidate.time.seconds());
    };
    std::ranges::stable_sort(out_.alternatives, {}, order);
    if (out_.best) out_.alternatives.insert(out_.alternatives.begin(), *out_.best);
    std::set<std::string> seen;
    std::erase_if(out_.alternatives, [&](const Candidate& candidate) {
      return !seen.insert(techniques_of(candidate.plan)).second;
    });
  }

  // Equal for plans that differ only in how large batches and chunks are, how many are under way, when layers
  // are updated, by whom and with how many slots, and how they share the layers out.
  static std::string techniques_of(Plan plan) {
    plan.micro_batch = plan.evaluation_batch = 1;
    plan.peers.clear();
    plan.head_chunks = std::min(2u, plan.head_chunks);
    plan.pipeline = std::min(2u, plan.pipeline);
    plan.tiles = std::min(2u, plan.tiles);
    plan.update_slots = kLeastUpdateSlots, plan.just_in_time = plan.update_on_host = false;
    std::set<uint32_t> devices;
    for (const auto& [layer, device] : plan.placement) devices.insert(device);
    plan.placement.clear();
    return to_string(plan) + " devices=" + std::to_string(devices.size());
  }

  // With the evaluation's batch halved until it fits beside what the plan keeps.
  const Candidate& look(const Plan& plan) {
    const auto [found, is_new] = seen_.try_emplace(to_string(plan));
    if (!is_new) return found->second;
    Candidate candidate;
    candidate.plan = normalised(plan);
    if (!candidate.plan.uses_peers()) candidate.plan.peers.clear();
    Estimate needed = estimator_.of(plan);
    const auto too_large = [&] {
      return lacking(needed.evaluation_peak_bytes) > lacking(needed.device_peak_bytes);
    };
    while (splits_ && candidate.plan.evaluation_batch > 1 && too_large()) {
      candidate.plan.evaluation_batch = (candidate.plan.evaluation_batch + 1) / 2;
      needed = estimator_.of(candidate.plan);
    }
    fill(needed, &candidate);
    return found->second = std::move(candidate);
  }

  static uint64_t with_margin(uint64_t bytes) {
    return bytes + uint64_t(double(bytes) * kPlannerMargin) + kPlannerPages;
  }

  uint64_t lacking(const std::vector<uint64_t>& peaks) const {
    uint64_t most = 0;
    for (uint32_t device = 0; device < peaks.size(); ++device)
      most = std::max(most, lack(with_margin(peaks[device]), machine_.limit_of(device)));
    return most;
  }

  void fill(const Estimate& needed, Candidate* candidate) const {
    for (size_t device = 0; device < needed.device_peak_bytes.size(); ++device)
      candidate->device_bytes.push_back(
          with_margin(std::max(needed.device_peak_bytes[device], needed.evaluation_peak_bytes[device])));
    candidate->host_bytes = needed.host_bytes;
    candidate->lacking_bytes =
        std::max(lacking(needed.device_peak_bytes), lacking(needed.evaluation_peak_bytes));
    candidate->lacking_host_bytes = lack(needed.host_bytes, machine_.host_bytes);
    candidate->time = needed.time;
  }

  const Shape& shape_;
  const Machine& machine_;
  const Guarantee floor_;
  const bool splits_;
  Estimator estimator_;
  Plan from_;
  std::unordered_map<std::string, Candidate> seen_;
  std::unordered_map<std::string, uint32_t> rows_;  // the largest micro-batch that fitted, as its number
  Planned out_;
};

}  // namespace

uint64_t Candidate::most_device_bytes() const {
  return device_bytes.empty() ? 0 : *std::ranges::max_element(device_bytes);
}

double Candidate::tokens_per_second(const Shape& shape) const {
  const double seconds = time.seconds();
  return seconds > 0 ? double(shape.tokens()) / seconds : 0;
}

Planned find_plan(const Shape& shape, const Machine& machine, Guarantee floor, const Plan& from) {
  return PlanSearch(shape, machine, floor, from).run();
}

Candidate candidate_of(const Shape& shape, const Machine& machine, Guarantee floor, const Plan& plan) {
  return PlanSearch(shape, machine, floor, plan).only(plan);
}

Planned find_micro_batch(const Shape& shape, const Machine& machine, const Plan& from) {
  return PlanSearch(shape, machine, Guarantee::kNumericallyEqual, from).run_batches(from);
}

}  // namespace spillway::trainer
