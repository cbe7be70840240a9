#include "simulator/driver/graph/graph.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "simulator/driver/machine/state.h"

namespace spillway::simulator {

Graph::Graph() : serial(machine().graphs.next_serial++) {
  machine().graphs.handles.insert(this);
}

Graph::~Graph() {
  for (const auto& [id, node] : nodes) machine().graphs.nodes.erase(node.get());
  machine().graphs.handles.erase(this);
}

Node* Graph::add(Work work, const std::vector<Node*>& dependencies, Site node_site) {
  auto made = std::make_unique<Node>();
  Node* node = made.get();
  node->graph = this;
  node->id = next_id++;
  node->work = std::move(work);
  node->site = node_site;
  for (Node* dependency : dependencies) link(dependency, node);
  machine().graphs.nodes.insert(node);
  nodes.emplace(node->id, std::move(made));
  return node;
}

void Graph::remove(Node* node) {
  while (!node->dependencies.empty()) unlink(node->dependencies.back(), node);
  while (!node->dependents.empty()) unlink(node, node->dependents.back());
  machine().graphs.nodes.erase(node);
  nodes.erase(node->id);
}

Node* Graph::find(uint64_t id) {
  const auto found = nodes.find(id);
  return found == nodes.end() ? nullptr : found->second.get();
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  for (const auto& [id, node] : nodes) {
    copy->next_id = id;
    Work work = node->work;
    if (auto* child = std::get_if<ChildWork>(&work)) child->graph = child->graph->clone();
    copy->add(std::move(work), {}, node->site);
  }
  copy->next_id = next_id;
  for (const auto& [id, node] : nodes)
    for (const Node* dependency : node->dependencies) link(copy->find(dependency->id), copy->find(id));
  copy->cloned_from = serial;
  copy->site = site;
  return copy;
}

std::vector<Node*> Graph::ordered() {
  std::map<const Node*, size_t> missing;
  std::set<uint64_t> ready;
  for (const auto& [id, node] : nodes) {
    missing[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) ready.insert(id);
  }
  std::vector<Node*> order;
  while (!ready.empty()) {
    Node* node = find(*ready.begin());
    ready.erase(ready.begin());
    order.push_back(node);
    for (const Node* dependent : node->dependents)
      if (--missing[dependent] == 0) ready.insert(dependent->id);
  }
  return order;
}

bool link(Node* from, Node* to) {
  if (std::find(to->dependencies.begin(), to->dependencies.end(), from) != to->dependencies.end())
    return false;
  to->dependencies.push_back(from);
  from->dependents.push_back(to);
  return true;
}

bool unlink(Node* from, Node* to) {
  const auto dependency = std::find(to->dependencies.begin(), to->dependencies.end(), from);
  if (dependency == to->dependencies.end()) return false;
  to->dependencies.erase(dependency);
  from->dependents.erase(std::find(from->dependents.begin(), from->dependents.end(), to));
  return true;
}

GraphRange::GraphRange(Device* on, uint64_t requested, Site site) : device(on), bytes(requested) {
  // A gap behind it, as behind every allocation.
  const uint64_t range = (bytes + kGranularity - 1) / kGranularity * kGranularity + kGranularity;
  address = machine().space.reserve(range, kGranularity, 0, {.bytes = range, .internal = true, .site = site});
  if (address) machine().graphs.allocations.insert(address);
}

GraphRange::~GraphRange() {
  auto& space = machine().space;
  if (!address) return;
  machine().graphs.allocations.erase(address);
  space.unreserve(space.reservations().find(address));
}

bool is_graph_memory(CUdeviceptr address) {
  return machine().graphs.allocations.contains(address);
}

Graph* find_graph(CUgraph handle) {
  auto* graph = reinterpret_cast<Graph*>(handle);
  return machine().graphs.handles.contains(graph) ? graph : nullptr;
}

Node* find_node(CUgraphNode handle) {
  auto* node = reinterpret_cast<Node*>(handle);
  return machine().graphs.nodes.contains(node) ? node : nullptr;
}

bool find_nodes(const CUgraphNode* handles, size_t count, const Graph* graph, std::vector<Node*>& out) {
  if (count > 0 && !handles) return false;
  for (size_t i = 0; i < count; ++i) {
    Node* node = find_node(handles[i]);
    if (!node || (graph && node->graph != graph)) return false;
    out.push_back(node);
  }
  return true;
}

CUresult list(const std::vector<Node*>& nodes, CUgraphNode* out, CUgraphEdgeData* edges, size_t* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (!out) {
    *count = nodes.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) {
    out[i] = i < nodes.size() ? handle_of(nodes[i]) : nullptr;
    if (edges) edges[i] = {};
  }
  *count = std::min(*count, nodes.size());
  return CUDA_SUCCESS;
}

CUgraphNodeType type_of(const Work& work) {
  constexpr CUgraphNodeType kTypes[] = {CU_GRAPH_NODE_TYPE_KERNEL,       CU_GRAPH_NODE_TYPE_MEMCPY,
                                        CU_GRAPH_NODE_TYPE_MEMSET,       CU_GRAPH_NODE_TYPE_HOST,
                                        CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                                        CU_GRAPH_NODE_TYPE_EMPTY,        CU_GRAPH_NODE_TYPE_GRAPH,
                                        CU_GRAPH_NODE_TYPE_MEM_ALLOC,    CU_GRAPH_NODE_TYPE_MEM_FREE};
  static_assert(std::size(kTypes) == std::variant_size_v<Work>);
  return kTypes[work.index()];
}

namespace {

std::string label(const Work& work) {
  if (const auto* kernel = std::get_if<KernelWork>(&work)) return kernel->name;
  if (const auto* copy = std::get_if<CopyWork>(&work))
    return std::string(copy->name) + " of " + std::to_string(copy->shape.bytes()) + " bytes to " +
           describe_range(copy->target, copy->shape.bytes());
  if (const auto* fill = std::get_if<FillWork>(&work))
    return "memset of " + describe_range(fill->address, fill->width * fill->rows * fill->value_bytes);
  if (const auto* allocate = std::get_if<AllocateWork>(&work))
    return "allocation of " + describe_range(allocate->range->address, allocate->range->bytes);
  if (const auto* freed = std::get_if<FreeWork>(&work)) return "free of " + describe_range(freed->address, 1);
  constexpr const char* kNames[] = {"",           "",      "",           "host function", "event record",
                                    "event wait", "empty", "child graph"};
  return kNames[work.index()];
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string dot(Graph& graph) {
  std::ostringstream out;
  const std::string name = "graph_" + std::to_string(graph.serial);
  out << "digraph " << name << " {\n";
  for (const auto& [id, node] : graph.nodes)
    out << "  node_" << id << " [label=" << quoted(std::to_string(id) + ": " + label(node->work)) << "];\n";
  for (const auto& [id, node] : graph.nodes)
    for (const Node* dependent : node->dependents)
      out << "  node_" << id << " -> node_" << dependent->id << ";\n";
  out << "}\n";
  return out.str();
}

}  // namespace spillway::simulator
