#include "trainer/ranks/whole/whole_states.h"

#include <algorithm>

#include "trainer/ranks/whole/row_gather.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kMostStates = 8;             // of a parameter
constexpr uint64_t kWeights = kMostStates - 1;  // in the place of a state: what the model computes with

}  // namespace

WholeStates::WholeStates(const Mesh& mesh, const Architecture& model, const Numerics& numerics,
                         const Partition& partition, Exchange& exchange, Parameters& parameters,
                         Optimizer& optimizer, uint32_t zero)
    : mesh_(mesh),
      ranks_(*mesh.all()),
      table_(parameter_table(model)),
      numerics_(numerics),
      partition_(partition),
      parameters_(parameters),
      optimizer_(optimizer),
      zero_(zero),
      exchange_(exchange) {}

std::vector<StateTensor> WholeStates::state_shapes(size_t parameter) const {
  return optimizer_state(numerics_, table_[parameter].sizes);
}

// Of a parameter that another stage has it follows from one that is here.
std::vector<Parameters::Stored> WholeStates::stored_shapes(size_t parameter) const {
  std::vector<Parameters::Stored> all = parameters_.stored(parameter);
  if (!is_here(parameter)) all.front().sizes = table_[parameter].sizes;
  return all;
}

// A parameter's numbers from the replicas that keep them, on the first one. Without shares that one has them.
at::Tensor WholeStates::of_replicas(size_t parameter, const at::Tensor& mine, bool in_shares,
                                    const BytesOf& bytes_of) {
  Ranks& replicas = *mesh_.replicas();
  if (!in_shares || replicas.is_alone()) return mine.cpu().contiguous().view({-1}).view(at::kByte);
  std::vector<int64_t> bytes;
  for (const Span& section : partition_.sections(parameter)) bytes.push_back(bytes_of(section.length));
  return gather_rows(replicas, exchange_.buffer(), mine, bytes);
}

// And from the stage that has it to rank 0, from host to host.
at::Tensor WholeStates::whole(size_t parameter, const std::function<at::Tensor()>& mine, bool in_shares,
                              const BytesOf& bytes_of) {
  const uint32_t stage = mesh_.stage_with(table_[parameter]).number;
  at::Tensor all;
  if (mesh_.stage().number == stage) all = of_replicas(parameter, mine(), in_shares, bytes_of);
  if (stage == 0 || !mesh_.leaders()) return all;
  Ranks& leaders = *mesh_.leaders();
  if (leaders.rank() == stage) {
    leaders.send(all, 0);
    leaders.wait_for_sent();
  } else if (leaders.leads()) {
    all = at::empty({bytes_of(int64_t(table_[parameter].elements()))}, at::kByte);
    leaders.receive(all, stage);
  }
  return all;
}

at::Tensor WholeStates::exchange_weights(size_t parameter) {
  const Parameters::Stored shape = stored_shapes(parameter).front();
  const bool in_shares = parameters_.is_shared(parameter);
  const auto mine = [&] {
    return in_shares ? parameters_.read_share(parameter) : parameters_.read_stored(parameter, 0);
  };
  const at::Tensor all = whole(parameter, mine, in_shares, [&](int64_t elements) {
    return elements * int64_t(c10::elementSize(shape.type));
  });
  return ranks_.leads() ? all.view(shape.type).view(shape.sizes) : at::Tensor();
}

at::Tensor WholeStates::exchange(size_t parameter, size_t state) {
  if (state == kWeights) return exchange_weights(parameter);
  const StateTensor shape = state_shapes(parameter)[state];
  const auto mine = [&] { return optimizer_.state(parameter, state); };
  const at::Tensor all = whole(parameter, mine, zero_ > 0,
                               [&](int64_t elements) { return int64_t(part_bytes(shape, elements)); });
  return ranks_.leads() ? all.view(type_of(shape)).view(shape.sizes) : at::Tensor();
}

// What rank 0 wants is told by a sum to which the others add nothing.
at::Tensor WholeStates::of(size_t parameter, size_t state) {
  return is_exchanged() ? ask(parameter, state) : optimizer_.state(parameter, state);
}

at::Tensor WholeStates::stored(size_t parameter, size_t which) {
  return asks_for(parameter) ? ask(parameter, kWeights) : parameters_.read_stored(parameter, which);
}

at::Tensor WholeStates::ask(size_t parameter, size_t state) {
  ranks_.sum(double(1 + parameter * kMostStates + state));
  return exchange(parameter, state);
}

// Of a group, in its order; the first rank has them.
std::vector<at::Tensor> WholeStates::gather_weights(size_t group) {
  std::vector<int64_t> bytes(ranks_.size());
  std::vector<at::Tensor> mine, wholes;
  for (const size_t index : partition_.parameters_of(group)) {
    const Parameters::Stored whole = parameters_.stored(index).front();
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank)
      bytes[rank] += partition_.sections(index)[rank].length * int64_t(c10::elementSize(whole.type));
    mine.push_back(parameters_.read_share(index));
    if (ranks_.leads()) wholes.push_back(at::empty(whole.sizes, at::dtype(whole.type)));
  }
  const at::Tensor all = gather_rows(ranks_, exchange_.buffer(), at::cat(mine), bytes);
  int64_t at = 0;
  for (uint32_t rank = 0; ranks_.leads() && rank < ranks_.size(); ++rank)
    for (size_t i = 0; i < wholes.size(); ++i) {
      const auto& [begin, length] = partition_.sections(partition_.parameters_of(group)[i])[rank];
      if (length == 0) continue;
      const at::Tensor part = wholes[i].view({-1}).narrow(0, begin, length);
      part.view(at::kByte).copy_(all.narrow(0, at, int64_t(part.nbytes())));
      at += int64_t(part.nbytes());
    }
  return wholes;
}

uint64_t WholeStates::hash() {
  if (!weights_are_exchanged()) return parameters_.hash();
  std::optional<size_t> group;  // whose weights are here
  std::vector<at::Tensor> weights;
  const auto read = [&](size_t index, size_t which) {
    if (mesh_.has_stages()) {
      const at::Tensor weights_of_stage = exchange_weights(index);
      return ranks_.leads() ? weights_of_stage : at::zeros({0});
    }
    if (!parameters_.is_shared(index)) return parameters_.read_stored(index, which);
    const size_t own = partition_.group_of(index);
    if (group != own) weights = gather_weights(own);
    group = own;
    const std::vector<size_t>& all = partition_.parameters_of(own);
    return ranks_.leads() ? weights[size_t(std::ranges::find(all, index) - all.begin())] : at::zeros({0});
  };
  const uint64_t mine = parameters_.hash(read), first = ranks_.leads() ? mine : 0;
  const double high = ranks_.sum(double(first >> 32)), low = ranks_.sum(double(first & 0xffffffffu));
  return uint64_t(high) << 32 | uint64_t(low);
}

uint64_t WholeStates::hash_of_own() {
  return parameters_.hash([this](size_t index, size_t which) {
    return parameters_.is_shared(index) ? at::zeros({0}) : parameters_.read_stored(index, which);
  });
}

void WholeStates::end() {
  if (is_exchanged()) ranks_.sum(0);
}

void WholeStates::serve() {
  if (!is_exchanged()) return;
  while (const auto asked = static_cast<uint64_t>(ranks_.sum(0)))
    exchange((asked - 1) / kMostStates, (asked - 1) % kMostStates);
}

}  // namespace spillway::trainer
