#include "trainer/checkpoint/checkpoint.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "trainer/checkpoint/checksums.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/settings.h"
#include "trainer/checkpoint/tensor_item.h"

namespace spillway::trainer {
namespace {

constexpr const char* kFormat = "spillway-train 3";

std::string state_name(const StateTensor& state, const std::string& parameter) {
  return "optimizer." + state.name + "." + parameter;
}

void copy_to(std::span<std::byte> bytes, const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu().contiguous();
  std::memcpy(bytes.data(), host.const_data_ptr(), bytes.size());
}

// A state as an item that is fetched, from wherever and whichever rank it lies, when it is written.
safetensors::Item state_item(WholeStates& states, const StateTensor& state, size_t index, size_t which,
                             const std::string& parameter) {
  return {state_name(state, parameter), name_of(type_of(state)), state.sizes,
          [&states, index, which](std::span<std::byte> bytes) { copy_to(bytes, states.of(index, which)); }};
}

// The same, of what holds a parameter.
safetensors::Item parameter_item(WholeStates& states, const Parameters& parameters, size_t index,
                                 size_t which) {
  const Parameters::Stored stored = states.stored_shapes(index)[which];
  return {
      "model." + parameters.name(index) + stored.ending, name_of(stored.type), stored.sizes,
      [&states, index, which](std::span<std::byte> bytes) { copy_to(bytes, states.stored(index, which)); }};
}

// Every tensor of the state under its name, in the order of the file.
std::vector<safetensors::Item> state_of(TrainingStep& program) {
  std::vector<safetensors::Item> items;
  const Parameters& parameters = program.parameters();
  WholeStates& whole = program.whole_states();
  for (size_t i = 0; i < parameters.size(); ++i) {
    for (size_t k = 0; k < whole.stored_shapes(i).size(); ++k)
      items.push_back(parameter_item(whole, parameters, i, k));
    const std::vector<StateTensor> states = whole.state_shapes(i);
    for (size_t k = 0; k < states.size(); ++k)
      items.push_back(state_item(whole, states[k], i, k, parameters.name(i)));
  }
  return items;
}

template <typename Number>
bool read_number(const safetensors::File& file, const char* key, Number* value, std::string* error) {
  const auto it = file.metadata().find(key);
  const std::string text = it == file.metadata().end() ? "" : it->second;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (code == std::errc() && end == text.data() + text.size()) return true;
  *error = std::string("its metadata has no number '") + key + "'";
  return false;
}

std::string text_of(const Numerics& numerics) {
  return std::string(name_of(numerics.precision)) + " by " + name_of(numerics.optimizer);
}

// What the order of rows is made of, beside the cursor.
std::string rows_of(const Config& config, const Corpus& corpus) {
  const std::string size = corpus.pairs() ? std::to_string(corpus.pairs()->size()) + " pairs"
                                          : std::to_string(corpus.size()) + " tokens";
  return "data.seed " + std::to_string(config.data.seed) + ", data.validation " +
         number_text(config.data.validation) + " of " + size;
}

std::unique_ptr<safetensors::File> open_checked(const std::string& path, const Config& config,
                                                std::string* error) {
  auto file = safetensors::File::open(path, error);
  if (!file) return nullptr;
  const auto value = [&](const char* key) {
    const auto it = file->metadata().find(key);
    return it == file->metadata().end() ? std::string() : it->second;
  };
  if (value("format") != kFormat)
    *error = path + ": is no checkpoint of this version of spillway-train";
  else if (value("model") != to_string(config.model))
    *error = path + ": was written by the model " + value("model") + ", not " + to_string(config.model);
  else if (value("numerics") != text_of(config.train.numerics))
    *error = path + ": was trained as " + value("numerics") + ", not as " + text_of(config.train.numerics);
  else
    return file;
  return nullptr;
}

bool fits(const safetensors::File& file, const safetensors::Item& item, std::string* error) {
  const auto it = file.tensors().find(item.name);
  if (it != file.tensors().end() && it->second.type == item.type && it->second.shape == item.shape)
    return true;
  *error = "tensor '" + item.name + "' is missing or has another type or shape";
  return false;
}

at::Tensor view_of(const safetensors::StoredTensor& tensor, at::ScalarType type) {
  // A copy, so that nothing refers to the mapping after it is gone, and alignment is LibTorch's.
  at::Tensor host = at::empty(tensor.shape, at::TensorOptions().dtype(type));
  std::memcpy(host.mutable_data_ptr(), tensor.data.data(), tensor.data.size());
  return host;
}

// Of a file that has them all, as they should be.
void restore_state(const safetensors::File& file, TrainingStep* program) {
  const at::NoGradGuard no_grad;
  Parameters& parameters = program->parameters();
  Optimizer& optimizer = program->optimizer();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!program->whole_states().is_here(i)) continue;
    const std::vector<Parameters::Stored> stored = parameters.stored(i);
    for (size_t k = 0; k < stored.size(); ++k)
      parameters.write_stored(
          i, k, view_of(file.tensors().at("model." + parameters.name(i) + stored[k].ending), stored[k].type));
    std::vector<at::Tensor> states;
    for (const StateTensor& state : optimizer.state_shapes(i))
      states.push_back(view_of(file.tensors().at(state_name(state, parameters.name(i))), type_of(state)));
    optimizer.set_states(i, states);
  }
}

// The tensors that this rank restores.
std::set<std::string> names_here(const safetensors::File& file, TrainingStep* program) {
  std::set<std::string> names;
  const Parameters& parameters = program->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!program->whole_states().is_here(i)) continue;
    for (const Parameters::Stored& stored : parameters.stored(i))
      names.insert("model." + parameters.name(i) + stored.ending);
    for (const StateTensor& state : program->optimizer().state_shapes(i))
      names.insert(state_name(state, parameters.name(i)));
  }
  for (const auto& [name, tensor] : file.tensors())
    if (name.starts_with("random.")) names.insert(name);
  return names;
}

std::vector<at::Tensor> random_states(const safetensors::File& file) {
  std::vector<at::Tensor> states;
  for (size_t i = 0;; ++i) {
    const auto it = file.tensors().find("random." + std::to_string(i));
    if (it == file.tensors().end() || it->second.type != "U8" || it->second.shape.size() != 1) return states;
    states.push_back(view_of(it->second, at::kByte));
  }
}

}  // namespace

std::string aside_of(const std::string& path) {
  return path + ".of-an-earlier-run";
}

std::string set_aside(const std::string& path) {
  std::string aside = aside_of(path);
  std::error_code failed;
  for (uint32_t number = 2; std::filesystem::exists(aside, failed); ++number)
    aside = aside_of(path) + "." + std::to_string(number);
  std::filesystem::rename(path, aside, failed);
  return failed ? "" : aside;
}

std::string set_aside_text(const std::string& aside) {
  return "the checkpoint of an earlier run is now " + aside;
}

bool save_checkpoint(const std::string& path, const Config& config, const Corpus& corpus,
                     TrainingStep& program, const SavedPlan& plan, std::string* error) {
  std::vector<safetensors::Item> items = state_of(program);
  const RandomState random = RandomState::of(program.devices());
  for (size_t i = 0; i < random.tensors().size(); ++i)
    items.push_back(item_of("random." + std::to_string(i), random.tensors()[i]));
  Metadata metadata = {{"format", kFormat},
                       {"model", to_string(config.model)},
                       {"numerics", text_of(config.train.numerics)},
                       {"step", std::to_string(program.step())},
                       {"rows", rows_of(config, corpus)},
                       {"settings", settings_of(config)},
                       {"cursor", std::to_string(program.cursor())},
                       {"updates", std::to_string(program.optimizer().updates())},
                       {"loss_scale", number_text(program.loss_scale().state().scale)},
                       {"loss_scale.clean", std::to_string(program.loss_scale().state().clean)},
                       {"loss_scale.skipped", std::to_string(program.loss_scale().state().skipped)}};
  add_to_metadata(plan, &metadata);
  add_checksums(metadata, &items);
  return safetensors::write(path, items, metadata, error);
}

std::optional<SavedPlan> plan_of_checkpoint(const std::string& path, const Config& config,
                                            std::string* error) {
  const auto file = open_checked(path, config, error);
  if (!file) return std::nullopt;
  auto saved = saved_plan_of(file->metadata(), config.model.all_layers(), error);
  if (!saved) *error = path + ": " + *error;
  return saved;
}

std::string other_rows_of_checkpoint(const std::string& path, const Config& config, const Corpus& corpus) {
  std::string error;
  const auto file = open_checked(path, config, &error);
  if (!file || !file->metadata().contains("rows")) return "";
  const std::string rows = file->metadata().at("rows"), here = rows_of(config, corpus);
  if (rows == here) return "";
  return "the checkpoint counted rows of other data (" + rows + ") than these (" + here +
         "): some may come again before others have come once";
}

std::string other_settings_of_checkpoint(const std::string& path, const Config& config) {
  std::string error;
  const auto file = open_checked(path, config, &error);
  if (!file || !file->metadata().contains("settings")) return "";
  return changed_settings(file->metadata().at("settings"), settings_of(config));
}

bool load_checkpoint(const std::string& path, const Config& config, TrainingStep* program,
                     std::string* error) {
  const auto file = open_checked(path, config, error);
  if (!file) return false;
  uint64_t step = 0, cursor = 0, updates = 0;
  LossScale::State scale;
  bool sound = read_number(*file, "step", &step, error) && read_number(*file, "cursor", &cursor, error) &&
               read_number(*file, "updates", &updates, error) &&
               read_number(*file, "loss_scale", &scale.scale, error) &&
               read_number(*file, "loss_scale.clean", &scale.clean, error) &&
               read_number(*file, "loss_scale.skipped", &scale.skipped, error);
  if (sound && !(scale.scale >= 1 && std::isfinite(scale.scale)))
    sound = (*error = "its loss scale is not a number from 1 on", false);
  for (const safetensors::Item& item : state_of(*program)) sound = sound && fits(*file, item, error);
  const std::vector<at::Tensor> random = random_states(*file);
  if (sound && random.empty()) sound = (*error = "it has no random states", false);
  if (const std::string name = sound ? damaged(*file, names_here(*file, program)) : ""; !name.empty())
    sound = (*error = "'" + name + "' has other bytes than were written: the file is damaged", false);
  if (!sound) return *error = path + ": " + *error, false;
  restore_state(*file, program);
  RandomState::from_tensors(random, program->devices()).restore();
  program->set_progress(step, cursor);
  program->optimizer().set_updates(updates);
  program->loss_scale().set_state(scale);
  return true;
}

}  // namespace spillway::trainer
