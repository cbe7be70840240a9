#include "tools/spillway/snapshot/pickle/pickle.h"

#include <bit>

#include "tools/spillway/snapshot/pickle/pickle_machine.h"

namespace spillway::tools {

Pickle Pickle::read(ByteStream bytes, const TakeRecord& take_record) {
  Pickle pickle;
  PickleMachine(&bytes, take_record, &pickle).run();
  return pickle;
}

const std::vector<Pickle::Id>& Pickle::items(Id value) const {
  static const std::vector<Id> none;
  const Value found = at(value);
  const bool is_container = found.type == Type::kList || found.type == Type::kDictionary;
  const auto number = static_cast<size_t>(found.bits);
  return is_container && number < containers_.size() ? containers_[number] : none;
}

std::optional<int64_t> Pickle::integer(Id value) const {
  const Value found = at(value);
  const bool is_whole =
      found.type == Type::kInteger || found.type == Type::kBool || found.type == Type::kRecord;
  return is_whole ? std::optional(found.bits) : std::nullopt;
}

std::optional<double> Pickle::number(Id value) const {
  if (type(value) == Type::kReal) return std::bit_cast<double>(at(value).bits);
  const auto whole = integer(value);
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<std::string_view> Pickle::text(Id value) const {
  const Value found = at(value);
  if (found.type != Type::kText) return std::nullopt;
  return std::string_view(std::bit_cast<const char*>(found.bits), found.length);
}

std::optional<Pickle::Id> Pickle::find(Id dictionary, std::string_view key) const {
  if (type(dictionary) != Type::kDictionary) return std::nullopt;
  const auto& entries = items(dictionary);
  for (size_t i = entries.size(); i >= 2; i -= 2)
    if (text(entries[i - 2]) == key) return entries[i - 1];
  return std::nullopt;
}

bool begins_as_pickle(std::string_view bytes) {
  return bytes.size() >= 2 && static_cast<uint8_t>(bytes[0]) == kPickleProtocol &&
         static_cast<uint8_t>(bytes[1]) >= 2 && static_cast<uint8_t>(bytes[1]) <= kNewestPickleProtocol;
}

}  // namespace spillway::tools
