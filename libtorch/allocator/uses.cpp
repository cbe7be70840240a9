#include "libtorch/allocator/uses.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <unordered_map>

#include "driver/product_reads.h"
#include "libtorch/allocator/core.h"
#include "libtorch/products.h"
#include "libtorch/tensors.h"

namespace spillway::libtorch {
namespace {

// Smaller ones share their pages with others and are never moved.
constexpr int64_t kLeastBytes = 2 << 20;

// Asked of the driver once a device. One that does not answer has no multiprocessors.
ProductCard card_of(int device) {
  constexpr size_t kDevices = 64;
  static std::array<std::atomic<int>, kDevices> multiprocessors, cache_bytes;
  const size_t i = static_cast<size_t>(device);
  if (i >= kDevices) return {};
  if (multiprocessors[i] == 0) {
    int count = 0, bytes = 0;
    if (cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device) == cudaSuccess) cache_bytes[i] = bytes;
    const auto answered = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    multiprocessors[i] = answered == cudaSuccess && count > 0 ? count : -1;
  }
  return {static_cast<double>(multiprocessors[i]), static_cast<double>(cache_bytes[i])};
}

// What work reads of the blocks of its operands: views of one block add up.
class Reads {
 public:
  void add(const at::Tensor& tensor, Extents extents) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    const c10::Storage& storage = tensor.storage();
    // Asked of the storage: a tensor that only stands for one may answer in Python, or have no size yet.
    if (storage.device_type() != c10::DeviceType::CUDA) return;
    const std::optional<int64_t> bytes = storage.sym_nbytes().maybe_as_int();
    if (!bytes || *bytes < kLeastBytes) return;
    // Not `mutable_data`: a look must not copy what is shared until it is written to.
    if (const void* address = storage.unsafeGetStorageImpl()->data_ptr().get())
      add(address, static_cast<uint64_t>(*bytes), bytes_read(tensor, extents, static_cast<uint64_t>(*bytes)));
  }
  void tell(bool is_view) const {
    for (const Read& read : reads_) core().table->touch(read.address, is_view ? 0 : read.bytes);
  }

 private:
  struct Read {
    const void* address;
    uint64_t bytes;
  };

  // An operand of a product more than once; of others no more than the block has: one that repeats a row has
  // more.
  static uint64_t bytes_read(const at::Tensor& tensor, Extents extents, uint64_t most) {
    const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (impl->is_python_dispatch() || impl->has_symbolic_sizes_strides() || tensor.is_nested()) return most;
    const uint64_t bytes = std::min<uint64_t>(tensor.nbytes(), most);
    if (extents.other == 0) return bytes;
    const ProductOperand operand{bytes, static_cast<double>(extents.own), static_cast<double>(extents.other)};
    return static_cast<uint64_t>(static_cast<double>(bytes) *
                                 product_reads(operand, card_of(tensor.device().index())));
  }
  // Views of a block stand close together, and lists have hundreds of tensors.
  void add(const void* address, uint64_t most, uint64_t bytes) {
    constexpr size_t kLookBack = 8;
    const size_t first = reads_.size() - std::min(reads_.size(), kLookBack);
    const auto known = std::find_if(reads_.begin() + static_cast<ptrdiff_t>(first), reads_.end(),
                                    [&](const Read& read) { return read.address == address; });
    if (known == reads_.end())
      reads_.push_back({address, bytes});
    else
      known->bytes = std::max({known->bytes, bytes, std::min(known->bytes + bytes, most)});
  }

  c10::SmallVector<Read, 8> reads_;
};

// Its result is a view of what it is given: it reads nothing itself. One that has to copy calls another
// operator.
bool makes_a_view(const c10::FunctionSchema& schema) {
  const auto stands_for_another = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && !argument.alias_info()->isWrite();
  };
  return std::ranges::any_of(schema.returns(), stands_for_another);
}

// A schema is asked for once a thread: that copies it. Its name lies where it is.
bool makes_a_view(const at::RecordFunction& function) {
  static thread_local std::unordered_map<const char*, bool> known;
  const auto [entry, is_new] = known.try_emplace(function.name(), false);
  if (is_new)
    if (const auto schema = function.operator_schema()) entry->second = makes_a_view(*schema);
  return entry->second;
}

// Before each operator, on the thread that calls it. A backward pass calls operators too.
std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& function) {
  const auto inputs = function.inputs();
  const InputExtents extents(function.name(), inputs);
  Reads reads;
  for (size_t i = 0; i < inputs.size(); ++i)
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) { reads.add(tensor, extents.of(i)); });
  reads.tell(makes_a_view(function));
  return nullptr;
}

void watch_uses() {
  at::addGlobalCallback(
      at::RecordFunctionCallback(before_operator).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

}  // namespace

void watch_uses_under_pressure() {
  core().table->on_pressure(watch_uses);
}

}  // namespace spillway::libtorch
