#include "trainer/pretrained/save.h"

#include <cstring>
#include <filesystem>

#include "trainer/checkpoint/durable_file.h"
#include "trainer/pretrained/hugging_face_config.h"

namespace spillway::trainer {

bool save_pretrained(const std::string& folder, const Architecture& model, const TextMarks& marks,
                     const std::vector<safetensors::Item>& items, std::string* error) {
  std::error_code code, ignored;
  std::filesystem::create_directories(folder, code);
  if (!std::filesystem::is_directory(folder, ignored))
    return *error = "cannot make the folder '" + folder + "' (" + code.message() + ")", false;
  if (!safetensors::write(folder + "/model.safetensors", items, {{"format", "pt"}}, error)) return false;
  const std::string path = folder + "/config.json", config = hugging_face_config(model, marks);
  const int wrong = write_durably(path, [&](DraftFile& file) { return file.write(config); });
  if (wrong != 0) *error = "cannot write '" + path + "': " + std::strerror(wrong);
  return wrong == 0;
}

}  // namespace spillway::trainer
