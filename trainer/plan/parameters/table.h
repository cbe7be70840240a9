// How a family's table is written down.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {

// Appends parameters that share a layer and the prefix of their names.
class TableWriter {
 public:
  explicit TableWriter(std::vector<Parameter>* table) : table_(*table) {}

  // Of what belongs to no layer.
  void at(End end) { end_ = end; }
  void in_layer(int layer, std::string prefix) { layer_ = layer, prefix_ = std::move(prefix); }
  void in_part(Part part) { part_ = part; }
  void normal(const std::string& key, std::vector<int64_t> sizes, double deviation) {
    add(key, std::move(sizes), 0, deviation);
  }
  void ones(const std::string& key, int64_t size) { add(key, {size}, 1, 0); }
  void zeros(const std::string& key, int64_t size) { add(key, {size}, 0, 0); }

 private:
  void add(const std::string& key, std::vector<int64_t> sizes, double mean, double deviation) {
    table_.push_back({prefix_ + key, key, layer_, end_, false, part_, std::move(sizes), mean, deviation});
  }

  std::vector<Parameter>& table_;
  int layer_ = -1;
  End end_{};
  Part part_{};
  std::string prefix_;
};

std::vector<Parameter> gpt2_table(const Architecture& model);
std::vector<Parameter> llama_table(const Architecture& model);
std::vector<Parameter> t5_table(const Architecture& model);

}  // namespace spillway::trainer
