// Captures of a fuzzed program: one at a time, of one stream or two, and the graphs that came of them, which
// are replayed until they are dropped. What a captured kernel touches must stay mapped until then, and no
// capture may be broken: the simulated driver says so otherwise.
//
// Thread-safety: none. Ownership: the table, allocator and work must outlive it.
#pragma once
#include <algorithm>
#include <vector>

#include "allocator/tiling/pool.h"
#include "tests/allocator/queued_work.h"

namespace spillway::testing {

class FuzzGraphs {
 public:
  FuzzGraphs(const driver::Table& table, Allocator& allocator, QueuedWork& work)
      : table_(table), allocator_(allocator), work_(work) {
    EXPECT_EQ(table_.cuEventCreate(&join_event_, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  }
  ~FuzzGraphs() { table_.cuEventDestroy(join_event_); }
  FuzzGraphs(const FuzzGraphs&) = delete;
  FuzzGraphs& operator=(const FuzzGraphs&) = delete;

  bool capturing() const { return !captured_.empty(); }
  bool capturing(StreamId stream) const {
    return std::find(captured_.begin(), captured_.end(), stream) != captured_.end();
  }
  // Whether the legacy stream would join the capture, which breaks it.
  bool holds_legacy_stream() const {
    return std::any_of(captured_.begin(), captured_.end(), [&](StreamId stream) {
      unsigned flags = 0;
      return table_.cuStreamGetFlags(raw(stream), &flags) == CUDA_SUCCESS && flags == CU_STREAM_DEFAULT;
    });
  }
  uint64_t pool() const { return pool_; }  // of the capture that runs or ran last
  bool alive(uint64_t pool) const {
    return (capturing() && pool == pool_) ||
           std::any_of(graphs_.begin(), graphs_.end(),
                       [&](const Graph& graph) { return graph.pool == pool; });
  }

  void begin(StreamId stream, uint64_t mode) {
    if (raw(stream) == nullptr) return;  // the legacy stream is never captured
    if (graphs_.size() == kMostGraphs) drop(0);
    ASSERT_EQ(table_.cuStreamBeginCapture(raw(stream), static_cast<CUstreamCaptureMode>(mode)), CUDA_SUCCESS);
    captured_ = {stream};
    ++pool_;
    ranges_.clear();
  }

  void join(StreamId stream) {
    if (!capturing() || raw(stream) == nullptr || capturing(stream)) return;
    EXPECT_EQ(table_.cuEventRecordWithFlags(join_event_, raw(captured_[0]), 0), CUDA_SUCCESS);
    EXPECT_EQ(table_.cuStreamWaitEvent(raw(stream), join_event_, 0), CUDA_SUCCESS);
    captured_.push_back(stream);
    ++joined;
  }

  void launch(StreamId stream, const SpillwayRange& range) {
    EXPECT_EQ(table_.simulator->submit(raw(stream), "captured", &range, 1, 200000, nullptr, nullptr),
              CUDA_SUCCESS);
    ranges_.push_back(range);
  }

  void end() {
    const StreamId origin = captured_[0];
    for (const StreamId member : captured_) {
      if (member == origin) continue;
      EXPECT_EQ(table_.cuEventRecordWithFlags(join_event_, raw(member), 0), CUDA_SUCCESS);
      EXPECT_EQ(table_.cuStreamWaitEvent(raw(origin), join_event_, 0), CUDA_SUCCESS);
    }
    CUgraph graph = nullptr;
    EXPECT_EQ(table_.cuStreamEndCapture(raw(origin), &graph), CUDA_SUCCESS) << "the capture was broken";
    captured_.clear();
    Graph made{pool_, nullptr, std::move(ranges_)};
    if (graph != nullptr) {
      EXPECT_EQ(table_.cuGraphInstantiateWithFlags(&made.exec, graph, 0), CUDA_SUCCESS);
      table_.cuGraphDestroy(graph);
    }
    graphs_.push_back(std::move(made));
  }

  void replay(size_t which, StreamId stream) {
    if (graphs_.empty() || capturing(stream) || work_.full()) return;
    if (raw(stream) == nullptr && holds_legacy_stream()) return;
    const Graph& graph = graphs_[which % graphs_.size()];
    EXPECT_EQ(table_.cuGraphLaunch(graph.exec, raw(stream)), CUDA_SUCCESS);
    for (const SpillwayRange& range : graph.ranges)
      if (!work_.full()) work_.follow(stream, range.address, range.address + range.bytes);
    replayed += graph.ranges.empty() ? 0 : 1;
  }

  // The graph is gone: its pool's pages may serve others.
  void drop(size_t which) {
    if (graphs_.empty()) return;
    const auto graph = graphs_.begin() + static_cast<std::ptrdiff_t>(which % graphs_.size());
    if (graph->exec != nullptr) table_.cuGraphExecDestroy(graph->exec);
    EXPECT_EQ(allocator_.set_pool(kDevice, graph->pool, kPoolReleased), Status::kOk);
    graphs_.erase(graph);
  }

  void end_all() {
    if (capturing()) end();
    while (!graphs_.empty()) drop(0);
  }

  uint64_t joined = 0, replayed = 0;

 private:
  static constexpr size_t kMostGraphs = 3;
  static constexpr uint64_t kFirstPool = 1000;  // others are smaller
  struct Graph {
    uint64_t pool;
    CUgraphExec exec;
    std::vector<SpillwayRange> ranges;
  };

  static CUstream raw(StreamId stream) { return reinterpret_cast<CUstream>(stream); }

  const driver::Table& table_;
  Allocator& allocator_;
  QueuedWork& work_;
  std::vector<Graph> graphs_;
  std::vector<StreamId> captured_;  // the origin first
  std::vector<SpillwayRange> ranges_;
  uint64_t pool_ = kFirstPool;
  CUevent join_event_ = nullptr;
};

}  // namespace spillway::testing
