#include "libtorch/kernels/known/observer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "libtorch/kernels/known/known_operators.h"
#include "libtorch/kernels/known/known_values.h"
#include "libtorch/kernels/known/operands.h"
#include "libtorch/kernels/simulator.h"
#include "libtorch/tensors.h"

namespace spillway::kernels {
namespace {

using c10::IValue;
namespace cuda_allocator = c10::cuda::CUDACachingAllocator;

// An operator that runs. One that another operator calls is inside of it, and tells of its own kernels.
struct Running final : at::ObserverContext {
  const KnownOperator* op = nullptr;
  Running* outer = nullptr;
  uint64_t submitted = 0;   // by the thread, before
  uint64_t by_inner = 0;    // by the operators that this one called
  bool computable = false;  // `arguments` are values on the CPU
  std::vector<IValue> arguments;
  std::vector<at::Tensor> written;  // on the device
  Operands operands;
  std::optional<at::Tensor>
      spared;  // what the last of them holds before and, where numbers are finite, after
};

__attribute__((tls_model("initial-exec"))) thread_local Running* innermost = nullptr;

// A tensor's value, or nullopt where it is not known. The host's own are taken as they are.
std::optional<at::Tensor> value_of(const at::Tensor& tensor, bool written, bool overwritten) {
  if (!tensor.defined()) return tensor;
  if (!tensor.is_cuda()) return written ? std::nullopt : std::optional(tensor);
  if (written && overwritten)
    return may_decide(tensor) ? std::optional(value_to_overwrite(tensor)) : std::nullopt;
  return known_value(tensor);
}

template <typename List, typename Element>
bool list_to_values(IValue& argument, const std::vector<Element>& elements, bool written, bool overwritten) {
  List values;
  values.reserve(elements.size());
  for (const Element& element : elements) {
    const auto value = value_of(at::Tensor(element), written, overwritten);
    if (!value) return false;
    values.push_back(*value);
  }
  argument = std::move(values);
  return true;
}

bool to_value(IValue& argument, bool written, bool overwritten) {
  if (argument.isTensor()) {
    const auto value = value_of(argument.toTensor(), written, overwritten);
    if (value) argument = *value;
    return value.has_value();
  }
  if (argument.isTensorList())
    return list_to_values<c10::List<at::Tensor>>(argument, argument.toTensorVector(), written, overwritten);
  if (argument.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> values;
    for (const auto& element : argument.toOptionalTensorVector()) {
      const auto value = element ? value_of(*element, written, overwritten) : std::nullopt;
      if (element && !value) return false;
      values.push_back(value);
    }
    argument = std::move(values);
  } else if (argument.isDevice()) {
    argument = c10::Device(c10::DeviceType::CPU);
  }
  return true;
}

bool is_written(const KnownOperator& op, size_t argument) {
  return std::find(op.written.begin(), op.written.end(), argument) != op.written.end();
}

// The first that is not known ends it: of most operators that is the first.
bool to_values(const KnownOperator& op, std::vector<IValue>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i)
    if (!to_value(arguments[i], is_written(op, i), op.overwrites)) return false;
  return true;
}

void answer(const Running& running) {
  const auto results = compute_on_cpu(*running.op, running.arguments);
  if (!results || results->empty()) return;
  const IValue& first = results->front();
  if (first.isBool()) simulator().answer_next_read(1, first.toBool() ? 1 : 0);
  if (first.isTensor() && first.toTensor().dim() > 0)
    simulator().answer_next_read(1, static_cast<uint64_t>(first.toTensor().size(0)));
}

// Nobody knows the mask: it holds everywhere, so that memory is not taken to be less than it can be.
void answer_at_most(c10::ArrayRef<const IValue> inputs) {
  if (inputs.empty() || !inputs.front().isTensor() || !inputs.front().toTensor().is_cuda()) return;
  simulator().answer_next_read(SPILLWAY_SIMULATOR_AT_MOST,
                               static_cast<uint64_t>(inputs.front().toTensor().numel()));
}

std::unique_ptr<at::ObserverContext> started(const at::RecordFunction& call) {
  auto running = std::make_unique<Running>();
  running->op = known_operator(call.name(), call.overload_name());
  if (running->op == nullptr) return nullptr;
  const KnownOperator& op = *running->op;
  const Aside aside;
  for (const size_t i : op.written)
    if (i < call.inputs().size())
      libtorch::for_each_tensor(call.inputs()[i],
                                [&](const at::Tensor& tensor) { running->written.push_back(tensor); });
  if (op.handle) {
    running->arguments.assign(call.inputs().begin(), call.inputs().end());
    running->computable = to_values(op, running->arguments);
    if (!running->computable) running->arguments.clear();
  }
  if (op.reads_by_itself && running->computable)
    answer(*running);
  else if (op.picks_elements)
    answer_at_most(call.inputs());
  if (op.spares_last && !running->written.empty()) running->spared = known_value(running->written.back());
  running->operands.collect(op, call.name(), call.inputs());
  running->outer = innermost;
  innermost = running.get();
  simulator().confine(1);
  running->submitted = simulator().submitted();
  return running;
}

// Asking makes the current device's context; a device without one has no stream that captures.
bool is_capturing() {
  return c10::cuda::hasPrimaryContext(c10::cuda::current_device()) &&
         c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

void forget_results(const Running& running, const std::vector<IValue>& results) {
  for (const at::Tensor& tensor : running.written) forget_value(tensor);
  for (const IValue& result : results) libtorch::for_each_tensor(result, forget_value);
}

std::vector<at::Tensor> tensors_of(const std::vector<IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const IValue& value : values)
    libtorch::for_each_tensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

void tell_results(const Running& running, const std::vector<IValue>& results) {
  std::vector<IValue> written;
  written.reserve(running.op->written.size());
  for (const size_t i : running.op->written) written.push_back(running.arguments[i]);
  const std::vector<at::Tensor> written_values = tensors_of(written);
  const auto computed = compute_on_cpu(*running.op, running.arguments);
  const std::vector<at::Tensor> values = tensors_of(computed.value_or(std::vector<IValue>{})),
                                tensors = tensors_of(results);
  if (!computed || values.size() != tensors.size() || written_values.size() != running.written.size())
    return forget_results(running, results);
  for (size_t i = 0; i < tensors.size(); ++i) tell_value(tensors[i], values[i]);
  for (size_t i = 0; i < running.written.size(); ++i) tell_value(running.written[i], written_values[i]);
}

// The driver, which has no types, knows what it copied by itself up to 1 MiB.
void tell_copied(const Running& running) {
  const at::Tensor &target = running.written.front(), &source = running.arguments[1].toTensor();
  if (!target.is_cuda() || source.sizes() != target.sizes() || !source.is_contiguous()) return;
  if (simulator().holds_unknown(source.const_data_ptr(), source.nbytes()) == 0) tell_value(target, source);
}

// What a tensor grows by holds anything: zeros, so that what was known still is as a whole.
void tell_resized(const Running& running) {
  const at::Tensor &target = running.written.front(), &before = running.arguments.front().toTensor();
  if (!target.is_cuda() || !may_decide(target) || !before.is_contiguous()) return;
  const at::Tensor value = at::zeros({target.numel()}, before.options());
  const int64_t kept = std::min(before.numel(), target.numel());
  value.narrow(0, 0, kept).copy_(before.reshape({-1}).narrow(0, 0, kept));
  tell_value(target, value.view(target.sizes()));
}

void finish(Running& running, const std::vector<IValue>& results) {
  const uint64_t submitted = simulator().submitted() - running.submitted;
  if (running.outer != nullptr) running.outer->by_inner += submitted;
  const bool wrote = submitted > running.by_inner;
  if (wrote) running.operands.charge(results);
  if (running.op->gives_memory || (wrote && (!running.computable || is_capturing())))
    forget_results(running, results);
  else if (wrote)
    tell_results(running, results);
  else if (running.op->copies && running.computable && !is_capturing())
    tell_copied(running);
  else if (running.op->resizes && running.computable && !is_capturing())
    tell_resized(running);
}

// Numbers that nobody computed are taken to be finite: a program that looks for others finds none.
void tell_finite(bool answer, const std::vector<IValue>& results) {
  const std::vector<at::Tensor> tensors = tensors_of(results);
  if (tensors.size() != 1 || !tensors.front().is_cuda() || !may_decide(tensors.front()) || is_capturing() ||
      known_value(tensors.front()))
    return;
  const auto options = tensors.front().options().device(at::kCPU).pinned_memory(false);
  tell_value(tensors.front(), at::full(tensors.front().sizes(), answer, options));
}

void ended(const at::RecordFunction& call, at::ObserverContext* context) {
  if (context == nullptr) return;
  Running& running = *static_cast<Running*>(context);
  const Aside aside;
  simulator().confine(-1);
  innermost = running.outer;
  if (running.op->reads_by_itself) simulator().answer_next_read(0, 0);
  finish(running, call.outputs());
  if (const auto& answer = running.op->of_finite) tell_finite(*answer, call.outputs());
  if (running.spared && !running.computable && !is_capturing())
    tell_value(running.written.back(), *running.spared);
}

// Runs under the allocator's lock. Memory that is given again holds what somebody else left there, and where
// the allocator puts a block must decide no value.
void forget_what_was_there(const cuda_allocator::TraceEntry& entry) {
  if (entry.action_ == cuda_allocator::TraceEntry::ALLOC)
    simulator().tell(static_cast<CUdeviceptr>(entry.addr_), nullptr, static_cast<uint64_t>(entry.size_));
}

}  // namespace

bool observe_operators() {
  auto* const allocator = cuda_allocator::allocator.load();
  if (allocator == nullptr || !allocator->initialized()) return false;
  try {
    allocator->attachAllocatorTraceTracker(forget_what_was_there);
  } catch (const c10::Error&) {  // An allocator without traces: `gives_memory` has to do.  NOLINT
  }
  at::addGlobalCallback(at::RecordFunctionCallback(started, ended)
                            .needsInputs(true)
                            .needsOutputs(true)
                            .scopes({at::RecordScope::FUNCTION}));
  return true;
}

}  // namespace spillway::kernels
