#include "trainer/app/run/run.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "trainer/app/run/corpus_sizes.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/devices/peers.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/planner.h"
#include "trainer/plan/ranks/same_sequence.h"
#include "trainer/ranks/agreement/word.h"

namespace spillway::trainer {
namespace {

// Of a plan that a run begins with in place of another: the same sums, or sums in another order.
Guarantee guarantee_of_start(const Plan& configured, const Plan& begun, uint32_t batch) {
  const auto rows = [batch](const Plan& plan) { return std::min(plan.micro_batch, batch); };
  const bool same = rows(configured) == rows(begun) && configured.head_chunks == begun.head_chunks &&
                    configured.tiles == begun.tiles;
  return same ? Guarantee::kBitExact : Guarantee::kNumericallyEqual;
}

const char* start_text(Place place) {
  if (place == Place::kPeer) return " on the device: starts on a peer";
  return place == Place::kHost ? " on the device: starts on the host"
                               : " on the host: starts on the disk of run.nvme";
}

}  // namespace

std::optional<Run::NoRoom> Run::build_program(const Plan& plan) {
  std::optional<NoRoom> failure;
  try {
    program_ = std::make_unique<TrainingStep>(config_, corpus_, devices_, plan, core_, *moves_, mesh_);
    program_->give_notice([this] { return weight_of_signal(); });
  } catch (const c10::OutOfMemoryError& error) {
    failure = NoRoom{error.what_without_backtrace(), {}};
    if (const auto* host = dynamic_cast<const HostOutOfMemory*>(&error)) failure->of_host = *host;
  }
  if (failure) core_.chosen_move(nullptr);  // taken: no step will ask for it
  return failure;
}

Plan Run::first_plan() const {
  if (!config_.chooses_plan()) return config_.plan;
  const AutomaticPlan automatic = choose_plan(config_, shape_, survey_);
  Plan plan = in_one_sequence(automatic.plan);
  // With the micro-batch of all stages this one may need less, or more.
  if (mesh_.has_stages() && config_.automatic_plan && plan != automatic.plan)
    if (const Planned again = find_plan(shape_, survey_.machine, Guarantee::kBitExact, plan); again.best)
      plan = again.best->plan;
  log_.say(LogLevel::kInfo, automatic.text + ": " + to_string(plan));
  return plan;
}

// Ranks choose by what their own devices have left. Where the order of what they exchange follows from the
// plans, it is that of the plan which all can follow.
Plan Run::in_one_sequence(const Plan& plan) const {
  const uint32_t layers = config_.model.all_layers();
  const SharedWork work = config_.shared_work();
  if (!work.has_sequence() || ranks_->is_alone()) return plan;
  const auto read = [layers](const std::string& text) {
    std::string error;
    const auto read = parse_plan(text, layers, Plan{}, &error);
    if (!read) throw std::logic_error("the plan of a rank: " + error);
    return *read;
  };
  const auto joined = [&](const std::vector<std::string>& of_ranks) {
    Plan all = read(of_ranks.at(0));
    for (const std::string& one : of_ranks) all = join(all, read(one));
    return to_toml(all);
  };
  return common_plan(plan, read(ranks_->decide(to_toml(plan), joined)), work);
}

// Something more on a peer of each device that lacks memory, where one has room for it.
bool Run::goes_to_peers(Plan* plan, Place Plan::* place) const {
  const Estimate needed = estimate(shape_, *plan, machine_);
  Plan there = *plan;
  there.*place = Place::kPeer;
  bool found = false;
  for (uint32_t device = 0; device < machine_.devices; ++device) {
    const uint64_t limit = machine_.limit_of(device);
    if (limit == 0 || needed.device_peak_bytes[device] <= limit) continue;
    if (!find_peer(&there, shape_, machine_, device)) return false;
    found = true;
  }
  if (found) *plan = there;
  return found;
}

// Whether a part that lies where it does could go further away, and would free what is lacking.
bool Run::goes_to(Place to, Plan* plan, Place Plan::* place, const NoRoom& failure) const {
  const bool lacks_host = failure.of_host.has_value();
  if (to == Place::kNvme) return lacks_host && plan->*place == Place::kHost;
  if (lacks_host || plan->*place >= to) return false;
  return to == Place::kHost || goes_to_peers(plan, place);
}

// Before there is a step to undo, the only moves that help are to begin with fewer slots, and with more
// elsewhere: the same bits.
void Run::build_where_there_is_room(Plan* plan) {
  struct Part {
    Place Plan::* place;
    const char* name;
  };
  constexpr Part kParts[] = {{&Plan::optimizer, "the optimizer's state"},
                             {&Plan::gradients, "the layers' gradients"},
                             {&Plan::parameters, "the layers' parameters"}};
  std::optional<NoRoom> failure = build_program(*plan);
  const auto move = [&](const Part& part, Place to) {
    if (!failure || !goes_to(to, plan, part.place, *failure)) return;
    plan->*part.place = to;
    failure = build_program(*plan);
    log_.say(LogLevel::kWarning, "no room for " + std::string(part.name) + start_text(to));
  };
  if (failure && !failure->of_host && plan->slots_of_update() > kLeastUpdateSlots) {
    plan->update_slots = kLeastUpdateSlots;
    failure = build_program(*plan);
    log_.say(LogLevel::kWarning, "no room for the slots of 'plan.update_slots': it starts with " +
                                     std::to_string(kLeastUpdateSlots));
  }
  const size_t parts = mesh_.has_stages() ? 1 : std::size(kParts);  // a stage has its layers on its device
  for (size_t part = 0; part < parts; ++part)
    for (const Place to : {Place::kPeer, Place::kHost, Place::kNvme}) move(kParts[part], to);
  for (size_t part = 0; part < parts; ++part)
    move(kParts[part], Place::kNvme);  // which made the host too small
  if (!failure) return;
  if (failure->of_host) failure->of_host->note(false);
  throw SetupOutOfMemory("no room for the parameters, gradients and optimizer state: " + least_need(*plan) +
                         failure->text);
}

// Of a checkpoint of other ranks, or of one process: what these cannot have.
Plan Run::for_ranks(Plan plan) const {
  if (config_.run.zero >= 2) plan.tiles = 1;
  if (!mesh_.has_stages()) return plan;
  plan.parameters = plan.gradients = Place::kDevice;
  plan.offload.clear(), plan.placement.clear(), plan.peers.clear();
  plan.offload_to = Place::kHost;
  if (plan.optimizer == Place::kPeer) plan.optimizer = Place::kDevice;
  plan.tiles = plan.pipeline = 1;
  plan.just_in_time = false;
  return plan;
}

// The checkpoint's; the configuration's where that is another one than its run had.
Plan Run::resumed_plan(const SavedPlan& saved) {
  if (!saved.configured || *saved.configured == configured_) return for_devices(for_ranks(saved.plan));
  const Plan plan = first_plan();
  warn_of("goes on with the plan of the configuration, which is another one than the checkpoint's run had: " +
          to_string(plan));
  return plan;
}

// What a checkpoint has on devices that are not here goes where the configuration has its layers.
Plan Run::for_devices(Plan plan) {
  const auto is_gone = [this](const auto& pair) {
    return std::max(pair.first, pair.second) >= devices_.size();
  };
  const auto is_on_gone = [this](const auto& layer) { return layer.second >= devices_.size(); };
  const bool is_alone = devices_.size() < 2;
  const auto is_on_peer = [](Place place) { return place == Place::kPeer; };
  const bool fits = std::ranges::none_of(plan.placement, is_on_gone) &&
                    std::ranges::none_of(plan.peers, is_gone) &&
                    !(is_alone && (is_on_peer(plan.optimizer) || is_on_peer(plan.parameters) ||
                                   is_on_peer(plan.gradients) || is_on_peer(plan.offload_to)));
  if (fits) return plan;
  plan.placement = config_.plan.placement;
  plan.peers = config_.plan.peers;
  if (is_alone)
    for (Place* place : {&plan.optimizer, &plan.parameters, &plan.gradients, &plan.offload_to})
      if (is_on_peer(*place)) *place = Place::kHost;
  plan.pipeline = plan.streams() ? 1 : config_.plan.pipeline;
  choose_peers(&plan, shape_, machine_);
  warn_of("the checkpoint's plan has more devices than the " + std::to_string(devices_.size()) +
          " of this run: goes on with " + to_string(plan));
  return plan;
}

// Of older checkpoints, which do not say: what the plan tells.
Guarantee Run::held_by_checkpoint(const SavedPlan& saved) const {
  if (saved.held) return *saved.held;
  if (config_.chooses_plan() || !config_.schedule.empty()) return Guarantee::kBitExact;
  return guarantee_of_start(config_.plan, saved.plan, shape_.batch);
}

// No run with one configuration has the losses of both.
void Run::warn_of_changes(const std::string& checkpoint) {
  const std::string rows = other_rows_of_checkpoint(checkpoint, config_, corpus_);
  std::string settings = other_settings_of_checkpoint(checkpoint, config_);
  if (!settings.empty())
    settings = "goes on with other settings than those of the checkpoint: " + settings +
               "; losses and weights are those of no run with one configuration";
  warn_of(rows), warn_of(settings);
  if (!rows.empty() || !settings.empty()) start_ = Guarantee::kStatisticsChange;
}

void Run::build() {
  survey_ = survey(config_, machine_, devices_, core_);
  peaks_.watch(core_.loaded() ? devices_.size() : 0);
  Plan plan = resumed_ ? resumed_plan(*resumed_) : first_plan();
  if (resumed_) check(plan);
  const std::string from = options_.resume + "/" + kCheckpointName;
  std::string error;
  moves_ = std::make_unique<PlanMoves>(core_, shape_, machine_, config_.recovery.floor);
  build_where_there_is_room(&plan);
  say_remarks();
  if (resumed_ && !load_checkpoint(from, config_, program_.get(), &error)) throw SetupError(error);
  if (config_.chooses_plan()) start_ = guarantee_of_start(config_.plan, plan, shape_.batch);
  if (resumed_)
    start_ = std::max(
        {start_, held_by_checkpoint(*resumed_), guarantee_of_start(resumed_->plan, plan, shape_.batch)});
  if (resumed_) warn_of_changes(from);
  recoverable_ = std::make_unique<RecoverableStep>(*program_, shape_, machine_, plan, config_.recovery);
  check_sequences();
  check_twins();
  begin_files();
}

// Last: a run that does not begin leaves the files of the one before it alone.
void Run::begin_files() {
  std::string error;
  const bool goes_on = goes_on_here();
  if (!recorder_.open(goes_on, &error) || (goes_on && !recorder_.go_on_from(program_->step(), &error)))
    throw SetupError(error);
  set_aside_checkpoint();
}

// The copies at both ends are trained alike, and so begin alike: weights that were read may differ.
void Run::check_twins() {
  if (!mesh_.has_stages() || !config_.model.tied_head) return;
  const Stage& stage = mesh_.stage();
  const bool has_twins = stage.is_first() || stage.is_last();
  const auto fault_of = [](const std::vector<std::string>& of_ranks) {
    const std::string* const first = &of_ranks.front();
    for (size_t rank = 0; rank < of_ranks.size(); ++rank)
      if (!of_ranks[rank].empty() && of_ranks[rank] != *first)
        return "rank 0 and rank " + std::to_string(rank) +
               " do not go together: the embeddings, which are the head's weights too, differ";
    return std::string();
  };
  const std::string fault =
      ranks_->decide(has_twins ? std::to_string(program_->hash_of_twins()) : "", fault_of);
  if (!fault.empty()) throw RanksError(fault);
}

// Of the plans that a run has without a move: what ranks exchange follows from them.
void Run::check_sequences() {
  const SharedWork work = config_.shared_work();
  if (!work.has_sequence()) return;
  std::string text = sequence_of(recoverable_->plan(), work) + '\n';
  for (const auto& [step, plan] : config_.schedule)
    text += "from step " + std::to_string(step) + " on " + sequence_of(plan, work) + '\n';
  ranks_->check_same("plans", text);
}

// What the plan at the end of all moves would need, so that the user knows how far off the limit is.
std::string Run::least_need(Plan plan) const {
  for (auto moves = neighbours(plan, shape_, machine_, Guarantee::kStatisticsChange); !moves.empty();
       moves = neighbours(plan, shape_, machine_, Guarantee::kStatisticsChange))
    plan = moves.front().to;
  uint64_t most = 0;
  for (const uint64_t bytes : estimate(shape_, plan, machine_).device_peak_bytes)
    most = std::max(most, bytes);
  return "the smallest plan is estimated to need " + std::to_string((most >> 20) + 1) + " MiB of a device; ";
}

// What the plan puts on NVMe, and what is too small for it.
void Run::warn_of_small_ones(const Plan& plan, const Estimate& need) {
  const auto warn = [&](Place place, const std::string& item, const char* whose) {
    const auto is_there = [&](const EstimateItem& each) { return each.nvme && each.name == item; };
    if (place == Place::kNvme && std::ranges::none_of(need.items, is_there))
      warn_of(std::string("no ") + whose + " are as large as run.nvme_least: all of them stay on the host");
  };
  warn(plan.optimizer, "optimizer state", "parameter's states");
  warn(plan.parameters, "parameters", "layer's parameters");
  warn(plan.gradients, "gradients", "layer's gradients");
  if (!plan.offload.empty()) warn(plan.offload_to, "activations", "layer's activations");
}

void Run::warn_of_idle_stages(const Plan& plan) {
  const uint32_t stages = shape_.stage.count, count = micro_batches(plan, shape_.batch);
  if (stages == 1 || count >= stages || shape_.batch < 2) return;
  const uint32_t rows = std::max(1u, shape_.batch / (2 * stages));
  warn_of("a step has " + std::to_string(count) + " micro-batch(es) for " + std::to_string(stages) +
          " stages, which wait for each other: plan.micro_batch = " + std::to_string(rows) +
          " would keep them busier");
}

void Run::begin() {
  char text[480];
  std::snprintf(text, sizeof text,
                "%.1f M parameters, %s (unigram entropy %.4f nat), %s, %zu device(s), estimate:\n",
                double(parameter_count(shape_.model)) / 1e6, corpus_sizes(corpus_, config_.model).c_str(),
                corpus_.unigram_entropy(), config_.run.device.c_str(), devices_.size());
  const Plan& plan = recoverable_->plan();
  const Estimate need = estimate(shape_, plan, machine_);
  recorder_.began(plan, text + need.to_text());
  if (plan.uses_peers() && !machine_.has_peer_access)
    warn_of(
        "the devices have no access to each other's memory: copies to a peer go through the host, and the "
        "plan is slower than one with the host in the peer's place");
  warn_of_small_ones(plan, need);
  for (const std::string& remark : config_.remarks) warn_of(remark);
  warn_of_idle_stages(plan);
  history_.begin(shape_, survey_.machine, plan);
}

}  // namespace spillway::trainer
