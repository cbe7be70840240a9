// A dry run of a forward and its backward: what is allocated and freed, in order, without a tensor.
//
// A family's model is written down once more as operators over sizes (trainer/plan/tapes). Each says what it
// makes and what autograd keeps for its backward; the run counts what is alive, as LibTorch would have it.
// An output lives while the program holds it (`drop` ends that) or an operator keeps it. The backward goes
// through the operators from last to first. Each makes the gradients of its inputs and of its weights, and
// then frees what it kept and the gradient of its output. A weight's gradient is added to its accumulator,
// and freed, at once.
//
// Time passes by a roofline: an operator takes as long as its arithmetic, the bytes that it reads and writes,
// or its launches take, whichever is longest. Its forward is one launch; its backward is one for each
// gradient that it makes, and one more for each weight's gradient that is accumulated.
//
// Thread-safety: one thread. Ownership: a tape borrows its Memory and lets go what it holds at its end.
// Errors: none. Units: bytes, operations (an addition or a multiplication), seconds.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/plan/estimate.h"
#include "trainer/plan/tapes/disk_of_layers.h"
#include "trainer/plan/tapes/few.h"

namespace spillway::trainer {

// What the bytes are, for the items of an estimate.
enum class Kind : uint8_t {
  kInputs,           // token ids, positions
  kAttention,        // kept between forward and backward: by the attention and the norm before it
  kMlp,              // by the MLP and the norm before it
  kLayerInputs,      // by layers that are computed again
  kLogits,           // of the head and the loss
  kGradients,        // of activations, on their way
  kWeightGradients,  // fresh, before they are accumulated
  kWorkspace,        // of one operator
};
inline constexpr size_t kKinds = 8;
const char* name_of(Kind kind);

// Bytes alive by device and kind, what they were when a device had the most, and the time that has passed.
class Memory {
 public:
  using Bytes = std::array<uint64_t, kKinds>;

  explicit Memory(const Machine& machine) : machine_(machine), devices_(machine.devices), disk_(machine) {}
  void allocate(uint32_t device, Kind kind, uint64_t bytes);
  void free(uint32_t device, Kind kind, uint64_t bytes);
  // Of a piece of the forward or the backward (trainer/model/pieces): bytes by device, the most that were
  // alive in it, and those behind it.
  struct Piece {
    std::vector<uint64_t> peak{}, after{};
  };
  void end_piece();
  const std::vector<Piece>& pieces() const { return pieces_; }
  // Bytes of the first device that are alive between the forward and the backward, where one stops there.
  void end_forward() { kept_ = devices_[0].alive; }
  uint64_t kept() const { return kept_; }
  // When the forward came to each part of a layer, and again where one is computed again.
  void enter_part() { entered_.push_back(time_.seconds()); }
  const std::vector<double>& entered() const { return entered_; }
  // The backward has left a part of a layer: when it did, for each of them.
  void leave_part() { left_.push_back(time_.seconds()); }
  const std::vector<double>& left() const { return left_; }

  uint64_t peak(uint32_t device) const { return devices_[device].peak; }
  const Bytes& at_peak(uint32_t device) const { return devices_[device].at_peak; }

  // The time of `launches` kernels of a device that compute `operations` and move `bytes` between them.
  void pass(uint32_t device, double operations, double bytes, double launches);
  void cross(uint32_t device, double bytes);  // from or to another
  // Copies of a device to its home, or back, beside what is computed and behind those before them. Returns
  // when they are done, for `wait_until`.
  struct Home {
    uint32_t device = 0, peer = 0;  // `peer`: the device itself, and the host is its home
    bool nvme = false;              // or a disk, behind the host
    bool is_host() const { return device == peer; }
  };
  double copy_beside(Home home, bool away, uint64_t bytes, double copies);
  void wait_until(double seconds, Home home);
  uint64_t host_bytes() const { return host_bytes_; }  // that copies went to
  // What goes to a disk: the file, and the buffers of the host before it.
  DiskOfLayers::Bytes on_disk() const { return disk_.bytes(); }
  // The same of devices and their peers.
  const std::map<std::pair<uint32_t, uint32_t>, uint64_t>& peer_bytes() const { return peer_bytes_; }
  const StepTime& time() const { return time_; }
  double busy(uint32_t device) const { return devices_[device].busy; }  // seconds
  double launches() const { return launches_; }

 private:
  struct Device {
    uint64_t alive = 0, peak = 0, peak_of_piece = 0;
    Bytes now{}, at_peak{};
    double busy = 0;
  };
  const Machine machine_;
  std::vector<Device> devices_;
  std::vector<Piece> pieces_;
  std::vector<double> entered_, left_;
  uint64_t kept_ = 0;
  StepTime time_;
  std::array<double, 2> link_free_{};  // when the copies of a direction are done
  DiskOfLayers disk_;
  uint64_t host_bytes_ = 0;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> peer_bytes_;  // of devices and their peers
  double launches_ = 0;
};

class Tape {
 public:
  using Tensor = uint32_t;
  // REQUIRES of each operator: all tensors are of this tape.
  struct Operator {
    Few<Tensor> inputs{};  // that get a gradient
    uint64_t output = 0;
    Few<Tensor> keeps{};
    bool keeps_output = false;
    uint64_t keeps_more = 0;     // statistics and masks
    uint64_t weights = 0;        // whose gradients it makes
    uint32_t vectors = 0;        // and these: a bias, what scales and shifts a norm
    bool sums_gradient = false;  // of the output, for one of them: a bias, what scales an RMS norm
    uint64_t fresh = 0;          // of these at a time, where they are made in tiles
    uint32_t tiles = 1;          // each a launch of its own
    uint64_t scratch = 0, backward_scratch = 0;
    uint64_t backward_moves = 0;     // by further kernels of the backward
    uint32_t backward_kernels = 0;   // so many
    bool passes_gradient = false;    // an input's gradient is that of the output: sums and copies
    double operations = 0;           // of the forward; the backward has twice as many
    bool gathers = false;            // reads no more of its inputs than it writes
    bool crosses = false;            // from another device
    bool is_done = false;            // takes no time: other operators stand for it
    bool gradients_at_once = false;  // made with the output

    // Of two operands, of which weights may be one; an attention in one kernel is none.
    bool is_product() const { return operations > 0 && inputs.size() + (weights > 0 ? 1 : 0) == 2; }
  };
  enum class Mode : uint8_t {
    kTrains,
    kEvaluates,  // nothing is kept
  };

  Tape(Memory* memory, Mode mode);
  Tape(const Tape&) = delete;
  ~Tape();

  // What follows is done on `device` and kept as `kind`.
  void on(uint32_t device, Kind kind) { device_ = device, kind_ = kind; }
  void as(Kind kind) { kind_ = kind; }

  // A tensor with several readers, whose gradients are summed apart: see trainer/model/shared_input.h.
  void share(Tensor tensor) { tensors_[tensor].shared = true; }
  // Weights with several uses, whose gradients wait for each other: an input of each operator that uses them.
  Tensor weights(uint64_t bytes);
  // The program's own, or a copy of such on another device: without a gradient.
  Tensor plain(uint64_t bytes);
  Tensor run(const Operator& op);
  // Time alone, of what stands behind an operator that `is_done`.
  void spend(double operations, uint64_t moved, double launches) {
    memory_.pass(device_, operations, double(moved), launches);
  }
  Tensor to(uint32_t device, Tensor tensor);                // itself, where it is there
  void hold(Tensor tensor) { ++tensors_[tensor].holders; }  // once more
  void drop(Tensor tensor);
  // A piece of the forward ends here, and in the backward that of the next one. Later pieces go on from
  // copies of `passed` without a history: until the backward of the piece ends, the tensors stay, and in it
  // their gradients. See trainer/model/pieces.
  void cut(std::vector<Tensor> passed);

  uint64_t bytes(Tensor tensor) const { return tensors_[tensor].bytes; }
  uint32_t device_of(Tensor tensor) const { return tensors_[tensor].device; }

  // A layer, or a part of one, as a function of its inputs; writes operators on the tape and returns the
  // output.
  using Layer = std::function<Tensor(Tape*, const std::vector<Tensor>& inputs)>;
  // `layer` is run now, and again in the backward; the inputs are kept.
  Tensor run_again(const Layer& layer, const std::vector<Tensor>& inputs);

  // What follows is a part of a layer.
  void begin_part() { parts_.push_back(recorded_.size()), memory_.enter_part(); }
  // What operators keep from `begin_layer` to `end_layer`, but for `stay` and what is smaller than
  // `least_bytes`, is at `home` from the end of layer `until` on, and comes back when the backward of that
  // one begins. See trainer/residency/activations/activation_pass.h.
  void begin_layer();
  void end_layer(uint32_t end, std::optional<uint32_t> until, Memory::Home home,
                 const std::vector<Tensor>& stay, uint64_t least_bytes);

  // From the gradient of `last`, which the caller holds. Once.
  void backward(Tensor last);

 private:
  struct Buffer {  // of a gradient; several tensors may have the same
    uint32_t device = 0;
    uint64_t bytes = 0;
    uint32_t readers = 0;
    bool counts = true;
  };
  struct Entry {
    uint64_t bytes = 0;
    uint32_t device = 0, holders = 0;
    Kind kind{};
    bool shared = false, counts = true, plain = false;
    std::optional<size_t> gradient;  // a buffer
  };
  struct Recorded {
    Operator op;
    Tensor output = 0;
    uint32_t device = 0;
    Kind kind{};
    Few<size_t> gradients{};  // of the inputs, that were made at once
    Layer again{};            // of a layer that is computed again
  };

  // What is recorded of a layer, and what of it goes elsewhere.
  struct KeptLayer {
    Memory::Home home{};
    size_t begin = 0, end = 0;
    std::vector<std::pair<Tensor, uint32_t>> tensors{};  // and how often they are kept
    std::vector<size_t> more{};                          // the operators whose `keeps_more` goes
    uint64_t bytes = 0;
    bool away = false;
    std::vector<size_t> left{};  // the device at its end
    double copied = 0;           // when its last copy is done
  };

  struct Cut {
    size_t recorded = 0;  // before it
    std::vector<Tensor> passed{};
    std::vector<size_t> gradients{};
  };

  Tensor add(uint64_t bytes, bool counts);
  void find_kept(const std::vector<Tensor>& stay, uint64_t least_bytes, KeptLayer* layer) const;
  void leave_device(KeptLayer* layer);
  void bring_back(KeptLayer* layer);
  void backward_reaches_layer();
  void backward_reaches_cut();
  void end_piece_of_backward();
  // Another tape's tensors: they count for nothing here, but they can get a gradient.
  template <typename Tensors>
  std::vector<Tensor> borrow(const Tape& from, const Tensors& tensors);
  template <typename Tensors>
  Few<Tensor> with_gradient(const Tensors& tensors) const;  // without the plain ones
  size_t new_buffer(uint32_t device, uint64_t bytes, bool counts = true);
  void release_buffer(size_t buffer);
  void give(Tensor to, size_t buffer);
  void spend_forward(const Operator& op);
  void spend_backward(const Recorded& recorded);
  void spend_products(const Recorded& recorded);
  Few<size_t> new_gradients(const Recorded& recorded, std::optional<size_t> of_output);
  void undo(const Recorded& recorded);
  void undo_layer(const Recorded& recorded, size_t gradient);

  Memory& memory_;
  const Mode mode_;
  uint32_t device_ = 0;
  Kind kind_ = Kind::kInputs;
  std::vector<Entry> tensors_;
  std::vector<Buffer> buffers_;
  std::vector<Recorded> recorded_;
  std::vector<Cut> cuts_;
  std::vector<size_t> parts_;  // what was recorded before each
  Cut undone_{};               // of the piece whose backward runs
  std::vector<KeptLayer> layers_;
  struct Leaving {
    size_t layer = 0;
    uint32_t until = 0;
  };
  std::deque<Leaving> leaving_;  // whose copies run
};

}  // namespace spillway::trainer
