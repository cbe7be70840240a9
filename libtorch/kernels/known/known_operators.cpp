#include "libtorch/kernels/known/known_operators.h"

#include <ATen/core/enum_tag.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"

namespace spillway::kernels {
namespace {

bool begins_with(std::string_view name, std::string_view start) {
  return name.substr(0, start.size()) == start;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The CPU would draw other numbers, and from the generator that the program's own draws come from.
bool draws(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  return op.hasTag(at::Tag::nondeterministic_seeded) ||
         std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& argument) {
           return argument.name() == "generator" || argument.name() == "philox_seed";
         });
}

bool overwrites(std::string_view name, const c10::FunctionSchema& schema) {
  if (is_one_of(name, {"aten::fill_", "aten::zero_", "aten::copy_", "aten::_foreach_zero_",
                       "aten::_foreach_copy_"}))
    return true;
  const auto& arguments = schema.arguments();
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const c10::Argument& argument) { return argument.is_out(); });
}

// `_is_all_true` is what the checks of torch.distributions and torch._check_tensor_all ask.
std::optional<bool> of_finite(std::string_view name) {
  if (is_one_of(name, {"aten::isfinite", "aten::_is_all_true"})) return true;
  if (is_one_of(name, {"aten::isnan", "aten::isinf", "aten::isposinf", "aten::isneginf"})) return false;
  return std::nullopt;
}

std::unique_ptr<KnownOperator> facts_of(const c10::OperatorName& operator_name) {
  auto facts = std::make_unique<KnownOperator>();
  const std::string_view name = operator_name.name;
  const auto op = c10::Dispatcher::singleton().findSchema(operator_name);
  if (!op) return facts;
  const c10::FunctionSchema& schema = op->schema();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) facts->written.push_back(i);
  }
  facts->overwrites = overwrites(name, schema);
  facts->copies = name == "aten::copy_";
  facts->resizes = name == "aten::resize_";
  facts->gives_memory = begins_with(name, "aten::empty") || begins_with(name, "aten::new_empty");
  facts->reads_by_itself = is_one_of(name, {"aten::nonzero", "aten::_unique", "aten::_unique2",
                                            "aten::unique_consecutive", "aten::equal"}) &&
                           facts->written.empty();
  facts->picks_elements = facts->reads_by_itself && name != "aten::equal";
  facts->of_finite = of_finite(name);
  facts->spares_last = name == "aten::_amp_foreach_non_finite_check_and_unscale_";
  const bool computes = !facts->gives_memory && !draws(*op) && !begins_with(name, "aten::_cudnn") &&
                        op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  if (computes) facts->handle = op;
  return facts;
}

// Nothing but the backends: no autograd, no modes of the program's, no casts.
c10::DispatchKeySet all_but_backends() {
  static const c10::DispatchKeySet keys =
      c10::DispatchKeySet(c10::DispatchKeySet::FULL) -
      c10::DispatchKeySet({c10::DispatchKey::Dense, c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr,
                           c10::DispatchKey::BackendSelect}) -
      c10::DispatchKeySet(c10::DispatchKeySet::RAW,
                          (uint64_t{1} << static_cast<uint8_t>(c10::BackendComponent::EndOfBackendKeys)) - 1);
  return keys;
}

}  // namespace

Aside::Aside() : plain_(all_but_backends()) {}

const KnownOperator* known_operator(const char* name, const char* overload) {
  if (!begins_with(name, "aten::")) return nullptr;
  static Mutex<LockOrder::kLeaf> mutex;
  static auto* const all SPILLWAY_PT_GUARDED_BY(mutex) =
      new std::unordered_map<const char*, std::unique_ptr<KnownOperator>>;
  thread_local std::unordered_map<const char*, const KnownOperator*> seen;
  // Each schema has a text of its own, so that the address of the name stands for name and overload.
  const auto [entry, added] = seen.try_emplace(name, nullptr);
  if (added) {
    const Locked lock(mutex);
    auto& facts = (*all)[name];
    if (!facts) facts = facts_of({name, overload});
    entry->second = facts.get();
  }
  return entry->second;
}

std::optional<std::vector<c10::IValue>> compute_on_cpu(const KnownOperator& op,
                                                       std::vector<c10::IValue> arguments) {
  if (!op.handle) return std::nullopt;
  try {
    op.handle->redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &arguments);
    return arguments;
  } catch (const std::exception&) {
    return std::nullopt;  // an index out of range, or a type that the CPU does not have
  }
}

}  // namespace spillway::kernels
