// Captures and graphs of the simulated driver, for tests in a process of their own.
#pragma once
#include "tests/simulator/driver/support.h"

namespace spillway::test {

inline constexpr uint64_t kLong = 1'000'000;  // ns of work

class Graphs {
 public:
  explicit Graphs(const driver::Table& made) : table(made) {}
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) const {
    CUstream made = nullptr;
    EXPECT_EQ(table.cuStreamCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }
  CUevent event() const {
    CUevent made = nullptr;
    EXPECT_EQ(table.cuEventCreate(&made, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    return made;
  }
  CUdeviceptr memory(size_t bytes = kPage) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(table.cuMemAlloc(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  CUresult work(CUstream on, std::vector<SpillwayRange> ranges = {}, uint64_t ns = kLong) const {
    return table.simulator->submit(on, "work", ranges.data(), ranges.size(), ns, nullptr, nullptr);
  }
  void begin(CUstream on, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) const {
    EXPECT_EQ(table.cuStreamBeginCapture(on, mode), CUDA_SUCCESS);
  }
  CUgraph end(CUstream on) const {
    CUgraph graph = nullptr;
    EXPECT_EQ(table.cuStreamEndCapture(on, &graph), CUDA_SUCCESS);
    return graph;
  }
  CUresult end_result(CUstream on) const {
    CUgraph graph = nullptr;
    const CUresult result = table.cuStreamEndCapture(on, &graph);
    EXPECT_EQ(graph != nullptr, result == CUDA_SUCCESS);
    return result;
  }
  CUstreamCaptureStatus status(CUstream on) const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(table.cuStreamIsCapturing(on, &status), CUDA_SUCCESS);
    return status;
  }
  CUgraphExec executable(CUgraph graph, unsigned long long flags = 0) const {
    CUgraphExec made = nullptr;
    EXPECT_EQ(table.cuGraphInstantiateWithFlags(&made, graph, flags), CUDA_SUCCESS);
    return made;
  }
  CUgraph empty() const {
    CUgraph graph = nullptr;
    EXPECT_EQ(table.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    return graph;
  }
  size_t nodes(CUgraph graph) const {
    size_t count = 0;
    EXPECT_EQ(table.cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    return count;
  }
  size_t edges(CUgraph graph) const {
    size_t count = 0;
    EXPECT_EQ(table.cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), CUDA_SUCCESS);
    return count;
  }
  CUgraphNodeType type(CUgraph graph, size_t index) const {
    std::vector<CUgraphNode> found(nodes(graph));
    size_t count = found.size();
    EXPECT_EQ(table.cuGraphGetNodes(graph, found.data(), &count), CUDA_SUCCESS);
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    EXPECT_EQ(table.cuGraphNodeGetType(found.at(index), &type), CUDA_SUCCESS);
    return type;
  }

  const driver::Table& table;
};

inline void with_graphs(const std::function<void(const Graphs&)>& body, const Settings& settings = {}) {
  in_process(settings, [&] { body(Graphs(started_driver())); });
}

}  // namespace spillway::test
