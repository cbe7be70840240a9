#include "trainer/pretrained/shards.h"

#include <filesystem>

#include "trainer/pretrained/json_keys.h"

namespace spillway::trainer {
namespace {

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool stays_in_folder(const std::string& file) {
  return !file.empty() && file != "." && file.find('/') == std::string::npos &&
         file.find("..") == std::string::npos && file.find('\0') == std::string::npos;
}

}  // namespace

std::unique_ptr<Shards> Shards::open(const std::string& folder, std::string* error) {
  std::unique_ptr<Shards> shards(new Shards(folder));
  std::error_code code;
  if (std::filesystem::exists(shards->path_of(kOneFile), code))
    return shards->open_file(kOneFile, error) ? std::move(shards) : nullptr;
  if (std::filesystem::exists(shards->path_of(kIndex), code))
    return shards->open_index(error) ? std::move(shards) : nullptr;
  *error = folder + ": has neither " + kOneFile + " nor " + kIndex + ": save the model as safetensors";
  return nullptr;
}

bool Shards::open_index(std::string* error) {
  const std::string path = path_of(kIndex);
  const auto fail = [&](const std::string& why) { return *error = path + ": " + why, false; };
  const auto index = read_json_object(path, error);
  if (!index) return false;
  const auto found = index->find("weight_map");
  if (found == index->end() || !found->is_object() || found->empty())
    return fail("'weight_map' must be an object that names the file of each tensor");
  for (const auto& [name, file] : found->items()) {
    if (!file.is_string()) return fail("the file of tensor '" + name + "' must be a text");
    const std::string& text = file.get_ref<const std::string&>();
    if (!stays_in_folder(text))
      return fail("the file of tensor '" + name + "' must be in this folder, not '" + text + "'");
    if (!files_.contains(text) && !open_file(text, error)) return false;
    if (!files_[text]->tensors().contains(name))
      return fail("tensor '" + name + "' is not in '" + text + "', where it should be");
  }
  return true;
}

bool Shards::open_file(const std::string& file, std::string* error) {
  auto opened = safetensors::File::open(path_of(file), error);
  if (!opened) return false;
  for (const auto& [name, tensor] : opened->tensors()) {
    const auto [place, added] = tensors_.try_emplace(name, Found{&tensor, file});
    if (!added)
      return *error = path_of(file) + ": tensor '" + name + "' is in '" + place->second.file + "' too", false;
  }
  files_[file] = std::move(opened);
  return true;
}

const safetensors::StoredTensor* Shards::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.tensor;
}

std::vector<std::string> Shards::names() const {
  std::vector<std::string> names;
  for (const auto& [name, found] : tensors_) names.push_back(name);
  return names;
}

}  // namespace spillway::trainer
