#include "trainer/app/run/run.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <cstdlib>
#include <filesystem>

#include "trainer/app/run/common_settings.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/data/examples.h"
#include "trainer/pretrained/parameters.h"
#include "trainer/runtime/device_context.h"
#include "trainer/runtime/out_of_memory.h"

namespace spillway::trainer {
namespace {

// A rank sees its own GPU alone (main.cpp).
void check_device(const RunConfig& run, const Launch& launch, size_t found) {
  if (run.devices > 1)
    throw SetupError("run.devices is " + std::to_string(run.devices) +
                     ", and each of several ranks has one device: start as many ranks as there are devices");
  if (found != 1)
    throw SetupError("rank " + std::to_string(launch.rank) + " is number " +
                     std::to_string(launch.local_rank) +
                     " of this machine and finds no GPU of its own: start one rank for each GPU");
}

std::vector<at::Device> usable_devices(const RunConfig& run, const Launch& launch) {
  if (run.device == "cpu") return {at::Device(at::kCPU)};
  const size_t found = at::globalContext().hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0;
  if (!launch.is_alone()) check_device(run, launch, found);
  if (found == 0)
    throw SetupError(
        "no CUDA device: run under 'spillway simulate', or set run.device = \"cpu\" (--device cpu)");
  if (run.devices > found)
    throw SetupError("run.devices is " + std::to_string(run.devices) + ", but there are only " +
                     std::to_string(found));
  const size_t used = run.devices ? run.devices : found;
  std::vector<at::Device> devices;
  devices.reserve(used);
  for (size_t i = 0; i < used; ++i) devices.emplace_back(at::kCUDA, static_cast<at::DeviceIndex>(i));
  return devices;
}

void install_allocator(const Config& config) {
  const RunConfig& run = config.run;
  if (run.device != "cuda") {
    if (run.limit_bytes) throw SetupError("a limit is of device memory, and run.device is \"cpu\"");
    return;
  }
  if (run.allocator != "spillway") {
    if (config.chooses_plan())
      throw SetupError(
          "a plan or a micro-batch is chosen by what Spillway's allocator has left: it needs "
          "run.allocator = \"spillway\"");
    if (run.limit_bytes) throw SetupError("run.limit needs run.allocator = \"spillway\"");
    return;
  }
  std::string error;
  if (!Core::get().loaded() && !Core::install(run.out + "/trace.spill", &error)) throw SetupError(error);
}

// How LibTorch's kernels compute, for the whole process.
void choose_kernels(const Config& config) {
  at::globalContext().setAllowTF32CuBLAS(config.train.numerics.precision == Precision::kTf32);
  if (!config.run.deterministic) return;
  // cuBLAS takes it at its first use: a workspace of one size, or sums in an order that depends on the
  // stream.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  at::globalContext().setDeterministicAlgorithms(true, false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

// A rank's share of the batch, the largest, on its stage.
Shape shape_of(const Config& config, const Launch& launch) {
  Shape shape = config.shape();
  const uint32_t stages = config.run.stages, replicas = launch.size / stages;
  if (launch.size % stages != 0)
    throw SetupError("run.stages is " + std::to_string(stages) + ", and " + std::to_string(launch.size) +
                     " rank(s) cannot be as many of each stage: start a multiple of " +
                     std::to_string(stages) + " ranks (torchrun --nproc-per-node)");
  if (shape.batch < replicas)
    throw SetupError("train.batch is " + std::to_string(shape.batch) + ", fewer sequences than the " +
                     std::to_string(replicas) + " ranks" + (stages > 1 ? " of each stage" : ""));
  shape.batch = (shape.batch + replicas - 1) / replicas;
  shape.ranks = replicas;
  if (stages > 1) shape.stage = stage_of(config.stage_layers(), launch.rank / replicas);
  return shape;
}

}  // namespace

Run::Run(const Config& config, const TrainOptions& options, RunLog* log, RunHistory* history,
         RankEnd* rank_end)
    : config_(config),
      options_(options),
      log_(*log),
      history_(*history),
      core_(Core::get()),
      shape_(shape_of(config, options.launch)),
      corpus_(open_corpus(config)),
      configured_(configured_plan(config)),
      checkpoint_(config.run.out + "/" + kCheckpointName),
      recorder_(config_, log, history),
      peaks_(core_) {
  std::string error;
  if (!RunFiles::make_folder(config.run.out, "run.out", &error)) throw SetupError(error);
  make_nvme_folder(config.nvme_folder());
  // Set even to what it is: this also has MKL keep to it, which otherwise chooses again for each call, and
  // another count of threads rounds differently.
  at::set_num_threads(config.run.threads ? int(config.run.threads) : at::get_num_threads());
  // MKL's vector functions settle at their first call, and badly if two threads make it at once: alone,
  // here.
  if (config.run.device == "cpu") at::sqrt(at::ones({1}));
  choose_kernels(config);
  install_allocator(config);
  devices_ = usable_devices(config.run, options.launch);
  machine_.devices = uint32_t(devices_.size());
  machine_.host_is_apart = config.run.device == "cuda";
  machine_.nvme_least_bytes = config.run.nvme_least_bytes;
  if (config.run.device == "cuda") machine_.workspace_bytes = at::cuda::getChosenWorkspaceSize();
  // Before the allocator is used, which then begins its trace where that of the run before lies.
  check_plans();
  if (options.launch.is_alone()) read_what_it_begins_with();
  apply_limit();
  measure_devices();
  config_.place_layers(machine_);
  join_ranks(rank_end);
  // Behind the join, so that the others hear at once of a file that one rank alone has not.
  if (!options.launch.is_alone()) read_what_it_begins_with();
}

// Where a disk is not mounted, or a path is mistyped, a folder of that name would lie on another disk.
void Run::make_nvme_folder(const std::string& folder) {
  std::error_code none;
  if (std::filesystem::is_directory(folder, none)) return;
  const std::filesystem::path parent =
      std::filesystem::absolute(folder, none).lexically_normal().parent_path();
  if (!std::filesystem::is_directory(parent, none))
    throw SetupError("run.nvme is '" + folder + "', and there is no folder '" + parent.string() +
                     "': is the disk mounted?");
  std::string error;
  if (!RunFiles::make_folder(folder, "run.nvme", &error)) throw SetupError(error);
  config_.remarks.push_back("made the folder of run.nvme, '" + folder +
                            "', which was not there: is its disk mounted?");
}

Corpus Run::open_corpus(const Config& config) {
  std::string error;
  auto corpus =
      Corpus::open(config.data.corpus, config.data.validation, Examples::window_tokens(config.model), &error);
  if (!corpus) throw SetupError(error);
  const std::string fault = Examples::fault_of(config.model, corpus->vocabulary());
  if (!fault.empty()) throw SetupError(fault);
  return std::move(*corpus);
}

void Run::join_ranks(RankEnd* rank_end) {
  const auto milliseconds = [](double seconds) { return std::chrono::milliseconds(int64_t(1000 * seconds)); };
  const auto watched = [this, rank_end](std::shared_ptr<Watch> watch) {
    rank_end->watch(std::move(watch));
    await_signals();  // the watch says of a rank that is ended why
  };
  const RanksTimes times{.timeout = std::chrono::seconds(config_.run.ranks_timeout),
                         .beat = milliseconds(config_.run.ranks_beat),
                         .bound = milliseconds(config_.run.ranks_bound)};
  try {
    ranks_ = std::make_shared<Ranks>(options_.launch, devices_[0], times, watched);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (!says_out_of_memory(text)) throw;
    throw SetupOutOfMemory("out of memory: no room for the buffers of the ranks' communication: " + text);
  }
  if (ranks_->is_alone() && config_.run.zero > 0)
    config_.remarks.emplace_back(
        "'run.zero' has no effect: there is one process, and ZeRO is of several ranks");
  ranks_->check_same("settings", common_settings(config_, corpus_, !options_.resume.empty()));
  mesh_ = Mesh(ranks_);
  if (config_.run.stages == 1) return;
  mesh_ = Mesh(ranks_, config_.stage_layers(), config_.model.tied_head);
  char text[160];
  std::snprintf(text, sizeof text, "stage %u of %u: layers %u to %u, %u rank(s) of each stage",
                shape_.stage.number, shape_.stage.count, shape_.first_layer(), shape_.end_layer() - 1,
                mesh_.replicas()->size());
  log_.say(LogLevel::kInfo, text);
}

// Whether --resume names the folder of this run, and not that of another one.
bool Run::goes_on_here() const {
  std::filesystem::path out(config_.run.out);
  if (options_.launch.rank > 0) out = out.parent_path();  // where the first rank has its files
  std::error_code none;
  return !options_.resume.empty() && std::filesystem::equivalent(options_.resume, out, none);
}

// That of an earlier run in this folder, before this run has its own: --resume would take it for this one's.
// Where this one goes on from another folder, that has been read.
void Run::set_aside_checkpoint() {
  if (!ranks_->leads() || goes_on_here()) return;
  const std::string aside = set_aside(checkpoint_);
  if (!aside.empty()) log_.say(LogLevel::kWarning, set_aside_text(aside));
}

void Run::apply_limit() {
  if (!core_.loaded() || !config_.run.limit_bytes) return;
  for (size_t device = 0; device < devices_.size(); ++device)
    if (core_.limit(int(device), config_.run.limit_bytes) != SPILLWAY_OK)
      throw SetupError(core_.last_error());
}

// Moves choose by it where there are several.
void Run::measure_devices() {
  if (devices_.size() < 2) return;
  try {
    machine_.device_limits = bytes_for_training(devices_, core_);
  } catch (const c10::OutOfMemoryError&) {
    machine_.device_limits.clear();  // others have the room now: any number
  }
  machine_.has_peer_access = have_peer_access(devices_);
  if (!machine_.has_peer_access) machine_.peer_bytes_per_second = machine_.host_bytes_per_second / 2;
}

void Run::check(const Plan& plan) const {
  const bool wants_peer = plan.optimizer == Place::kPeer || plan.parameters == Place::kPeer ||
                          plan.gradients == Place::kPeer || plan.offload_to == Place::kPeer;
  if (wants_peer && devices_.size() < 2)
    throw SetupError(
        "the plan has something on a peer, which is another device of the run, but there is only one");
  for (const auto& [device, peer] : plan.peers)
    if (std::max(device, peer) >= devices_.size())
      throw SetupError("the plan has device " + std::to_string(peer) + " as the peer of device " +
                       std::to_string(device) + ", but there are only " + std::to_string(devices_.size()));
  for (const auto& [layer, device] : plan.placement)
    if (device >= devices_.size())
      throw SetupError("the plan puts layer " + std::to_string(layer) + " on device " +
                       std::to_string(device) + ", but there are only " + std::to_string(devices_.size()));
}

void Run::read_what_it_begins_with() {
  std::string error;
  if (!config_.pretrained.empty() && !open_weights(config_.pretrained, Model(config_.model), &error))
    throw SetupError(error);
  resumed_ = plan_to_resume();
}

void Run::check_plans() const {
  check(config_.plan);
  for (const auto& [step, plan] : config_.schedule) check(plan);
}

std::optional<SavedPlan> Run::plan_to_resume() const {
  const std::string& resume = options_.resume;
  if (resume.empty()) return std::nullopt;
  const std::string checkpoint = resume + "/" + kCheckpointName, aside = aside_of(checkpoint);
  if (std::filesystem::is_regular_file(resume))
    throw SetupError("--resume " + resume + ": is a file; give the folder that has " + kCheckpointName);
  if (!std::filesystem::exists(checkpoint) && std::filesystem::exists(aside))
    throw SetupError("--resume " + resume + ": the run there has saved no checkpoint; " + aside +
                     " is that of an earlier run: to go on from it, rename it to " + checkpoint);
  std::string error;
  const auto plan = plan_of_checkpoint(checkpoint, config_, &error);
  if (!plan) throw SetupError(error);
  return plan;
}

}  // namespace spillway::trainer
