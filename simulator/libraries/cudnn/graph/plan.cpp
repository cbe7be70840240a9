#include "simulator/libraries/cudnn/graph/plan.h"

#include <algorithm>
#include <string>

#include "simulator/libraries/cudnn/graph/attributes.h"
#include "simulator/libraries/cudnn/graph/operation_graph.h"
#include "simulator/libraries/cudnn/handle.h"

namespace spillway::cudnn {
namespace {

const Computation backend_execute("cudnnBackendExecute");

cudnnStatus_t check_tensor(const State& state) {
  const std::vector<int64_t> dims = state.integers(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto positive = [](int64_t value) { return value > 0; };
  if (dims.empty() || !std::all_of(dims.begin(), dims.end(), positive)) {
    return fail(CUDNN_STATUS_BAD_PARAM, "a tensor's dimensions are positive");
  }
  if (dims.size() != state.integers(CUDNN_ATTR_TENSOR_STRIDES).size()) {
    return fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "a tensor has as many strides as dimensions");
  }
  return state.integer(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) > 0
             ? kSuccess
             : fail(CUDNN_STATUS_BAD_PARAM, "a tensor's alignment is positive");
}

cudnnStatus_t finish_heuristics(State& state) {
  std::vector<int64_t> engines;
  const Shared graph = state.shared_child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const auto mode = static_cast<cudnnBackendHeurMode_t>(state.enumerator(CUDNN_ATTR_ENGINEHEUR_MODE));
  if (const cudnnStatus_t status = engines_for(*graph, mode, &engines); status != kSuccess) return status;
  std::vector<Shared> configurations;
  for (const int64_t index : engines) {
    auto engine = std::make_shared<State>();
    engine->type = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
    engine->put_children(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
    engine->put_integers(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, {index});
    if (const cudnnStatus_t status = finalize(*engine); status != kSuccess) return status;
    auto configuration = std::make_shared<State>();
    configuration->type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    configuration->put_children(CUDNN_ATTR_ENGINECFG_ENGINE, {engine});
    if (const cudnnStatus_t status = finalize(*configuration); status != kSuccess) return status;
    configurations.push_back(std::move(configuration));
  }
  state.put_children(CUDNN_ATTR_ENGINEHEUR_RESULTS, std::move(configurations));
  return kSuccess;
}

cudnnStatus_t finish_engine(State& state) {
  const State& graph = *state.child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  const int64_t index = state.integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  std::vector<int64_t> engines;
  if (const cudnnStatus_t status = engines_for(graph, CUDNN_HEUR_MODE_A, &engines); status != kSuccess)
    return status;
  if (std::find(engines.begin(), engines.end(), index) == engines.end()) {
    return fail(CUDNN_STATUS_NOT_SUPPORTED, "the graph has no engine " + std::to_string(index));
  }
  state.put_integers(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                     numerical_notes(graph, index));
  state.put_integers(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, {});
  return kSuccess;
}

int64_t workspace_of(const State& engine) {
  return workspace_bytes(*engine.child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH),
                         engine.integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
}

cudnnStatus_t finish_configuration(State& state) {
  const int64_t bytes = workspace_of(*state.child(CUDNN_ATTR_ENGINECFG_ENGINE));
  state.put_integers(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, {bytes});
  state.put_integers(CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, CUDNN_TYPE_INT32, {0});
  return kSuccess;
}

cudnnStatus_t finish_plan(State& state) {
  const State& engine =
      *state.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->child(CUDNN_ATTR_ENGINECFG_ENGINE);
  state.put_integers(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, {workspace_of(engine)});
  const std::string text =
      "{\"engine\": " + std::to_string(engine.integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)) + "}";
  state.put_text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, text.c_str());
  return kSuccess;
}

cudnnStatus_t finish(State& state) {
  switch (state.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return check_tensor(state);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      state.put_integers(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, {kEngineCount});
      return kSuccess;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return finish_heuristics(state);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
      return finish_engine(state);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
      return finish_configuration(state);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return finish_plan(state);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return state.find(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->count ==
                     state.find(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->count
                 ? kSuccess
                 : fail(CUDNN_STATUS_BAD_PARAM, "a variant pack has as many addresses as ids");
    default:
      return kSuccess;
  }
}

}  // namespace

cudnnStatus_t finalize(State& state) {
  if (state.finalized) return kSuccess;
  for (const cudnnBackendAttributeName_t name : required(state.type)) {
    const Attribute* attribute = state.find(name);
    if (attribute == nullptr || attribute->count == 0) {
      return fail(CUDNN_STATUS_BAD_PARAM,
                  "attribute " + std::to_string(static_cast<int>(name)) + " must be set before finalizing");
    }
  }
  const cudnnStatus_t status = finish(state);
  state.finalized = status == kSuccess;
  return status;
}

cudnnStatus_t execute(cudnnHandle_t handle, const State& plan, const State& pack) {
  const std::vector<const void*> workspace = pack.pointers(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const bool given = !workspace.empty() && workspace.front() != nullptr;
  if (plan.integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) > 0 && !given) {
    return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the plan needs a workspace and the pack brings none");
  }
  const State& engine =
      *plan.child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->child(CUDNN_ATTR_ENGINECFG_ENGINE);
  const std::vector<int64_t> brought = pack.integers(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  for (const int64_t id : outside_tensors(*engine.child(CUDNN_ATTR_ENGINE_OPERATION_GRAPH))) {
    if (std::find(brought.begin(), brought.end(), id) == brought.end()) {
      return fail(CUDNN_STATUS_BAD_PARAM, "the variant pack has no address of tensor " + std::to_string(id));
    }
  }
  return library.launch(handle, backend_execute);
}

}  // namespace spillway::cudnn
