#include "trainer/data/batch_loader.h"

#include <utility>

namespace spillway::trainer {

BatchLoader::BatchLoader(Draw draw, uint32_t rows, size_t tokens, Options options)
    : draw_(std::move(draw)), rows_(rows), tokens_(tokens), ahead_(options.ahead) {
  workers_.reserve(options.workers);
  for (uint32_t i = 0; i < options.workers; ++i)
    workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

void BatchLoader::work(const std::stop_token& stop) {
  while (auto batch = claim(stop)) {
    make(*batch);
    const Locked lock(mutex_);
    batch->made = true;
    batch.reset();  // who takes it has it alone, and its exception too
    made_.notify_one();
  }
}

std::shared_ptr<BatchLoader::Batch> BatchLoader::claim(const std::stop_token& stop) {
  const Locked lock(mutex_);
  const auto has_room = [this]() SPILLWAY_REQUIRES(mutex_) { return begun_ && batches_.size() < ahead_; };
  if (!room_.wait(mutex_, stop, has_room) || stop.stop_requested()) return nullptr;
  auto batch = std::make_shared<Batch>(next_);
  if (!spare_.empty()) batch->tokens = std::move(spare_.back()), spare_.pop_back();
  batches_.push_back(batch);
  next_ += rows_;
  return batch;
}

void BatchLoader::make(Batch& batch) const {
  try {
    batch.tokens.resize(tokens_);
    draw_(batch.cursor, batch.tokens);
  } catch (...) {
    batch.error = std::current_exception();
  }
}

void BatchLoader::begin_at(uint64_t cursor) {
  batches_.clear();
  begun_ = true;
  next_ = cursor;
  room_.notify_all();
}

std::shared_ptr<BatchLoader::Batch> BatchLoader::wait_for(uint64_t cursor) {
  const Locked lock(mutex_);
  const uint64_t expected = batches_.empty() ? next_ : batches_.front()->cursor;
  if (!begun_ || expected != cursor) begin_at(cursor);
  while (batches_.empty() || !batches_.front()->made) made_.wait(mutex_);
  auto batch = std::move(batches_.front());
  batches_.pop_front();
  if (batch->error) begin_at(cursor);
  room_.notify_one();
  return batch;
}

void BatchLoader::take(uint64_t cursor, std::vector<int64_t>* batch) {
  if (workers_.empty()) {
    batch->resize(tokens_);
    return draw_(cursor, *batch);
  }
  const auto made = wait_for(cursor);
  if (made->error) std::rethrow_exception(made->error);
  std::swap(*batch, made->tokens);
  const Locked lock(mutex_);
  spare_.push_back(std::move(made->tokens));
}

}  // namespace spillway::trainer
