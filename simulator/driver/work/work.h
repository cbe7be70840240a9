// Pieces of work as values: what a stream runs at once, what a capture keeps as a node of its graph, and what
// the graph runs at each launch.
//
// Thread-safety: plain values; `run` and `enqueue` are used under the simulator's lock. Ownership: a value
// owns what it needs to run later; names are interned by the referee. Errors: CUresult, as the function
// returns it whose work it is. Units: bytes, virtual ns.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "simulator/driver/process/referee.h"

namespace spillway::simulator {

struct Graph;
struct GraphRange;
struct Stream;

// Bytes that work reads or writes.
struct Touched {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  bool writes = false;
  uint32_t own = 0, other = 0;  // of a factor of a matrix product, as SpillwayRange has them
};

// What a graph's launch calls for a kernel that somebody else computes.
struct Repetition {
  int (*work)(void*) = nullptr;
  void (*release)(void*) = nullptr;
  void* argument = nullptr;
};
class Repeated {
 public:
  explicit Repeated(const Repetition& repetition) : repetition_(repetition) {}
  ~Repeated() { repetition_.release(repetition_.argument); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  bool run() const { return repetition_.work(repetition_.argument) == 0; }

 private:
  const Repetition repetition_;
};

// What a kernel touches is known where it was declared: binaries do nothing but take their time.
struct KernelWork {
  const char* name = nullptr;
  std::vector<Touched> ranges;
  uint64_t duration_ns = 0;
  CUDA_KERNEL_NODE_PARAMS launch = {};  // its shape, where it came as a function; the arguments are not kept
  bool confined = false;                // to its ranges; any other may have written anything
  std::shared_ptr<const Repeated> repeated = nullptr;
};

// `rows` pieces of `width` bytes, `pitch` apart on each side. A plain copy is one row.
struct Shape {
  uint64_t width = 0, rows = 1, source_pitch = 0, target_pitch = 0;
  uint64_t bytes() const { return width * rows; }
};
struct CopyWork {
  CUdeviceptr target = 0, source = 0;
  Shape shape;
  const char* name = nullptr;
};

struct FillWork {
  CUdeviceptr address = 0;
  uint64_t pitch = 0;
  uint32_t value = 0, value_bytes = 1;
  uint64_t width = 0, rows = 1;  // width in values
};

// Takes its place here; whoever runs it calls the function, without the lock.
struct HostWork {
  CUhostFn function = nullptr;
  void* data = nullptr;
};

// Events by id, as they may be destroyed before the work runs.
struct RecordWork {
  uint64_t event = 0;
};
struct WaitWork {
  uint64_t event = 0;
};

struct EmptyWork {};

struct ChildWork {
  std::shared_ptr<Graph> graph;
};

struct AllocateWork {
  std::shared_ptr<GraphRange> range;
};
struct FreeWork {
  CUdeviceptr address = 0;
};

using Work = std::variant<KernelWork, CopyWork, FillWork, HostWork, RecordWork, WaitWork, EmptyWork,
                          ChildWork, AllocateWork, FreeWork>;

// Checks what the work touches and puts it on the stream now. A child graph is not for this: its parent runs
// its parts.
CUresult run(const KernelWork& work, Stream& stream, Site site);
CUresult run(const CopyWork& work, Stream& stream, Site site);
CUresult run(const FillWork& work, Stream& stream, Site site);
CUresult run(const Work& work, Stream& stream, Site site);

// When the host waits, before the work, for what the stream depends on from outside: never, in computing mode
// as the work's bytes are touched when it is submitted, or always. A capturing stream is never waited for.
enum class Settled { kNo, kToTouch, kAlways };

// The stream that a handle means, for work on it: using the default stream while it would wait for a capture
// is an error.
CUresult find_work_stream(CUstream handle, Stream** out, Settled settled = Settled::kNo);

// Runs the work, or adds it to the graph that the stream captures. `captured` says which, where asked.
CUresult enqueue(Stream& stream, Work work, Site site, bool* captured = nullptr);

}  // namespace spillway::simulator
