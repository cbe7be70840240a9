// Layers of one kind on an NVMe disk, for one device: a file, and a few buffers of the host between the two.
//
// A layer that is asked for is in a buffer, or is read into one. Layers that come next are read ahead, and
// what was written goes to the disk when its copy from the device is done: both go on when the file is used
// again. What the disk does not have yet stays in its buffer. What fails is as RecordFile has it. A layer is
// known by a number that the file gives it (LayerHome::record).
//
// Thread-safety: one thread at a time. Ownership: owns file and buffers. Errors: c10::OutOfMemoryError where
// the folder or the host has no room; RecordLost. Units: bytes.
#pragma once
#include <deque>
#include <map>

#include "trainer/residency/homes/layer_home.h"
#include "trainer/residency/nvme/record_file.h"

namespace spillway::trainer {

class LayerFile : public std::enable_shared_from_this<LayerFile> {
 public:
  // `kind`: for people, as in "parameters".
  LayerFile(at::Device device, const std::string& folder, const std::string& kind);
  ~LayerFile();
  LayerFile(const LayerFile&) = delete;

  // With its place on the disk, and buffers. `name`: for people, as in "the parameters of layer 3".
  std::shared_ptr<LayerHome> home(std::string name, uint64_t bytes);
  bool empty() const { return records_.empty(); }
  // These come next, the nearest first: as many are read as there are buffers that nobody uses.
  void expect(const std::vector<uint32_t>& layers);
  std::vector<std::string> remarks() const { return file_.remarks(); }

 private:
  class Home;
  enum class Stage : uint8_t { kIdle, kReading, kWriting };
  struct Buffer : RecordBuffer {
    std::optional<uint32_t> layer;
    Stage stage = Stage::kIdle;
    bool changed = false;  // the file has other bytes
    bool partly = false;   // and more of them will be others soon
    CopyStream::Mark read_until, written;
    uint64_t used = 0;
  };

  bool is_ready(uint32_t layer);
  at::Tensor read(uint32_t layer, CopyStream* by);
  void read_until(uint32_t layer, const CopyStream::Mark& mark);
  at::Tensor overwrite(uint32_t layer, CopyStream* by);
  void written_by(uint32_t layer, CopyStream::Mark mark, bool partly);
  at::Tensor change(uint32_t layer, CopyStream* by);
  void all_is_written(uint32_t layer);
  void settle(uint32_t layer);
  void discard(uint32_t layer);
  void remove(uint32_t layer);

  Buffer* holder(uint32_t layer);
  bool is_expected(const Buffer& buffer) const;
  Buffer* unused_buffer();
  Buffer* emptied_buffer();
  void make_buffers(uint64_t bytes);
  void advance();
  void begin_read(Buffer* buffer, uint32_t layer);
  void begin_write(Buffer* buffer);
  void end_write(Buffer* buffer);
  void evict(Buffer* buffer);
  at::Tensor bytes_in(Buffer* buffer);

  const at::Device device_;
  RecordFile file_;
  std::map<uint32_t, Record> records_;
  std::deque<Buffer> buffers_;
  uint64_t buffer_bytes_ = 0, clock_ = 0;
  uint32_t next_ = 0;
  std::vector<uint32_t> expected_;
};

}  // namespace spillway::trainer
