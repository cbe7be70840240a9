// What a graph of operations asks for: whether cuDNN has engines for it on this card, what these are, how
// much scratch memory each needs, and which tensors a caller must bring.
//
// Thread-safety: none of a State is changed. Errors: cuDNN's statuses, the reason by `fail`.
#pragma once
#include "simulator/libraries/cudnn/graph/descriptor.h"

namespace spillway::cudnn {

// Engines by their global index. All kernels are one, which computes nothing: they differ in what they ask
// for and in what they say of themselves.
enum Engine : int64_t {
  kMainEngine = 0,      // the fastest; may need scratch memory; tensor cores
  kAtomicEngine = 1,    // backward of convolutions with atomic additions: not deterministic
  kImplicitEngine = 2,  // no scratch memory, no tensor cores: the fallback
  kEngineCount = 3,
};

// The engines for the graph, best first; a status other than success says that there is none, and why.
cudnnStatus_t engines_for(const State& graph, cudnnBackendHeurMode_t mode, std::vector<int64_t>* engines);

std::vector<int64_t> numerical_notes(const State& graph, int64_t engine);
int64_t workspace_bytes(const State& graph, int64_t engine);

// The ids of the tensors that the caller has to give an address of.
std::vector<int64_t> outside_tensors(const State& graph);

}  // namespace spillway::cudnn
