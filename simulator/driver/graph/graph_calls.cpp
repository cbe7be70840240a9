// Graphs as objects: making, copying and reading them, and their edges.
#include <fstream>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/graph/graph.h"

namespace spillway::simulator {
namespace {

using Edit = bool (*)(Node*, Node*);

CUresult edit_edges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, size_t count, Edit edit) {
  const Graph* graph = find_graph(handle);
  std::vector<Node*> sources, targets;
  if (!graph || !find_nodes(from, count, graph, sources) || !find_nodes(to, count, graph, targets))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    if (sources[i] == targets[i] || !edit(sources[i], targets[i])) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

std::vector<Node*> nodes_of(const Graph& graph, bool roots_only) {
  std::vector<Node*> nodes;
  for (const auto& [id, node] : graph.nodes)
    if (!roots_only || node->dependencies.empty()) nodes.push_back(node.get());
  return nodes;
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  SPILLWAY_SIM_ENTER(cuGraphCreate);
  if (!phGraph || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  auto graph = std::make_shared<Graph>();
  graph->site = call.site();
  *phGraph = handle_of(graph.get());
  sim.graphs.owned.emplace(graph.get(), std::move(graph));
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  SPILLWAY_SIM_ENTER(cuGraphClone);
  const Graph* original = find_graph(originalGraph);
  if (!phGraphClone || !original) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Graph> copy = original->clone();
  *phGraphClone = handle_of(copy.get());
  sim.graphs.owned.emplace(copy.get(), std::move(copy));
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode, CUgraph hClonedGraph) {
  SPILLWAY_SIM_ENTER(cuGraphNodeFindInClone);
  const Node* original = find_node(hOriginalNode);
  Graph* copy = find_graph(hClonedGraph);
  if (!phNode || !original || !copy || copy->cloned_from != original->graph->serial)
    return CUDA_ERROR_INVALID_VALUE;
  *phNode = handle_of(copy->find(original->id));
  return *phNode ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  SPILLWAY_SIM_ENTER(cuGraphDestroy);
  const auto owned = sim.graphs.owned.find(reinterpret_cast<Graph*>(hGraph));
  if (owned == sim.graphs.owned.end() || owned->first->capturing) return CUDA_ERROR_INVALID_VALUE;
  sim.graphs.owned.erase(owned);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  SPILLWAY_SIM_ENTER(cuGraphDestroyNode);
  Node* node = find_node(hNode);
  if (!node || node->graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  node->graph->remove(node);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  SPILLWAY_SIM_ENTER(cuGraphGetNodes);
  const Graph* graph = find_graph(hGraph);
  return graph ? list(nodes_of(*graph, false), nodes, nullptr, numNodes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  SPILLWAY_SIM_ENTER(cuGraphGetRootNodes);
  const Graph* graph = find_graph(hGraph);
  return graph ? list(nodes_of(*graph, true), rootNodes, nullptr, numRootNodes) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* edgeData,
                         size_t* numEdges) {
  SPILLWAY_SIM_ENTER(cuGraphGetEdges);
  const Graph* graph = find_graph(hGraph);
  if (!graph || !numEdges || !from != !to) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> sources, targets;
  for (const auto& [id, node] : graph->nodes)
    for (Node* dependent : node->dependents) {
      sources.push_back(node.get());
      targets.push_back(dependent);
    }
  size_t count = *numEdges;
  const CUresult result = list(sources, from, edgeData, &count);
  return result == CUDA_SUCCESS ? list(targets, to, nullptr, numEdges) : result;
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  SPILLWAY_SIM_ENTER(cuGraphNodeGetType);
  const Node* node = find_node(hNode);
  if (!node || !type) return CUDA_ERROR_INVALID_VALUE;
  *type = type_of(node->work);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode hNode, CUgraph* phGraph) {
  SPILLWAY_SIM_ENTER(cuGraphNodeGetContainingGraph);
  const Node* node = find_node(hNode);
  if (!node || !phGraph) return CUDA_ERROR_INVALID_VALUE;
  *phGraph = handle_of(node->graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetLocalId(CUgraphNode hNode, unsigned int* nodeId) {
  SPILLWAY_SIM_ENTER(cuGraphNodeGetLocalId);
  const Node* node = find_node(hNode);
  if (!node || !nodeId) return CUDA_ERROR_INVALID_VALUE;
  *nodeId = static_cast<unsigned>(node->id);
  return CUDA_SUCCESS;
}

// The id of the graph in the upper half, as of the node in the lower.
CUresult cuGraphNodeGetToolsId(CUgraphNode hNode, unsigned long long* toolsNodeId) {
  SPILLWAY_SIM_ENTER(cuGraphNodeGetToolsId);
  const Node* node = find_node(hNode);
  if (!node || !toolsNodeId) return CUDA_ERROR_INVALID_VALUE;
  *toolsNodeId = node->graph->serial << 32 | node->id;
  return CUDA_SUCCESS;
}

CUresult cuGraphGetId(CUgraph hGraph, unsigned int* graphId) {
  SPILLWAY_SIM_ENTER(cuGraphGetId);
  const Graph* graph = find_graph(hGraph);
  if (!graph || !graphId) return CUDA_ERROR_INVALID_VALUE;
  *graphId = static_cast<unsigned>(graph->serial);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecGetId(CUgraphExec hGraphExec, unsigned int* graphId) {
  SPILLWAY_SIM_ENTER(cuGraphExecGetId);
  const auto found = sim.graphs.execs.find(reinterpret_cast<GraphExec*>(hGraphExec));
  if (found == sim.graphs.execs.end() || !graphId) return CUDA_ERROR_INVALID_VALUE;
  *graphId = static_cast<unsigned>(found->second->graph->serial);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies, CUgraphEdgeData* edgeData,
                                    size_t* numDependencies) {
  SPILLWAY_SIM_ENTER(cuGraphNodeGetDependencies);
  const Node* node = find_node(hNode);
  return node ? list(node->dependencies, dependencies, edgeData, numDependencies) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  SPILLWAY_SIM_ENTER(cuGraphNodeGetDependentNodes);
  const Node* node = find_node(hNode);
  return node ? list(node->dependents, dependentNodes, edgeData, numDependentNodes)
              : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                const CUgraphEdgeData*, size_t numDependencies) {
  SPILLWAY_SIM_ENTER(cuGraphAddDependencies);
  return edit_edges(hGraph, from, to, numDependencies, link);
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData*, size_t numDependencies) {
  SPILLWAY_SIM_ENTER(cuGraphRemoveDependencies);
  return edit_edges(hGraph, from, to, numDependencies, unlink);
}

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int) {
  SPILLWAY_SIM_ENTER(cuGraphDebugDotPrint);
  Graph* graph = find_graph(hGraph);
  if (!graph || !path) return CUDA_ERROR_INVALID_VALUE;
  std::ofstream file(path);
  file << dot(*graph);
  file.close();
  return file ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
