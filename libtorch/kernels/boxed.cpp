#include "libtorch/kernels/boxed.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libtorch/kernels/call.h"
#include "libtorch/kernels/operators/random.h"
#include "libtorch/kernels/recording.h"

namespace spillway::kernels {
namespace {

using c10::IValue;

enum class Kind : uint8_t { kTensor, kTensors, kGenerator, kDevice };

// An argument that the boxed function has to look at.
struct Slot {
  uint16_t index;
  Kind kind;
  bool writes;
};

// What the schema says, read once at registration.
struct Facts {
  std::string name;
  std::vector<Slot> slots;
  size_t arguments = 0;
  size_t returns = 0;
  bool host_arguments = false;
};

std::optional<Kind> kind_of(const c10::Argument& argument) {
  c10::TypePtr type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return Kind::kTensor;
    case c10::TypeKind::GeneratorType:
      return Kind::kGenerator;
    case c10::TypeKind::DeviceObjType:
      return Kind::kDevice;
    case c10::TypeKind::ListType: {
      c10::TypePtr element = type->castRaw<c10::ListType>()->getElementType();
      if (const auto optional = element->cast<c10::OptionalType>()) element = optional->getElementType();
      if (element->kind() == c10::TypeKind::TensorType) return Kind::kTensors;
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

// CUDA kernels of these take host tensors beside CUDA tensors: indices and lengths.
bool takes_host_arguments(std::string_view name) {
  constexpr std::array kNames = {"aten::index.",           "aten::index_put",
                                 "aten::_index_put_impl_", "aten::_unsafe_index",
                                 "aten::_ctc_loss",        "aten::_pad_packed_sequence",
                                 "aten::_foreach_",        "aten::_pack_padded_sequence"};
  for (const std::string_view prefix : kNames) {
    if (name.substr(0, prefix.size()) == prefix) return true;
  }
  return false;
}

Facts facts_of(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  Facts facts;
  facts.name = c10::toString(op.operator_name());
  facts.arguments = schema.arguments().size();
  facts.returns = schema.returns().size();
  facts.host_arguments = takes_host_arguments(facts.name);
  for (size_t i = 0; i < facts.arguments; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const auto kind = kind_of(argument);
    if (!kind) continue;
    const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    facts.slots.push_back({static_cast<uint16_t>(i), *kind, writes});
  }
  return facts;
}

void alias_list(Call& call, IValue& value, bool writes) {
  if (value.isTensorList()) {
    c10::List<at::Tensor> aliases;
    const auto list = value.toTensorList();
    aliases.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) aliases.push_back(call.argument(list.get(i), writes));
    value = std::move(aliases);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> aliases;
    const auto list = value.toOptionalTensorList();
    aliases.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) aliases.push_back(call.argument(list.get(i)));
    value = std::move(aliases);
  }
}

void results_to_device(Call& call, IValue& value) {
  if (value.isTensor()) {
    value = call.result(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> results;
    const auto list = value.toTensorList();
    results.reserve(list.size());
    for (size_t i = 0; i < list.size(); ++i) results.push_back(call.result(list.get(i)));
    value = std::move(results);
  }
}

class ByCpuKernel final : public c10::OperatorKernel, public Computation {
 public:
  ByCpuKernel(Facts facts, c10::DispatchKey key) : facts_(std::move(facts)), key_(key) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    compute_or_record(*this, op, keys, stack);
  }

  void compute(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) override {
    Call call(facts_.name.c_str());
    if (facts_.host_arguments) call.allow_host_arguments();
    alias_arguments(call, stack->data() + (stack->size() - facts_.arguments));
    call.begin();
    by_cpu(op, stack);
    call.end();
    IValue* returned = stack->data() + (stack->size() - facts_.returns);
    for (size_t i = 0; i < facts_.returns; ++i) results_to_device(call, returned[i]);
    call.finish();
  }

 private:
  void alias_arguments(Call& call, IValue* arguments) const {
    const Slot* generator = nullptr;
    for (const Slot& slot : facts_.slots) {
      IValue& value = arguments[slot.index];
      switch (slot.kind) {
        case Kind::kTensor:
          if (value.isTensor()) value = call.argument(std::move(value).toTensor(), slot.writes);
          break;
        case Kind::kTensors:
          alias_list(call, value, slot.writes);
          break;
        case Kind::kGenerator:
          generator = &slot;
          break;
        case Kind::kDevice:
          if (value.isDevice()) {
            call.on_device(value.toDevice().index());
            value = c10::Device(c10::DeviceType::CPU);
          }
          break;
      }
    }
    if (generator != nullptr) {
      IValue& value = arguments[generator->index];
      value = draw(value.toOptional<at::Generator>(), call.device());
    }
  }

  void by_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) const {
    try {
      op.redispatchBoxed(c10::DispatchKeySet(key_), stack);
    } catch (c10::NotImplementedError& error) {
      error.add_context(facts_.name + " on a simulated CUDA device is computed by its CPU kernel");
      throw;
    }
  }

  const Facts facts_;
  const c10::DispatchKey key_;
};

// A kernel of ours that takes its arguments unboxed.
class ByHand final : public c10::OperatorKernel, public Computation {
 public:
  explicit ByHand(c10::KernelFunction kernel) : kernel_(std::move(kernel)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    compute_or_record(*this, op, keys, stack);
  }
  void compute(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) override {
    kernel_.callBoxed(op, keys, stack);
  }

 private:
  const c10::KernelFunction kernel_;
};

class Unsupported final : public c10::OperatorKernel {
 public:
  explicit Unsupported(std::string name) : name_(std::move(name)) {}
  void operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack*) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, name_,
                                " has no CPU kernel, so it cannot be computed on a simulated CUDA device. "
                                "Use another operator, or run with --values zeros, which computes nothing.");
  }

 private:
  const std::string name_;
};

}  // namespace

torch::CppFunction boxed_kernel(const c10::OperatorHandle& op, c10::DispatchKey key) {
  if (op.hasComputedKernelForDispatchKey(key)) {
    return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ByCpuKernel>(facts_of(op), key));
  }
  return torch::CppFunction::makeFromBoxedFunctor(
      std::make_unique<Unsupported>(c10::toString(op.operator_name())));
}

torch::CppFunction recordable(c10::KernelFunction kernel) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ByHand>(std::move(kernel)));
}

}  // namespace spillway::kernels
