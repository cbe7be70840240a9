// What a training step is made of.
#include <stdexcept>

#include "trainer/plan/parameters/tiles.h"
#include "trainer/plan/parameters/weight_storage.h"
#include "trainer/pretrained/parameters.h"
#include "trainer/residency/host_tensor.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {
namespace {

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const Parameter& parameter : model.table()) names.push_back(parameter.name);
  return names;
}

std::vector<bool> in_8_bits(const Model& model, const Numerics& numerics) {
  std::vector<bool> result;
  result.reserve(model.table().size());
  for (const Parameter& parameter : model.table()) result.push_back(is_in_8_bits(numerics, parameter));
  return result;
}

NvmeFolder nvme_of(const Config& config) {
  return {config.nvme_folder(), config.run.nvme_least_bytes};
}

Residence residence_of(const Model& model, const Plan& plan, const Homes& homes, const Config& config,
                       Shares shares) {
  return {.units = units_of(model.table()),
          .values = plan.parameters,
          .gradients = plan.gradients,
          .homes = homes,
          .nvme = nvme_of(config),
          .tiles = tiles_of(plan, config.train.numerics),
          .table = model.table(),
          .layout = model.architecture().stores_in_out() ? MatrixLayout::kInOut : MatrixLayout::kOutIn,
          .shares = std::move(shares)};
}

// What other stages have is empty.
InitialValues of_stage(const Config& config, const Stage& stage, InitialValues whole) {
  if (stage.is_alone()) return whole;
  const size_t size = whole.size();
  return {size, [table = parameter_table(config.model), stage, whole = std::move(whole)](size_t index) {
            return has(stage, table[index]) ? whole[index] : at::empty({0}, at::kFloat);
          }};
}

InitialValues initial_of(const Config& config) {
  const Model model(config.model);
  if (config.pretrained.empty()) return model.initial_values(config.train.seed);
  std::string error;
  std::shared_ptr<const Shards> weights = open_weights(config.pretrained, model, &error);
  if (!weights) throw std::runtime_error(error);
  return initial_values_of(std::move(weights), model);
}

std::unique_ptr<MicroBatchSchedule> schedule_of(const Mesh& mesh, const std::vector<at::Device>& devices,
                                                bool draws, StageMessages& messages) {
  if (mesh.has_stages()) return std::make_unique<StagePipeline>(devices, mesh.stage(), messages);
  return std::make_unique<Pipeline>(devices, draws);
}

std::vector<at::Device> devices_of(const Model& model, const std::vector<at::Device>& devices,
                                   const Plan& plan) {
  std::vector<at::Device> result;
  for (const Parameter& parameter : model.table())
    result.push_back(parameter.layer < 0 ? devices[0]
                                         : devices.at(plan.device_of(uint32_t(parameter.layer))));
  return result;
}

}  // namespace

TrainingStep::TrainingStep(const Config& config, const Corpus& corpus, std::vector<at::Device> devices,
                           const Plan& plan, const Core& core, PlanMoves& moves, const Mesh& mesh)
    : TrainingStep(config, corpus, std::move(devices), plan, core, moves, mesh,
                   of_stage(config, mesh.stage(), initial_of(config))) {}

TrainingStep::TrainingStep(const Config& config, const Corpus& corpus, std::vector<at::Device> devices,
                           const Plan& plan, const Core& core, PlanMoves& moves, const Mesh& mesh,
                           const InitialValues& initial)
    : config_(config),
      examples_(corpus, config.model),
      loader_(
          [this](uint64_t cursor, std::span<int64_t> batch) {
            examples_.draw(config_.data.seed, cursor, config_.train.batch, batch);
          },
          config.train.batch, size_t{config.train.batch} * examples_.row_tokens(),
          {.workers = config.data.workers, .ahead = config.data.ahead}),
      mesh_(mesh),
      model_(config.model, mesh.stage()),
      devices_(std::move(devices)),
      core_(core),
      moves_(moves),
      ranks_(mesh.all()),
      replicas_(mesh.replicas()),
      share_(replicas_->share_of(config.train.batch)),
      partition_(config.train.numerics, model_.table(), replicas_->size()),
      zero_(replicas_->is_alone() ? 0 : config.run.zero),
      is_sharded_(zero_ > 0),
      exchange_(*replicas_, partition_, devices_[0], gradient_type(config.train.numerics)),
      parameters_(names_of(model_), initial, devices_of(model_, devices_, plan), config.train.numerics,
                  in_8_bits(model_, config.train.numerics),
                  residence_of(model_, plan, Homes(plan, devices_), config, shares())),
      gradient_sums_(parameters_, *replicas_, partition_, exchange_, !is_sharded_),
      twins_(mesh_, parameters_, twins_of(model_.table(), partition_, replicas_->rank(), is_sharded_)),
      agreement_(*ranks_, config.model.all_layers(), config.shared_work(),
                 /*confirms=*/config.train.numerics.optimizer == OptimizerKind::kAdafactor,
                 [this](bool evaluating) { drain(evaluating); }),
      optimizer_(parameters_, config.train, plan.optimizer, initial, nvme_of(config), Homes(plan, devices_),
                 update_share()),
      whole_states_(mesh_, config.model, config.train.numerics, partition_, exchange_, parameters_,
                    optimizer_, zero_),
      loss_scale_(config.train.numerics.precision == Precision::kFp16Mixed, config.train.loss_scale,
                  config.train.loss_scale_interval),
      activations_(std::make_shared<ActivationHost>(config.train.offload_least_bytes, nvme_of(config))),
      evaluation_rows_(size_t{config.evaluation.windows} * examples_.row_tokens()),
      queued_batch_(host_tensor({config.train.batch, examples_.row_tokens()}, at::kLong, devices_[0])),
      messages_(mesh_, devices_[0], weight_type(config.train.numerics.precision), config.model.context,
                config.model.width),
      pipeline_(schedule_of(mesh_, devices_, config.model.dropout > 0, messages_)) {
  reserve_messages(plan);
  optimizer_.set_updates_on_host(updates_on_host(plan));
  optimizer_.set_update_slots(update_slots(plan));
  if (!replicas_->is_alone() && zero_ < 2)
    parameters_.on_accumulated([this](size_t index, uint32_t micro) { gradient_sums_.added(index, micro); });
  RandomState::seed(devices_, config.train.seed);
  const size_t row = examples_.row_tokens();
  for (uint32_t i = 0; i < config.evaluation.windows; ++i)
    examples_.validation_row(i, config.evaluation.windows, std::span(evaluation_rows_).subspan(i * row, row));
  activations_->move_to(plan.offload_to, Homes(plan, devices_));
  moves_.update(plan);
}

}  // namespace spillway::trainer
