#include "trainer/data/pair_file.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "trainer/data/token_metadata.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kMostLength = 1 << 20;  // tokens, as of 'model.context'
constexpr uint64_t kStart = 0;             // what a t5's decoder starts from: its pad

}  // namespace

uint64_t TokenLists::offset(uint64_t list) const {
  int64_t offset = 0;
  std::memcpy(&offset, offsets_.data() + list * sizeof offset, sizeof offset);
  return static_cast<uint64_t>(offset);
}

void TokenLists::copy(uint64_t list, std::span<int64_t> to) const {
  const uint64_t tokens = length(list);
  tokens_.copy(offset(list), to.first(tokens));
  std::fill(to.begin() + ptrdiff_t(tokens), to.end(), kPadding);
}

std::string TokenLists::fault_of_offsets(uint64_t longest) const {
  if (offset(0) != 0) return "begin at " + std::to_string(int64_t(offset(0))) + ", not at 0";
  for (uint64_t list = 0; list < size(); ++list) {
    const uint64_t from = offset(list), to = offset(list + 1);
    if (to < from || to > tokens_.size())
      return "go from " + std::to_string(from) + " to " + std::to_string(int64_t(to)) + " at pair " +
             std::to_string(list) + ", of " + std::to_string(tokens_.size()) + " tokens";
    if (to == from) return "leave pair " + std::to_string(list) + " without a token";
    if (to - from > longest)
      return "give pair " + std::to_string(list) + " " + std::to_string(to - from) +
             " tokens, and the metadata say at most " + std::to_string(longest);
  }
  if (offset(size()) == tokens_.size()) return "";
  return "end at " + std::to_string(offset(size())) + ", of " + std::to_string(tokens_.size()) + " tokens";
}

std::string TokenLists::fault_of_tokens(uint32_t vocabulary) const {
  std::vector<int64_t> block(1 << 16);
  for (uint64_t first = 0; first < tokens_.size(); first += block.size()) {
    const auto some = std::span(block).first(std::min<uint64_t>(block.size(), tokens_.size() - first));
    tokens_.copy(first, some);
    for (size_t i = 0; i < some.size(); ++i)
      if (uint64_t(some[i]) >= vocabulary)
        return "have the token " + std::to_string(some[i]) + " at position " + std::to_string(first + i) +
               ", and a vocabulary of " + std::to_string(vocabulary);
  }
  return "";
}

bool PairFile::is_one(const std::string& path) {
  std::string ignored;
  const auto file = safetensors::File::open(path, &ignored);
  return file && text_at(*file, "format") == kPairFormat;
}

std::unique_ptr<PairFile> PairFile::open(const std::string& path, std::string* error) {
  auto stored = safetensors::File::open(path, error);
  if (!stored) return *error = "corpus " + *error, nullptr;
  std::unique_ptr<PairFile> file(new PairFile(std::move(stored)));
  const std::string fault = file->read();
  if (!fault.empty())
    *error = "corpus " + path + ": " + fault + ": make it again with python -m spillway.tokenize --pairs";
  else if (file->decoder_start_ != kStart)  // of the tokenizer's model: another file would say the same
    *error = "corpus " + path + ": its 'decoder_start' is " + std::to_string(file->decoder_start_) +
             ", and a t5's decoder starts from 0";
  else
    return file;
  return nullptr;
}

std::string PairFile::read() {
  std::string fault = read_vocabulary(*file_, &vocabulary_);
  if (fault.empty()) fault = read_metadata();
  if (fault.empty()) fault = read_lists("source", &sources_);
  if (fault.empty()) fault = read_lists("target", &targets_);
  if (fault.empty() && file_->tensors().size() != 4)
    fault = "it must hold sources, targets and their offsets, and nothing else";
  if (fault.empty() && sources_.size() != targets_.size())
    fault = "it has " + std::to_string(sources_.size()) + " sources and " + std::to_string(targets_.size()) +
            " targets";
  return fault;
}

std::string PairFile::read_metadata() {
  const uint64_t source = number_at(*file_, "longest_source").value_or(0),
                 target = number_at(*file_, "longest_target").value_or(0);
  if (std::min(source, target) < 1 || std::max(source, target) > kMostLength)
    return "its 'longest_source' and 'longest_target' must be numbers from 1 to " +
           std::to_string(kMostLength);
  vocabulary_.longest_source = static_cast<uint32_t>(source);
  vocabulary_.longest_target = static_cast<uint32_t>(target);
  const auto mark = [&](const char* key) { return number_at(*file_, key).value_or(vocabulary_.size); };
  for (const char* key : {"pad", "decoder_start"})
    if (mark(key) >= vocabulary_.size) return "its '" + std::string(key) + "' is no token of its vocabulary";
  decoder_start_ = mark("decoder_start");
  const auto bytes = number_at(*file_, "target_bytes"), cut = number_at(*file_, "targets_cut");
  if (!bytes || !cut) return "its metadata have no numbers 'target_bytes' and 'targets_cut'";
  target_bytes_ = *cut == 0 ? *bytes : 0;
  return "";
}

std::string PairFile::read_lists(const std::string& name, TokenLists* lists) {
  TokenView tokens;
  if (const std::string fault = read_tokens(*file_, name + "s", &tokens); !fault.empty()) return fault;
  const auto it = file_->tensors().find(name + "_offsets");
  if (it == file_->tensors().end()) return "it has no '" + name + "_offsets'";
  const safetensors::StoredTensor& offsets = it->second;
  if (offsets.type != "I64" || offsets.shape.size() != 1 || offsets.shape[0] < 1)
    return "its '" + name + "_offsets' must be a row of I64, at least one";
  *lists = TokenLists(tokens, offsets.data);
  return "";
}

std::string PairFile::check() const {
  const auto fault = [&](const char* name, const TokenLists& lists, uint32_t longest) {
    std::string text = lists.fault_of_offsets(longest);
    if (!text.empty()) return std::string(name) + "_offsets that " + text;
    text = lists.fault_of_tokens(vocabulary_.size);
    return text.empty() ? "" : std::string(name) + "s that " + text;
  };
  std::string text = fault("source", sources_, vocabulary_.longest_source);
  if (text.empty()) text = fault("target", targets_, vocabulary_.longest_target);
  return text.empty() ? "" : text + ": make it again with python -m spillway.tokenize --pairs";
}

}  // namespace spillway::trainer
