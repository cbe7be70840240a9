#include "trainer/residency/nvme/layer_file.h"

#include <algorithm>
#include <tuple>

#include "trainer/plan/schedule.h"

namespace spillway::trainer {

class LayerFile::Home : public LayerHome {
 public:
  Home(std::shared_ptr<LayerFile> file, uint32_t layer) : file_(std::move(file)), layer_(layer) {}
  ~Home() override { file_->remove(layer_); }
  Home(const Home&) = delete;

  Place place() const override { return Place::kNvme; }
  bool is_ready() override { return file_->is_ready(layer_); }
  at::Tensor read(CopyStream* by) override { return file_->read(layer_, by); }
  void read_until(const CopyStream::Mark& mark) override { file_->read_until(layer_, mark); }
  at::Tensor overwrite(CopyStream* by) override { return file_->overwrite(layer_, by); }
  void written_by(CopyStream::Mark mark) override { file_->written_by(layer_, std::move(mark), false); }
  at::Tensor change(CopyStream* by) override { return file_->change(layer_, by); }
  void partly_written_by(CopyStream::Mark mark) override { file_->written_by(layer_, std::move(mark), true); }
  void all_is_written() override { file_->all_is_written(layer_); }
  void settle() override { file_->settle(layer_); }
  void discard() override { file_->discard(layer_); }
  std::optional<uint32_t> record() const override { return layer_; }

 private:
  const std::shared_ptr<LayerFile> file_;
  const uint32_t layer_;
};

LayerFile::LayerFile(at::Device device, const std::string& folder, const std::string& kind)
    : device_(device), file_(folder, "the layers' " + kind) {}

LayerFile::~LayerFile() {
  file_.close();  // waits for what the disk has under way, before its memory goes
  try {
    for (const Buffer& buffer : buffers_) wait_on_host(buffer.written), wait_on_host(buffer.read_until);
    // NOLINTNEXTLINE(bugprone-empty-catch)
  } catch (const std::exception&) {  // the device is lost, and its copies with it
  }
}

std::shared_ptr<LayerHome> LayerFile::home(std::string name, uint64_t bytes) {
  const uint64_t whole = aligned(bytes, kRecordAlignment);
  BlockStore::Piece piece = file_.reserved_piece(whole);
  try {
    make_buffers(whole);
  } catch (...) {
    file_.give_back(std::move(piece));
    throw;
  }
  records_.emplace(next_, Record{.name = std::move(name), .piece = std::move(piece), .kept = {}});
  return std::make_shared<Home>(shared_from_this(), next_++);
}

// For one layer more, of so many bytes.
void LayerFile::make_buffers(uint64_t bytes) {
  const size_t count = std::min<size_t>(kLayerBuffers, records_.size() + 1);
  const bool are_larger = bytes > buffer_bytes_;
  std::deque<Buffer> made;
  while (made.size() + (are_larger ? 0 : buffers_.size()) < count)
    made.emplace_back().memory = RecordFile::new_buffer(std::max(bytes, buffer_bytes_), device_);
  if (are_larger) {
    for (Buffer& buffer : buffers_) evict(&buffer), wait_on_host(buffer.read_until);
    buffers_.clear();
    buffer_bytes_ = bytes;
  }
  for (Buffer& buffer : made) buffers_.emplace_back().memory = std::move(buffer.memory);
}

void LayerFile::remove(uint32_t layer) {
  if (Buffer* buffer = holder(layer)) {
    file_.wait(buffer);
    if (buffer->spare.defined()) {
      wait_on_host(buffer->read_until);
      buffer->memory = std::exchange(buffer->spare, {});
    }
    buffer->layer.reset(), buffer->stage = Stage::kIdle, buffer->changed = false;
  }
  const auto found = records_.find(layer);
  file_.give_back(std::move(found->second.piece));
  records_.erase(found);
}

LayerFile::Buffer* LayerFile::holder(uint32_t layer) {
  const auto found = std::ranges::find(buffers_, layer, &Buffer::layer);
  return found == buffers_.end() ? nullptr : &*found;
}

bool LayerFile::is_expected(const Buffer& buffer) const {
  return buffer.layer && std::ranges::find(expected_, *buffer.layer) != expected_.end();
}

at::Tensor LayerFile::bytes_in(Buffer* buffer) {
  buffer->used = ++clock_;
  return buffer->memory.narrow(0, 0, int64_t(buffer->record->piece.bytes));
}

bool LayerFile::is_ready(uint32_t layer) {
  file_.poll();
  const Buffer* buffer = holder(layer);
  return buffer != nullptr && (buffer->stage != Stage::kReading || !buffer->transfer.is_under_way());
}

at::Tensor LayerFile::read(uint32_t layer, CopyStream* by) {
  Buffer* buffer = holder(layer);
  // The host may write what it reads.
  if (buffer != nullptr && by == nullptr && buffer->stage == Stage::kWriting) {
    end_write(buffer);
    buffer = holder(layer);
  }
  if (buffer == nullptr) begin_read(buffer = emptied_buffer(), layer);
  if (buffer->stage == Stage::kReading) {
    buffer->stage = Stage::kIdle;
    buffer->layer.reset();  // of a read that fails
    file_.end_read(buffer);
    buffer->layer = layer;
  }
  queue_behind(by, buffer->written);
  if (by == nullptr) wait_on_host(buffer->read_until);
  return bytes_in(buffer);
}

void LayerFile::read_until(uint32_t layer, const CopyStream::Mark& mark) {
  if (Buffer* buffer = holder(layer)) buffer->read_until = mark;
}

at::Tensor LayerFile::overwrite(uint32_t layer, CopyStream* by) {
  Buffer* buffer = holder(layer);
  if (buffer != nullptr && buffer->stage == Stage::kWriting) {
    end_write(buffer);
    buffer = holder(layer);
  }
  if (buffer == nullptr) {
    buffer = emptied_buffer();
    buffer->layer = layer, buffer->record = &records_.at(layer);
  }
  file_.wait(buffer);  // for a read, whatever comes of it
  buffer->stage = Stage::kIdle;
  buffer->record->kept.reset();
  queue_behind(by, buffer->read_until);
  return bytes_in(buffer);
}

// The bytes are in a buffer, and the disk does not write them.
at::Tensor LayerFile::change(uint32_t layer, CopyStream* by) {
  if (Buffer* buffer = holder(layer); buffer != nullptr && buffer->stage == Stage::kWriting)
    end_write(buffer);
  return read(layer, by);
}

void LayerFile::written_by(uint32_t layer, CopyStream::Mark mark, bool partly) {
  Buffer* buffer = holder(layer);
  buffer->written = std::move(mark);
  buffer->changed = true;
  buffer->partly = partly;
}

void LayerFile::all_is_written(uint32_t layer) {
  if (Buffer* buffer = holder(layer)) buffer->partly = false;
}

void LayerFile::settle(uint32_t layer) {
  Buffer* buffer = holder(layer);
  if (buffer == nullptr || !buffer->changed) return;
  wait_on_host(buffer->written);
  buffer->changed = false;
  buffer->layer.reset();
  file_.write_new(&records_.at(layer), buffer);
  file_.wait_for_new(buffer);
  buffer->layer = layer;
}

void LayerFile::discard(uint32_t layer) {
  if (Buffer* buffer = holder(layer)) buffer->changed = false;
  records_.at(layer).kept.reset();
}

void LayerFile::expect(const std::vector<uint32_t>& layers) {
  const size_t most = buffers_.size() > 2 ? buffers_.size() - 2 : 1;
  expected_.clear();
  for (const uint32_t layer : layers)
    if (records_.contains(layer) && expected_.size() < most) expected_.push_back(layer);
  advance();
  for (const uint32_t layer : expected_) {
    if (holder(layer) != nullptr) continue;
    Buffer* buffer = unused_buffer();
    if (buffer == nullptr) return;
    begin_read(buffer, layer);
  }
}

// One that can be had without waiting, the one that was used first.
LayerFile::Buffer* LayerFile::unused_buffer() {
  Buffer* found = nullptr;
  for (Buffer& buffer : buffers_) {
    const bool is_unused = buffer.stage == Stage::kIdle && !buffer.changed && !is_expected(buffer) &&
                           is_done(buffer.read_until) && is_done(buffer.written);
    if (is_unused && (found == nullptr || buffer.used < found->used)) found = &buffer;
  }
  if (found != nullptr) evict(found);
  return found;
}

// The one that has to be waited for least: one that is expected comes last.
LayerFile::Buffer* LayerFile::emptied_buffer() {
  const auto cost = [this](const Buffer& buffer) {
    const int wait = buffer.changed || buffer.stage == Stage::kWriting ? 2
                     : buffer.stage == Stage::kReading                 ? 1
                                                                       : 0;
    return std::tuple(buffer.layer ? is_expected(buffer) : false, wait, buffer.used);
  };
  Buffer* found = &buffers_.front();
  for (Buffer& buffer : buffers_)
    if (cost(buffer) < cost(*found)) found = &buffer;
  evict(found);
  return found;
}

void LayerFile::advance() {
  file_.poll();
  for (Buffer& buffer : buffers_) {
    if (buffer.stage == Stage::kWriting && !buffer.transfer.is_under_way()) end_write(&buffer);
    const bool is_whole = buffer.stage == Stage::kIdle && buffer.changed && !buffer.partly;
    if (is_whole && is_done(buffer.written)) begin_write(&buffer);
  }
}

void LayerFile::begin_read(Buffer* buffer, uint32_t layer) {
  wait_on_host(buffer->read_until), wait_on_host(buffer->written);
  buffer->read_until = buffer->written = nullptr;
  buffer->layer = layer;
  file_.begin_read(buffer, &records_.at(layer));
  buffer->stage = buffer->spare.defined() ? Stage::kIdle : Stage::kReading;
}

void LayerFile::begin_write(Buffer* buffer) {
  wait_on_host(buffer->written);
  buffer->changed = false;
  buffer->stage = Stage::kWriting;
  file_.begin_write(buffer);
}

// Other memory than before has no layer; what was there is kept, or is in the file.
void LayerFile::end_write(Buffer* buffer) {
  const at::Tensor before = buffer->memory;
  buffer->stage = Stage::kIdle;
  file_.end_write(buffer, device_);
  if (buffer->memory.is_same(before)) return;
  buffer->layer.reset();
  wait_on_host(buffer->read_until);
}

// It has no layer then. The memory may still be read by a copy.
void LayerFile::evict(Buffer* buffer) {
  if (buffer->changed) begin_write(buffer);
  if (buffer->stage == Stage::kWriting) end_write(buffer);
  if (!buffer->layer) return;
  if (buffer->spare.defined()) wait_on_host(buffer->read_until);
  file_.drop(buffer);
  buffer->stage = Stage::kIdle;
  buffer->layer.reset();
}

}  // namespace spillway::trainer
