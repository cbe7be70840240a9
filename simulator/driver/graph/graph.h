// Graphs: work with dependencies, and its executable form.
//
// Thread-safety: used under the simulator's lock. Ownership: `Graphs` owns what the program made; a child
// graph belongs to its node; an executable has a copy of its graph. Errors: CUresult as the driver's.
// Units: bytes.
#pragma once
#include <cuda.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "simulator/driver/work/work.h"

namespace spillway::simulator {

struct Device;

struct Node {
  Graph* graph = nullptr;
  uint64_t id = 0;  // within its graph; the same in a copy
  Work work;
  Site site = nullptr;
  std::vector<Node*> dependencies, dependents;
};

struct Graph {
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Node* add(Work work, const std::vector<Node*>& dependencies, Site site);
  void remove(Node* node);
  Node* find(uint64_t id);
  std::shared_ptr<Graph> clone() const;
  // The nodes, each behind what it depends on; fewer than all if the dependencies go in a circle.
  std::vector<Node*> ordered();

  std::map<uint64_t, std::unique_ptr<Node>> nodes;  // by id
  uint64_t next_id = 1;
  uint64_t cloned_from = 0;  // the serial number of the original, 0: none
  uint64_t serial = 0;
  bool capturing = false;  // a stream adds to it
  Site site = nullptr;
};

bool link(Node* from, Node* to);  // false: they are linked already
bool unlink(Node* from, Node* to);

// The addresses of an allocation node: reserved as long as a node or a mapping needs them; memory is there
// from the launch until it is freed.
struct GraphRange {
  GraphRange(Device* device, uint64_t bytes, Site site);
  ~GraphRange();
  GraphRange(const GraphRange&) = delete;
  GraphRange& operator=(const GraphRange&) = delete;

  Device* device;
  uint64_t bytes;
  CUdeviceptr address = 0;  // 0: there was no free range
};

struct Step {
  Work work;
  std::vector<size_t> after;  // steps that have to be done, all earlier in the list
  Site site = nullptr;
};
using Program = std::vector<Step>;

struct GraphExec {
  std::shared_ptr<Graph> graph;
  std::shared_ptr<const Program> program;
  unsigned long long flags = 0;
  Site site = nullptr;
};

// Bytes as they were.
struct Preserved {
  CUdeviceptr address = 0;
  std::vector<char> bytes;
};

struct Capture {
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint64_t thread = 0;  // whose capture it is
  Stream* origin = nullptr;
  std::unordered_set<Stream*> streams;  // the origin and those that joined
  bool invalidated = false;
  std::shared_ptr<Graph> graph;
  std::vector<Preserved> preserved;
};

struct Graphs {
  std::unordered_map<Graph*, std::shared_ptr<Graph>> owned;
  std::unordered_set<Graph*> handles;  // the above, children and those being captured
  std::unordered_set<Node*> nodes;
  std::unordered_set<CUdeviceptr> allocations;  // addresses of allocation nodes
  std::unordered_map<GraphExec*, std::shared_ptr<GraphExec>> execs;
  std::map<uint64_t, std::unique_ptr<Capture>> captures;
  uint64_t next_capture = 1, next_serial = 1;
};

// Whether an allocation node has given the address.
bool is_graph_memory(CUdeviceptr address);

Graph* find_graph(CUgraph handle);  // null: no graph
Node* find_node(CUgraphNode handle);
inline CUgraph handle_of(Graph* graph) {
  return reinterpret_cast<CUgraph>(graph);
}
inline CUgraphNode handle_of(Node* node) {
  return reinterpret_cast<CUgraphNode>(node);
}

// The nodes that handles mean, all of one graph (null: the nodes of any). False: one is no such node.
bool find_nodes(const CUgraphNode* handles, size_t count, const Graph* graph, std::vector<Node*>& out);
// Hands a list out as the driver does: the count alone if `out` is null, else at most *count entries, the
// rest of them null.
CUresult list(const std::vector<Node*>& nodes, CUgraphNode* out, CUgraphEdgeData* edges, size_t* count);

// Other work of the same kind in the executable's copy of a node of the graph that it was made from.
CUresult replace_work(CUgraphExec exec, CUgraphNode node, Work work);

CUgraphNodeType type_of(const Work& work);
// In Graphviz's language.
std::string dot(Graph& graph);

}  // namespace spillway::simulator
