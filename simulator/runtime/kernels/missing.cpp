// Every function of the list as a weak definition that names itself and refuses, so that libraries which
// import it load; the definitions in the other files take their places at link time.
#include "simulator/runtime/kernels/missing.h"

extern "C" {
#define SPILLWAY_RUNTIME_FUNCTION(name)              \
  __attribute__((weak)) int name() {                 \
    return spillway::runtime::refuse_missing(#name); \
  }
#include "simulator/runtime/kernels/runtime_functions.inc"
#undef SPILLWAY_RUNTIME_FUNCTION
}
