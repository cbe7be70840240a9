// Where a layer's bytes are while its device does not have them.
//
// Copies are queued by marks: `read` and `overwrite` give memory of the host or of a peer, which begins with
// the bytes of the layer, and have copies that the stream is given from then on run behind what still uses
// it; with no stream the host waits. What was queued is told by `read_until` and `written_by` at once. Bytes
// that are written in parts, each by itself, are asked for by `change`.
//
// Thread-safety: one thread at a time. Ownership: the bytes; the memory that is given is theirs until the
// next layer is asked for. Errors: LibTorch's exceptions; RecordLost.
#pragma once
#include "trainer/plan/plan.h"
#include "trainer/residency/copy_stream.h"

namespace spillway::trainer {

class LayerHome {
 public:
  virtual ~LayerHome() = default;
  virtual Place place() const = 0;
  // Whether there is anything to read. Who asks a home for bytes that it has not gets any.
  virtual bool has_bytes() const { return true; }
  virtual at::Device device() const { return at::kCPU; }  // of the memory that it gives
  // Whether `read` gives the bytes without waiting for a disk.
  virtual bool is_ready() { return true; }
  virtual at::Tensor read(CopyStream* by) = 0;
  virtual void read_until(const CopyStream::Mark& /*mark*/) {}
  // All bytes are written.
  virtual at::Tensor overwrite(CopyStream* by) = 0;
  virtual void written_by(CopyStream::Mark mark) = 0;
  // Some bytes are written, and the others stay. Who does so has the parts wait for each other.
  virtual at::Tensor change(CopyStream* by) = 0;
  // More is written soon, and `written_by` is then told of the last; or nothing more is, as `all_is_written`
  // says later. Until then the bytes go no further without need.
  virtual void partly_written_by(CopyStream::Mark mark) = 0;
  virtual void all_is_written() {}
  // For bytes that another home has too: an OutOfMemoryError where they find no room.
  virtual void settle() {}
  // What it has is worthless.
  virtual void discard() {}

  // Several ranks have the bytes together, each its share. All of them bring the layer at once (`come`), or
  // add up what they have of it and forget it (`go`); `memory` of the device, of the layer, is read and
  // written behind all that the current stream was given, until the mark that is returned.
  virtual bool is_shared() const { return false; }
  virtual CopyStream::Mark come(const at::Tensor& /*memory*/) { return nullptr; }
  virtual CopyStream::Mark go(const at::Tensor& /*memory*/) { return nullptr; }
  // Its number in the device's file, if it is in one.
  virtual std::optional<uint32_t> record() const { return std::nullopt; }
};

// All bytes of one to another, which has room for them or throws.
void copy_home(LayerHome& from, LayerHome& to);

// `bytes` of memory for copies to and from `device`: page-locked of the host, where `home` is the CPU, or of
// a peer.
std::shared_ptr<LayerHome> home_in_memory(int64_t bytes, at::Device device, at::Device home);

}  // namespace spillway::trainer
