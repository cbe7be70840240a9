#include "simulator/libraries/cudnn/handle.h"

namespace spillway::cudnn {
namespace {

thread_local std::string last_reason;

}  // namespace

cudnnStatus_t fail(cudnnStatus_t status, std::string reason) {
  last_reason = std::move(reason);
  return status;
}

const std::string& last_error() {
  return last_reason;
}

}  // namespace spillway::cudnn
