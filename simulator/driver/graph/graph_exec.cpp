// Executable graphs: instantiation, launches, updates. A launch puts each node on the virtual clock behind
// what it depends on; branches run side by side.
#include <algorithm>
#include <unordered_map>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/graph/capture.h"
#include "simulator/driver/memory/memory.h"

namespace spillway::simulator {
namespace {

constexpr unsigned long long kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// Appends the graph's nodes behind the steps `after`; false if its dependencies go in a circle.
bool flatten(Graph& graph, const std::vector<size_t>& after, Program& out, std::vector<size_t>& done) {
  const std::vector<Node*> order = graph.ordered();
  if (order.size() != graph.nodes.size()) return false;
  std::unordered_map<const Node*, std::vector<size_t>> steps_of;  // that stand for the whole node
  for (const Node* node : order) {
    std::vector<size_t> before;
    for (const Node* dependency : node->dependencies)
      before.insert(before.end(), steps_of[dependency].begin(), steps_of[dependency].end());
    if (before.empty()) before = after;
    auto& steps = steps_of[node];
    if (const auto* child = std::get_if<ChildWork>(&node->work)) {
      if (!flatten(*child->graph, before, out, steps)) return false;
      if (steps.empty()) steps = before;
    } else {
      steps = {out.size()};
      out.push_back({node->work, before, node->site});
    }
  }
  for (const Node* node : order)
    if (node->dependents.empty()) done.insert(done.end(), steps_of[node].begin(), steps_of[node].end());
  return true;
}

std::shared_ptr<const Program> program_of(Graph& graph) {
  auto program = std::make_shared<Program>();
  std::vector<size_t> done;
  return flatten(graph, {}, *program, done) ? program : nullptr;
}

CUresult instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags, Site site) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  const Graph* graph = find_graph(handle);
  if (!graph || graph->capturing || (flags & ~kKnownFlags)) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) return CUDA_ERROR_NOT_SUPPORTED;
  auto exec = std::make_shared<GraphExec>();
  exec->graph = graph->clone();
  exec->program = program_of(*exec->graph);
  exec->flags = flags;
  exec->site = site;
  if (!exec->program) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgraphExec>(exec.get());
  machine().graphs.execs.emplace(exec.get(), std::move(exec));
  return CUDA_SUCCESS;
}

std::shared_ptr<GraphExec> find_exec(CUgraphExec handle) {
  const auto found = machine().graphs.execs.find(reinterpret_cast<GraphExec*>(handle));
  return found == machine().graphs.execs.end() ? nullptr : found->second;
}

// What an earlier launch allocated and nobody freed is in the way of another one.
CUresult free_leftovers(const GraphExec& exec, Stream& stream, Site site) {
  AddressSpace& space = machine().space;
  for (const Step& step : *exec.program) {
    const auto* allocate = std::get_if<AllocateWork>(&step.work);
    if (!allocate || space.mappings().find(allocate->range->address) == space.mappings().end()) continue;
    if (!(exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = free_in_order(allocate->range->address, stream, site); result != CUDA_SUCCESS)
      return result;
  }
  return CUDA_SUCCESS;
}

// Violations of the graph's work say where it was captured as well as where the graph was launched.
class InGraph {
 public:
  explicit InGraph(Site captured_at) { machine().referee.set_captured_at(captured_at); }
  ~InGraph() { machine().referee.set_captured_at(nullptr); }
  InGraph(const InGraph&) = delete;
  InGraph& operator=(const InGraph&) = delete;
};

// A stream for one node: like the one that the graph was launched on, free when the node may start.
Stream lane_of(const Stream& stream, uint64_t free_at) {
  Stream lane;
  lane.free_at = free_at;
  lane.context = stream.context;
  lane.id = stream.id;
  lane.flags = CU_STREAM_NON_BLOCKING;
  lane.outside = stream.outside;
  return lane;
}

bool runs_on_host(const Work& work) {
  const auto* kernel = std::get_if<KernelWork>(&work);
  return std::holds_alternative<HostWork>(work) || (kernel && kernel->repeated);
}

// Without the lock: it may call the driver.
bool run_on_host(const Work& work) {
  if (const auto* host = std::get_if<HostWork>(&work)) {
    host->function(host->data);
    return true;
  }
  return std::get<KernelWork>(work).repeated->run();
}

CUresult run_steps(Call& call, const Program& program, CUstream handle, Stream*& stream) {
  const uint64_t start = place(*stream, nullptr, 0).start;
  std::vector<uint64_t> ends(program.size(), start);
  uint64_t end = start;
  for (size_t i = 0; i < program.size(); ++i) {
    const Step& step = program[i];
    uint64_t ready = start;
    for (const size_t before : step.after) ready = std::max(ready, ends[before]);
    Stream lane = lane_of(*stream, ready);
    CUresult result = CUDA_SUCCESS;
    {
      const InGraph context(step.site);
      result = run(step.work, lane, call.site());
    }
    if (result != CUDA_SUCCESS) return result;
    join(stream->outside, lane.outside);
    ends[i] = lane.free_at;
    end = std::max(end, lane.free_at);
    if (!runs_on_host(step.work)) continue;
    if (result = find_settled_stream(handle, &stream); result != CUDA_SUCCESS) return result;
    call.unlock();
    const bool done = run_on_host(step.work);
    call.lock();
    if (!done) return CUDA_ERROR_LAUNCH_FAILED;
    if (result = find_stream(handle, &stream); result != CUDA_SUCCESS) return result;  // it may be gone
  }
  stream->free_at = std::max(stream->free_at, end);
  place(*stream, nullptr, 0);
  return CUDA_SUCCESS;
}

CUresult launch(Call& call, CUgraphExec handle, CUstream on) {
  const std::shared_ptr<GraphExec> exec = find_exec(handle);
  Stream* stream = nullptr;
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_work_stream(on, &stream, Settled::kToTouch); result != CUDA_SUCCESS)
    return result;
  if (stream->capture) return capture_work(*stream, ChildWork{exec->graph->clone()}, call.site());
  if (const CUresult result = free_leftovers(*exec, *stream, call.site()); result != CUDA_SUCCESS)
    return result;
  const std::shared_ptr<const Program> program =
      exec->program;  // an update or a destruction does not touch it
  return run_steps(call, *program, on, stream);
}

// Whether the new graph is the old one with other parameters; else how it differs, and at which node.
CUgraphExecUpdateResult compare(Graph& old_graph, Graph& new_graph, Node** at) {
  auto theirs = new_graph.nodes.begin();
  for (const auto& [id, node] : old_graph.nodes) {
    if (theirs == new_graph.nodes.end()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    *at = theirs->second.get();
    const Node& other = **at;
    if (type_of(node->work) != type_of(other.work)) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (node->dependencies.size() != other.dependencies.size())
      return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (std::holds_alternative<AllocateWork>(node->work) || std::holds_alternative<FreeWork>(node->work))
      return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    ++theirs;
  }
  if (theirs == new_graph.nodes.end()) return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  *at = theirs->second.get();
  return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
}

CUresult update(CUgraphExec handle, CUgraph with, CUgraphExecUpdateResultInfo* info) {
  const std::shared_ptr<GraphExec> exec = find_exec(handle);
  Graph* graph = find_graph(with);
  if (!exec || !graph || !info) return CUDA_ERROR_INVALID_VALUE;
  Node* at = nullptr;
  *info = {.result = compare(*exec->graph, *graph, &at), .errorNode = nullptr, .errorFromNode = nullptr};
  if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    info->errorNode = handle_of(at);
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  const std::shared_ptr<Graph> copy = graph->clone();
  const std::shared_ptr<const Program> program = program_of(*copy);
  if (!program) return CUDA_ERROR_INVALID_VALUE;
  exec->graph = copy;
  exec->program = program;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult replace_work(CUgraphExec handle, CUgraphNode original, Work work) {
  const std::shared_ptr<GraphExec> exec = find_exec(handle);
  const Node* node = find_node(original);
  if (!exec || !node || node->graph->serial != exec->graph->cloned_from) return CUDA_ERROR_INVALID_VALUE;
  Node* copy = exec->graph->find(node->id);
  if (!copy || copy->work.index() != work.index()) return CUDA_ERROR_INVALID_VALUE;
  copy->work = std::move(work);
  exec->program = program_of(*exec->graph);
  return CUDA_SUCCESS;
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long flags) {
  SPILLWAY_SIM_ENTER(cuGraphInstantiateWithFlags);
  return instantiate(phGraphExec, hGraph, flags, call.site());
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  SPILLWAY_SIM_ENTER(cuGraphInstantiateWithParams);
  if (!instantiateParams) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags, call.site());
  instantiateParams->hErrNode_out = nullptr;
  instantiateParams->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  SPILLWAY_SIM_ENTER(cuGraphExecGetFlags);
  const auto exec = find_exec(hGraphExec);
  if (!exec || !flags) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

// There is nothing to bring to the device: memory of allocation nodes comes at the launch.
CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuGraphUpload);
  Stream* stream = nullptr;
  if (!find_exec(hGraphExec)) return CUDA_ERROR_INVALID_VALUE;
  return find_work_stream(hStream, &stream);
}

CUresult cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuGraphLaunch);
  return launch(call, hGraphExec, hStream);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  SPILLWAY_SIM_ENTER(cuGraphExecDestroy);
  return sim.graphs.execs.erase(reinterpret_cast<GraphExec*>(hGraphExec)) ? CUDA_SUCCESS
                                                                          : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo* resultInfo) {
  SPILLWAY_SIM_ENTER(cuGraphExecUpdate);
  return update(hGraphExec, hGraph, resultInfo);
}

SPILLWAY_SIM_FORWARD(cuGraphInstantiateWithParams_ptsz,
                     (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters),
                     cuGraphInstantiateWithParams, (exec, graph, parameters))
SPILLWAY_SIM_FORWARD(cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream), cuGraphUpload,
                     (exec, per_thread(stream)))
SPILLWAY_SIM_FORWARD(cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream), cuGraphLaunch,
                     (exec, per_thread(stream)))
