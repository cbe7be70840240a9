#include "trainer/residency/activations/kept_file.h"

#include <algorithm>
#include <ranges>

#include "trainer/plan/schedule.h"

namespace spillway::trainer {
namespace {

// Storages begin where a copy by a device is fast.
constexpr uint64_t kStorageAlignment = 256;

uint64_t bytes_of_all(const std::vector<uint64_t>& storages) {
  uint64_t all = 0;
  for (const uint64_t bytes : storages) all += aligned(bytes, kStorageAlignment);
  return all;
}

std::vector<at::Tensor> parts_of(const at::Tensor& memory, const std::vector<uint64_t>& storages) {
  std::vector<at::Tensor> parts;
  uint64_t at = 0;
  for (const uint64_t bytes : storages) {
    parts.push_back(memory.narrow(0, int64_t(at), int64_t(bytes)));
    at += aligned(bytes, kStorageAlignment);
  }
  return parts;
}

at::Tensor read_from(LayerHome& home, CopyStream& by) {
  try {
    return home.read(&by);
  } catch (const RecordLost& error) {
    throw ActivationsLost(error.what());
  }
}

}  // namespace

class KeptFile::Home : public KeptHome {
 public:
  Home(std::shared_ptr<KeptFile> file, size_t position, uint64_t pass, std::vector<uint64_t> bytes)
      : file_(std::move(file)), position_(position), pass_(pass), bytes_(std::move(bytes)) {}
  ~Home() override { file_->forget(position_, pass_); }
  Home(const Home&) = delete;

  void write(CopyStream& by, const Copies& copies) override {
    const Locked lock(file_->mutex_);
    Record& record = file_->record_of(position_, pass_);
    const at::Tensor memory = record.home->overwrite(&by);
    record.home->partly_written_by(copies(parts_of(memory, bytes_)));
    record.is_needed = true;
    file_->written(position_);
  }

  void read(CopyStream& by, const Copies& copies) override {
    const Locked lock(file_->mutex_);
    const Record& record = file_->record_of(position_, pass_);
    const at::Tensor memory = read_from(*record.home, by);
    record.home->read_until(copies(parts_of(memory, bytes_)));
    file_->expect_before(position_);
  }

 private:
  const std::shared_ptr<KeptFile> file_;
  const size_t position_;
  const uint64_t pass_;
  const std::vector<uint64_t> bytes_;
};

KeptFile::KeptFile(at::Device device, const std::string& folder)
    : file_(std::make_shared<LayerFile>(device, folder, "activations")) {}

std::shared_ptr<KeptHome> KeptFile::home(size_t position, uint32_t layer, std::vector<uint64_t> bytes) {
  const Locked lock(mutex_);
  const uint64_t pass = ++with_room(position, layer, bytes_of_all(bytes)).pass;
  return std::make_shared<Home>(shared_from_this(), position, pass, std::move(bytes));
}

std::vector<std::string> KeptFile::remarks() const {
  const Locked lock(mutex_);
  return file_->remarks();
}

// A last micro-batch of fewer rows has room in what the others took. A record without a home is no pass's.
KeptFile::Record& KeptFile::with_room(size_t position, uint32_t layer, uint64_t bytes) {
  Record& record = records_[position];
  if (record.home != nullptr && record.bytes >= bytes) return record;
  record = {.home = nullptr, .pass = record.pass + 1};
  record.home = file_->home("the activations of layer " + std::to_string(layer), bytes);
  record.bytes = bytes;
  return record;
}

KeptFile::Record& KeptFile::record_of(size_t position, uint64_t pass) {
  Record& record = records_.at(position);
  TORCH_CHECK(record.pass == pass, "a later pass has the place of what layers keep");
  return record;
}

// The one before the last two goes to the disk.
void KeptFile::written(size_t position) {
  newest_.push_back(position);
  if (newest_.size() > kLayersInBuffers) {
    records_.at(newest_.front()).home->all_is_written();
    newest_.pop_front();
  }
  file_->expect({});
}

void KeptFile::expect_before(size_t position) {
  std::vector<uint32_t> next;
  for (const auto& [before, record] : records_ | std::views::reverse) {
    if (before >= position || !record.is_needed) continue;
    if (const auto number = record.home->record()) next.push_back(*number);
  }
  file_->expect(next);
}

void KeptFile::forget(size_t position, uint64_t pass) {
  const Locked lock(mutex_);
  const auto found = records_.find(position);
  if (found == records_.end() || found->second.pass != pass) return;
  std::erase(newest_, position);
  found->second.is_needed = false;
  found->second.home->discard();
}

}  // namespace spillway::trainer
