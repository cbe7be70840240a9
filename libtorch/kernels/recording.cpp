#include "libtorch/kernels/recording.h"

#include <ATen/core/ivalue.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libtorch/kernels/operators/alias.h"
#include "libtorch/tensors.h"

namespace spillway::kernels {
namespace {

using c10::IValue;
using Stack = torch::jit::Stack;

// One operator of a graph.
struct Kept {
  Kept(Computation& by, const c10::OperatorHandle& of, c10::DispatchKeySet with)
      : computation(by), op(of), keys(with), name(c10::toString(of.operator_name())) {}
  Computation& computation;
  const c10::OperatorHandle op;
  const c10::DispatchKeySet keys;
  const std::string name;
  Stack arguments;  // tensors that own nothing
  std::vector<at::Tensor>
      results;  // CPU tensors over what it returned; undefined: an argument or a view of one
  std::vector<at::PhiloxCudaState> draws;
};

struct Recording {
  Kept* kept = nullptr;
  std::vector<SpillwayRange> ranges;
};
struct Replay {
  const Kept* kept = nullptr;
  size_t drawn = 0;
};
__attribute__((tls_model("initial-exec"))) thread_local Recording* recording = nullptr;
__attribute__((tls_model("initial-exec"))) thread_local Replay* replay = nullptr;

template <class Context>
class Within {
 public:
  Within(Context*& place, Context& context) : place_(place), outer_(std::exchange(place, &context)) {}
  ~Within() { place_ = outer_; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  Context*& place_;
  Context* outer_;
};

DrawKey key_of(const at::PhiloxCudaState& state) {
  const auto read = [](const int64_t* address) {
    const char* bytes = reinterpret_cast<const char*>(address) + alias_offset();
    return static_cast<uint64_t>(*reinterpret_cast<const int64_t*>(bytes));
  };
  return {read(state.seed_.ptr), read(state.offset_.ptr) + state.offset_intragraph_};
}

// Tensors over the bytes of others that own nothing; those that share storage share it again.
class Detached {
 public:
  at::Tensor tensor(const at::Tensor& original) {
    if (!original.defined()) return original;
    if (!original.is_cuda())
      return original.unsafeGetTensorImpl()->is_wrapped_number() ? original : original.clone();
    TORCH_CHECK_NOT_IMPLEMENTED(original.layout() == at::kStrided,
                                "a sparse tensor in a graph cannot be computed on a simulated CUDA device");
    return tensor_over(storage(original.storage()), c10::DispatchKey::CUDA, original);
  }

  IValue value(const IValue& original) {
    if (original.isTensor()) return tensor(original.toTensor());
    if (original.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& one : original.toTensorVector()) list.push_back(tensor(one));
      return list;
    }
    if (original.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& one : original.toOptionalTensorVector())
        list.push_back(one ? std::optional(tensor(*one)) : std::nullopt);
      return list;
    }
    return original;
  }

  bool knows(const at::Tensor& tensor) const {
    return storages_.count(tensor.storage().unsafeGetStorageImpl()) != 0;
  }

 private:
  c10::Storage storage(const c10::Storage& original) {
    auto [found, is_new] = storages_.try_emplace(original.unsafeGetStorageImpl());
    if (is_new) {
      auto* impl = original.unsafeGetStorageImpl();
      found->second = c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), original.nbytes(),
          c10::DataPtr(impl->mutable_data(), original.device()), nullptr, /*resizable=*/false);
    }
    return found->second;
  }

  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
};

void keep_results(Kept& kept, const Stack& stack, size_t returns, const Detached& arguments) {
  for (size_t i = stack.size() - returns; i < stack.size(); ++i)
    libtorch::for_each_tensor(stack[i], [&](const at::Tensor& result) {
      const bool is_new =
          result.defined() && result.is_cuda() && result.numel() > 0 && !arguments.knows(result);
      kept.results.push_back(is_new ? make_alias(result, /*writes=*/true) : at::Tensor());
    });
}

void write_results(const Kept& kept, const Stack& stack) {
  auto target = kept.results.begin();
  for (const IValue& value : stack)
    libtorch::for_each_tensor(value, [&](const at::Tensor& computed) {
      const at::Tensor& to = *target++;
      if (!to.defined()) return;
      TORCH_CHECK(computed.sizes() == to.sizes(), kept.name, ": its result has another size at each launch");
      const at::Tensor values = computed.is_cuda() ? make_alias(computed, false) : computed;
      at::Tensor(to).copy_(values);
    });
}

int launch(void* argument) {
  const Kept& kept = *static_cast<const Kept*>(argument);
  Replay now{&kept};
  const Within within(replay, now);
  try {
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView |
        c10::DispatchKeySet({c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}));
    Stack stack = kept.arguments;
    kept.computation.compute(kept.op, kept.keys, &stack);
    write_results(kept, stack);
    return 0;
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "spillway: %s in a graph: %s\n", kept.name.c_str(), error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spillway: %s in a graph: %s\n", kept.name.c_str(), error.what());
  }
  return 1;
}

void release(void* argument) {
  delete static_cast<Kept*>(argument);
}

CUstream stream_of(const Stack& stack, size_t arguments) {
  c10::DeviceIndex device = -1;
  for (size_t i = stack.size() - arguments; i < stack.size() && device < 0; ++i)
    libtorch::for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.is_cuda()) device = tensor.device().index();
    });
  return c10::cuda::getCurrentCUDAStream(device).stream();
}

uint64_t duration_of(const std::vector<SpillwayRange>& ranges) {
  constexpr uint64_t kLaunchNs = 2000, kBytesPerNs = 1000;
  uint64_t bytes = 0;
  for (const SpillwayRange& range : ranges) bytes += range.bytes;
  return kLaunchNs + bytes / kBytesPerNs;
}

bool is_mask(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte);
}

// CUDA's own kernels read how large their result is, or whether it is true, which no capture allows.
bool waits_for_values(const c10::OperatorHandle& op, const Stack& given) {
  constexpr std::array<std::string_view, 7> kNames = {
      "aten::nonzero",  "aten::masked_select",      "aten::_unique",
      "aten::_unique2", "aten::unique_consecutive", "aten::unique_dim",
      "aten::equal"};
  const std::string_view name = op.operator_name().name;
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return true;
  bool by_mask = false;
  if (name == "aten::index")
    libtorch::for_each_tensor(given[1], [&](const at::Tensor& index) { by_mask |= is_mask(index); });
  return by_mask;
}

void record(Computation& computation, const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack,
            CUstream stream) {
  auto kept = std::make_unique<Kept>(computation, op, keys);
  const size_t arguments = op.schema().arguments().size(), returns = op.schema().returns().size();
  const Stack given(stack->end() - static_cast<std::ptrdiff_t>(arguments), stack->end());
  if (waits_for_values(op, given)) c10::cuda::stream_synchronize(stream);
  Recording now{kept.get(), {}};
  {
    const Within within(recording, now);
    computation.compute(op, keys, stack);
  }
  if (now.ranges.empty()) return;
  Detached detached;
  for (const IValue& value : given) kept->arguments.push_back(detached.value(value));
  keep_results(*kept, *stack, returns, detached);
  Kept* const given_away = kept.release();
  const CUresult result =
      simulator().capture(stream, given_away->name.c_str(), now.ranges.data(), now.ranges.size(),
                          duration_of(now.ranges), launch, release, given_away);
  if (result != CUDA_SUCCESS) release(given_away);
  TORCH_CHECK(result == CUDA_SUCCESS, c10::toString(op.operator_name()),
              ": the simulated driver refused to capture the kernel with CUresult ",
              static_cast<int>(result));
}

// From one device to another the driver copies, and captures that itself; what is converted on the way are
// operators of their own.
bool copies_across(const c10::OperatorHandle& op, const Stack& stack) {
  constexpr size_t kArguments = 3;
  if (op.operator_name().name != "aten::copy_" || op.schema().arguments().size() != kArguments) return false;
  const IValue* arguments = stack.data() + (stack.size() - kArguments);
  return arguments[0].toTensor().device() != arguments[1].toTensor().device();
}

}  // namespace

void compute_or_record(Computation& computation, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                       Stack* stack) {
  if (C10_UNLIKELY(simulator().capturing(nullptr) != 0) && recording == nullptr && replay == nullptr &&
      !copies_across(op, *stack)) {
    const CUstream stream = stream_of(*stack, op.schema().arguments().size());
    if (stream != nullptr && simulator().capturing(stream) != 0)
      return record(computation, op, keys, stack, stream);
  }
  computation.compute(op, keys, stack);
}

bool is_recording() {
  return recording != nullptr;
}

bool is_replaying() {
  return replay != nullptr;
}

const std::vector<at::Tensor>& replayed_results() {
  return replay->kept->results;
}

void preserve_before_writing(CUstream stream, const SpillwayRange* ranges, size_t count) {
  const CUresult result = simulator().preserve(stream, ranges, count);
  TORCH_CHECK(result == CUDA_SUCCESS, recording->kept->name, ": its stream captures no more");
}

void record_ranges(const SpillwayRange* ranges, size_t count) {
  recording->ranges.insert(recording->ranges.end(), ranges, ranges + count);
}

DrawKey record_draw(const at::PhiloxCudaState& state) {
  TORCH_CHECK(state.captured_, recording->kept->name, ": its generator is not registered with the graph");
  recording->kept->draws.push_back(state);
  return {0, state.offset_intragraph_};
}

DrawKey replayed_draw() {
  return key_of(replay->kept->draws.at(replay->drawn++));
}

}  // namespace spillway::kernels
