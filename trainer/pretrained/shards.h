// The tensors of a model's folder as Hugging Face saves them: in one model.safetensors, or in several files
// that model.safetensors.index.json names. Where both are there the one file counts, as for transformers.
//
// The index is not trusted: its files must lie in the folder, each tensor must be in the file that it names,
// and no tensor may be in two files.
//
// Thread-safety: immutable once open. Ownership: owns the files' mappings; tensors and their bytes live as
// long as it. Errors: texts that name the file.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace spillway::trainer {

class Shards {
 public:
  static std::unique_ptr<Shards> open(const std::string& folder, std::string* error);

  const std::string& folder() const { return folder_; }
  // Null when there is no such tensor.
  const safetensors::StoredTensor* find(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  explicit Shards(std::string folder) : folder_(std::move(folder)) {}
  std::string path_of(const std::string& file) const { return folder_ + "/" + file; }
  bool open_index(std::string* error);
  bool open_file(const std::string& file, std::string* error);

  std::string folder_;
  std::map<std::string, std::unique_ptr<safetensors::File>> files_;
  struct Found {
    const safetensors::StoredTensor* tensor;
    std::string file;
  };
  std::map<std::string, Found> tensors_;
};

}  // namespace spillway::trainer
