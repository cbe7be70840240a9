#include "trainer/step/micro_batches/stage_messages.h"

#include <algorithm>

namespace spillway::trainer {
namespace {

// A link has two ends.
uint32_t other_end(const Ranks& link) {
  return 1 - link.rank();
}

}  // namespace

StageMessages::StageMessages(const Mesh& mesh, at::Device device, at::ScalarType type, int64_t tokens,
                             int64_t width)
    : stage_(mesh.stage()),
      before_(mesh.before()),
      after_(mesh.after()),
      tokens_(tokens),
      width_(width),
      options_(at::device(device).dtype(type)) {}

at::Tensor StageMessages::room(int64_t rows) const {
  return at::empty({rows, tokens_, width_}, options_);
}

void StageMessages::reserve(int64_t rows) {
  if (!spare_.defined() || spare_.size(0) < rows) spare_ = room(rows).zero_();
}

void StageMessages::give_back_beyond(int64_t rows) {
  if (spare_.size(0) > rows) spare_ = spare_.narrow(0, 0, rows).clone();
}

void StageMessages::begin() {
  forward_ = {}, backward_ = {};
  for (Ranks* const link :
       {before_.forward.get(), before_.backward.get(), after_.forward.get(), after_.backward.get()})
    if (link) link->wait_for_sent();
}

void StageMessages::send(Ranks& to, const at::Tensor& x) const {
  in_a_round("a message between stages", [&] {
    for (const at::Tensor& part : x.split(slice_)) to.send(part, other_end(to));
  });
}

void StageMessages::receive(Ranks& from, const at::Tensor& x) const {
  in_a_round("a message between stages", [&] {
    for (const at::Tensor& part : x.split(slice_)) from.receive(part, other_end(from));
  });
}

at::Tensor StageMessages::taken(Passed* passed, Ranks& from, uint32_t micro_batch, int64_t rows) const {
  if (micro_batch == passed->came) {
    const at::Tensor x = room(rows);
    receive(from, x);
    passed->kept[passed->came++] = x;
  }
  return passed->kept.at(micro_batch);
}

void StageMessages::give(Passed* passed, Ranks& to, uint32_t micro_batch, const at::Tensor& x) const {
  if (micro_batch != passed->went) return;  // it has gone, before a failure
  send(to, x.detach().contiguous());
  ++passed->went;
}

at::Tensor StageMessages::input(uint32_t micro_batch, int64_t rows) {
  return taken(&forward_, *before_.forward, micro_batch, rows)
      .detach()
      .requires_grad_(at::GradMode::is_enabled());
}

void StageMessages::give_output(uint32_t micro_batch, const at::Tensor& x) {
  give(&forward_, *after_.forward, micro_batch, x);
}

at::Tensor StageMessages::gradient(uint32_t micro_batch, int64_t rows) {
  return taken(&backward_, *after_.backward, micro_batch, rows);
}

void StageMessages::give_gradient(uint32_t micro_batch, const at::Tensor& of_input) {
  give(&backward_, *before_.backward, micro_batch, of_input);
}

void StageMessages::done(uint32_t micro_batch) {
  forward_.kept.erase(micro_batch), backward_.kept.erase(micro_batch);
}

void StageMessages::drain(Passed* passed, Ranks* from, Ranks* to, uint32_t micro_batch, int64_t rows) const {
  const auto each_slice = [&](Ranks& link, void (Ranks::*pass)(const at::Tensor&, uint32_t)) {
    in_a_round("a message between stages", [&] {
      for (int64_t begin = 0; begin < rows; begin += slice_)
        (link.*pass)(spare_.narrow(0, 0, std::min(slice_, rows - begin)), other_end(link));
    });
  };
  if (from && micro_batch >= passed->came) each_slice(*from, &Ranks::receive), ++passed->came;
  if (to && micro_batch >= passed->went) each_slice(*to, &Ranks::send), ++passed->went;
}

// In the order of the schedule (stage_pipeline.h), without what has passed.
void StageMessages::drain(uint32_t count, bool backward, const std::function<int64_t(uint32_t)>& rows_of) {
  forward_.kept.clear(), backward_.kept.clear();
  for (uint32_t first = 0, next = 0; first < count; ++first) {
    for (; next < std::min(count, first + stage_.most_under_way()); ++next)
      drain(&forward_, before_.forward.get(), after_.forward.get(), next, rows_of(next));
    if (backward) drain(&backward_, after_.backward.get(), before_.backward.get(), first, rows_of(first));
  }
}

}  // namespace spillway::trainer
