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

void StageMessages::begin() {
  forward_ = {}, backward_ = {};
}

at::Tensor StageMessages::taken(Passed* passed, Ranks& from, uint32_t micro_batch, int64_t rows) const {
  if (micro_batch == passed->came) {
    const at::Tensor x = room(rows);
    from.receive(x, other_end(from));
    passed->kept[passed->came++] = x;
  }
  return passed->kept.at(micro_batch);
}

void StageMessages::give(Passed* passed, Ranks& to, uint32_t micro_batch, const at::Tensor& x) {
  if (micro_batch != passed->went) return;  // it has gone, before a failure
  to.send(x.detach().contiguous(), other_end(to));
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
  const at::Tensor spare = spare_.narrow(0, 0, rows);
  if (from && micro_batch >= passed->came) from->receive(spare, other_end(*from)), ++passed->came;
  if (to && micro_batch >= passed->went) to->send(spare, other_end(*to)), ++passed->went;
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
