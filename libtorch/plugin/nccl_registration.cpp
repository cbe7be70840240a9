#include "libtorch/plugin/nccl_registration.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace spillway::libtorch {
namespace {

// The fix was merged in August 2026. That 2.31 is the first release with it is assumed.
constexpr int kFixedIn = 23100;

// 0: NCCL is not loaded, so that nothing is known.
int nccl_version() {
  void* library = dlopen("libnccl.so.2", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return 0;
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  int version = 0;
  if (get == nullptr || get(&version) != 0) version = 0;
  dlclose(library);
  return version;
}

bool is_one_of_several() {
  for (const char* name : {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"})
    if (const char* value = std::getenv(name); value != nullptr && std::atoi(value) > 1) return true;
  return false;
}

bool is_first_here() {
  for (const char* name : {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"})
    if (const char* value = std::getenv(name); value != nullptr) return std::atoi(value) == 0;
  return true;
}

}  // namespace

void leave_out_graph_registration() {
  if (std::getenv("NCCL_GRAPH_REGISTER") != nullptr || nccl_version() >= kFixedIn) return;
  setenv("NCCL_GRAPH_REGISTER", "0", 1);
  if (is_one_of_several() && is_first_here())
    std::fprintf(stderr,
                 "spillway: NCCL_GRAPH_REGISTER=0 is set: NCCL before 2.31 computes wrong addresses when it "
                 "registers memory of several handles in a captured graph (NVIDIA/nccl#2362)\n");
}

}  // namespace spillway::libtorch
