// Files of pairs as another program could write them, whole or wrong.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/scratch_folder.h"
#include "trainer/data/corpus.h"

namespace spillway::trainer {

struct WrittenPairs {
  struct Side {
    std::vector<int32_t> tokens{};
    std::vector<int64_t> offsets{0};

    void add(const std::vector<int32_t>& list) {
      tokens.insert(tokens.end(), list.begin(), list.end());
      offsets.push_back(int64_t(tokens.size()));
    }
  };
  std::string metadata =
      R"("format":"spillway-pairs 1","vocabulary":"384","longest_source":"12","longest_target":"8",)"
      R"("pad":"0","eos":"1","decoder_start":"0","target_bytes":"4000","targets_cut":"0")";
  std::string type = "U16", offset_type = "I64", more{};  // more: entries of the header
  Side sources{}, targets{};

  std::string bytes() const {
    const uint64_t width = type == "U8" ? 1 : type == "U16" ? 2 : 4;
    std::string header = "{\"__metadata__\":{" + metadata + "}" + more, data;
    for (const auto& [name, side] : {std::pair("source", &sources), std::pair("target", &targets)}) {
      entry(std::string(name) + "_offsets", offset_type, side->offsets, sizeof(int64_t), &header, &data);
      entry(std::string(name) + "s", type, side->tokens, width, &header, &data);
    }
    header += "}";
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
  }

 private:
  template <typename Numbers>
  static void entry(const std::string& name, const std::string& of, const Numbers& numbers, uint64_t width,
                    std::string* header, std::string* data) {
    const size_t begin = data->size();
    for (const auto& number : numbers) data->append(reinterpret_cast<const char*>(&number), width);
    *header += ",\"" + name + "\":{\"dtype\":\"" + of + "\",\"shape\":[" + std::to_string(numbers.size()) +
               "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data->size()) + "]}";
  }
};

// Pairs from which something can be learned: a source of counting bytes, as ByT5's tokens, and a target that
// counts on from the same one. Sources have 2 to 12 tokens and targets 1 to 8, with their ends, in all
// combinations. At most 200 of them differ.
inline WrittenPairs counting_pairs(size_t count) {
  WrittenPairs written;
  for (size_t pair = 0; pair < count; ++pair) {
    const auto counting = [pair](size_t tokens) {
      std::vector<int32_t> list(tokens + 1, 1);
      std::iota(list.begin(), list.end() - 1, int32_t(3 + pair * 29 % 200));
      return list;
    };
    written.sources.add(counting(1 + pair % 11)), written.targets.add(counting(pair % 8));
  }
  return written;
}

inline Corpus pair_corpus(const ScratchFolder& scratch, const WrittenPairs& written) {
  ScratchFolder::write(scratch.file("pairs"), written.bytes());
  std::string error;
  auto corpus = Corpus::open(scratch.file("pairs"), 0.1, 0, &error);
  EXPECT_TRUE(corpus) << error;
  return std::move(corpus).value_or(Corpus());
}

}  // namespace spillway::trainer
