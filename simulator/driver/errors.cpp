#include "simulator/driver/errors.h"

#include "simulator/driver/functions.h"

namespace spillway::simulator {
namespace {

struct Error {
  CUresult code;
  const char* name;
  const char* text;
};
constexpr Error kErrors[] = {
#define SPILLWAY_ERROR(code, text) {code, #code, text},
    SPILLWAY_ERROR(CUDA_SUCCESS, "no error") SPILLWAY_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument") SPILLWAY_ERROR(
        CUDA_ERROR_OUT_OF_MEMORY,
        "out of memory") SPILLWAY_ERROR(CUDA_ERROR_NOT_INITIALIZED,
                                        "initialization error") SPILLWAY_ERROR(CUDA_ERROR_DEINITIALIZED,
                                                                               "driver shutting down")
        SPILLWAY_ERROR(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled") SPILLWAY_ERROR(
            CUDA_ERROR_PROFILER_NOT_INITIALIZED,
            "profiler not initialized") SPILLWAY_ERROR(CUDA_ERROR_PROFILER_ALREADY_STARTED,
                                                       "profiler already started")
            SPILLWAY_ERROR(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped") SPILLWAY_ERROR(
                CUDA_ERROR_STUB_LIBRARY, "stub library") SPILLWAY_ERROR(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,
                                                                        "call requires newer driver")
                SPILLWAY_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "device unavailable") SPILLWAY_ERROR(
                    CUDA_ERROR_NO_DEVICE,
                    "no CUDA-capable device is detected") SPILLWAY_ERROR(CUDA_ERROR_INVALID_DEVICE,
                                                                         "invalid device ordinal")
                    SPILLWAY_ERROR(CUDA_ERROR_DEVICE_NOT_LICENSED, "device not licensed") SPILLWAY_ERROR(
                        CUDA_ERROR_INVALID_IMAGE,
                        "device kernel image is invalid") SPILLWAY_ERROR(CUDA_ERROR_INVALID_CONTEXT,
                                                                         "invalid device context")
                        SPILLWAY_ERROR(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current") SPILLWAY_ERROR(
                            CUDA_ERROR_MAP_FAILED,
                            "mapping of buffer object failed") SPILLWAY_ERROR(CUDA_ERROR_UNMAP_FAILED,
                                                                              "unmapping of buffer object "
                                                                              "failed")
                            SPILLWAY_ERROR(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped") SPILLWAY_ERROR(
                                CUDA_ERROR_ALREADY_MAPPED,
                                "resource already mapped") SPILLWAY_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU,
                                                                          "no kernel image is available for "
                                                                          "execution on the device")
                                SPILLWAY_ERROR(CUDA_ERROR_ALREADY_ACQUIRED, "already acquired") SPILLWAY_ERROR(
                                    CUDA_ERROR_NOT_MAPPED,
                                    "resource not mapped") SPILLWAY_ERROR(CUDA_ERROR_NOT_MAPPED_AS_ARRAY,
                                                                          "not mapped as array")
                                    SPILLWAY_ERROR(
                                        CUDA_ERROR_NOT_MAPPED_AS_POINTER,
                                        "not mapped as pointer") SPILLWAY_ERROR(CUDA_ERROR_ECC_UNCORRECTABLE,
                                                                                "uncorrectable ECC error "
                                                                                "encountered")
                                        SPILLWAY_ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT,
                                                       "limit is not supported on this architecture") SPILLWAY_ERROR(CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
                                                                                                                     "context already in use")
                                            SPILLWAY_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
                                                           "peer access is not supported between these two "
                                                           "devices")
                                                SPILLWAY_ERROR(CUDA_ERROR_INVALID_PTX,
                                                               "a PTX JIT compilation failed") SPILLWAY_ERROR(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT,
                                                                                                              "invalid graphics context")
                                                    SPILLWAY_ERROR(CUDA_ERROR_NVLINK_UNCORRECTABLE,
                                                                   "nvlink uncorrectable") SPILLWAY_ERROR(CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
                                                                                                          "ji"
                                                                                                          "t "
                                                                                                          "co"
                                                                                                          "mp"
                                                                                                          "il"
                                                                                                          "er"
                                                                                                          " n"
                                                                                                          "ot"
                                                                                                          " f"
                                                                                                          "ou"
                                                                                                          "n"
                                                                                                          "d")
                                                        SPILLWAY_ERROR(
                                                            CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                                                            "unsupported ptx version")
                                                            SPILLWAY_ERROR(
                                                                CUDA_ERROR_JIT_COMPILATION_DISABLED,
                                                                "jit compilation disabled")
                                                                SPILLWAY_ERROR(
                                                                    CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
                                                                    "unsupported exec affinity")
                                                                    SPILLWAY_ERROR(
                                                                        CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
                                                                        "unsupported devside sync") SPILLWAY_ERROR(CUDA_ERROR_CONTAINED,
                                                                                                                   "contained")
                                                                        SPILLWAY_ERROR(
                                                                            CUDA_ERROR_INVALID_SOURCE,
                                                                            "invalid source") SPILLWAY_ERROR(CUDA_ERROR_FILE_NOT_FOUND,
                                                                                                             "file not found")
                                                                            SPILLWAY_ERROR(
                                                                                CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
                                                                                "shared object symbol not "
                                                                                "found")
                                                                                SPILLWAY_ERROR(
                                                                                    CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
                                                                                    "shared object init "
                                                                                    "failed") SPILLWAY_ERROR(CUDA_ERROR_OPERATING_SYSTEM,
                                                                                                             "OS call failed or operation not supported on this OS")
                                                                                    SPILLWAY_ERROR(
                                                                                        CUDA_ERROR_INVALID_HANDLE,
                                                                                        "invalid resource "
                                                                                        "handle") SPILLWAY_ERROR(CUDA_ERROR_ILLEGAL_STATE,
                                                                                                                 "the operation cannot be performed in the present state")
                                                                                        SPILLWAY_ERROR(
                                                                                            CUDA_ERROR_LOSSY_QUERY,
                                                                                            "lossy query") SPILLWAY_ERROR(CUDA_ERROR_NOT_FOUND,
                                                                                                                          "named symbol not found")
                                                                                            SPILLWAY_ERROR(
                                                                                                CUDA_ERROR_NOT_READY,
                                                                                                "device not "
                                                                                                "ready")
                                                                                                SPILLWAY_ERROR(
                                                                                                    CUDA_ERROR_ILLEGAL_ADDRESS,
                                                                                                    "an "
                                                                                                    "illegal "
                                                                                                    "memory "
                                                                                                    "access "
                                                                                                    "was "
                                                                                                    "encounte"
                                                                                                    "red") SPILLWAY_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                                                                                                                          "too many resources requested for launch")
                                                                                                    SPILLWAY_ERROR(
                                                                                                        CUDA_ERROR_LAUNCH_TIMEOUT,
                                                                                                        "laun"
                                                                                                        "ch "
                                                                                                        "time"
                                                                                                        "out") SPILLWAY_ERROR(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
                                                                                                                              "launch incompatible texturing")
                                                                                                        SPILLWAY_ERROR(
                                                                                                            CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
                                                                                                            "peer access is already enabled")
                                                                                                            SPILLWAY_ERROR(
                                                                                                                CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
                                                                                                                "peer access has not been enabled")
                                                                                                                SPILLWAY_ERROR(
                                                                                                                    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
                                                                                                                    "cannot set while device is active in this process")
                                                                                                                    SPILLWAY_ERROR(
                                                                                                                        CUDA_ERROR_CONTEXT_IS_DESTROYED,
                                                                                                                        "context is destroyed")
                                                                                                                        SPILLWAY_ERROR(
                                                                                                                            CUDA_ERROR_ASSERT,
                                                                                                                            "device-side assert triggered")
                                                                                                                            SPILLWAY_ERROR(
                                                                                                                                CUDA_ERROR_TOO_MANY_PEERS,
                                                                                                                                "too many peers") SPILLWAY_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                                                                                                                                                                 "part or all of the requested memory range is already mapped") SPILLWAY_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
                                                                                                                                                                                                                                               "pointer does not correspond to a registered memory region") SPILLWAY_ERROR(CUDA_ERROR_HARDWARE_STACK_ERROR,
                                                                                                                                                                                                                                                                                                                           "hardware stack error") SPILLWAY_ERROR(CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                                                                                                                                                                                                                                                                                                                                                  "illegal instruction") SPILLWAY_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS,
                                                                                                                                                                                                                                                                                                                                                                                                        "misaligned address")
                                                                                                                                SPILLWAY_ERROR(
                                                                                                                                    CUDA_ERROR_INVALID_ADDRESS_SPACE,
                                                                                                                                    "invalid address space") SPILLWAY_ERROR(CUDA_ERROR_INVALID_PC,
                                                                                                                                                                            "invalid pc")
                                                                                                                                    SPILLWAY_ERROR(
                                                                                                                                        CUDA_ERROR_LAUNCH_FAILED,
                                                                                                                                        "unspecified launch failure")
                                                                                                                                        SPILLWAY_ERROR(
                                                                                                                                            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                                                                                                                                            "cooperative launch too large") SPILLWAY_ERROR(CUDA_ERROR_TENSOR_MEMORY_LEAK,
                                                                                                                                                                                           "tensor memory leak") SPILLWAY_ERROR(CUDA_ERROR_NOT_PERMITTED,
                                                                                                                                                                                                                                "operation not permitted") SPILLWAY_ERROR(CUDA_ERROR_NOT_SUPPORTED,
                                                                                                                                                                                                                                                                          "operation not supported") SPILLWAY_ERROR(CUDA_ERROR_SYSTEM_NOT_READY,
                                                                                                                                                                                                                                                                                                                    "system not ready") SPILLWAY_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
                                                                                                                                                                                                                                                                                                                                                       "system driver mismatch") SPILLWAY_ERROR(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
                                                                                                                                                                                                                                                                                                                                                                                                "compat not supported on device") SPILLWAY_ERROR(CUDA_ERROR_MPS_CONNECTION_FAILED,
                                                                                                                                                                                                                                                                                                                                                                                                                                                 "mps connection failed") SPILLWAY_ERROR(CUDA_ERROR_MPS_RPC_FAILURE,
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                         "mps rpc failure") SPILLWAY_ERROR(CUDA_ERROR_MPS_SERVER_NOT_READY,
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                           "mps server not ready") SPILLWAY_ERROR(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                  "mps max clients reached")
                                                                                                                                            SPILLWAY_ERROR(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
                                                                                                                                                           "mps max connections reached") SPILLWAY_ERROR(CUDA_ERROR_MPS_CLIENT_TERMINATED,
                                                                                                                                                                                                         "mps client terminated") SPILLWAY_ERROR(CUDA_ERROR_CDP_NOT_SUPPORTED,
                                                                                                                                                                                                                                                 "cdp not supported") SPILLWAY_ERROR(CUDA_ERROR_CDP_VERSION_MISMATCH,
                                                                                                                                                                                                                                                                                     "cdp version mismatch") SPILLWAY_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                                                                                                                                                                                                                                                                                                                            "operation not permitted when stream is capturing") SPILLWAY_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                                                                                                                                                                                                                                                                                                                                                                                               "stream capture invalidated") SPILLWAY_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
                                                                                                                                                                                                                                                                                                                                                                                                                                            "stream capture merge")
                                                                                                                                                SPILLWAY_ERROR(
                                                                                                                                                    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                                                                                                                                                    "stream capture unmatched") SPILLWAY_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                                                                                                                                                                                               "stream capture unjoined") SPILLWAY_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                                                                                                                                                                                                                                         "stream capture isolation") SPILLWAY_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                                                                                                                                                                                                                                                                                    "stream capture implicit") SPILLWAY_ERROR(CUDA_ERROR_CAPTURED_EVENT,
                                                                                                                                                                                                                                                                                                                              "captured event") SPILLWAY_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
                                                                                                                                                                                                                                                                                                                                                               "stream capture wrong thread") SPILLWAY_ERROR(CUDA_ERROR_TIMEOUT,
                                                                                                                                                                                                                                                                                                                                                                                                             "wait operation timed out") SPILLWAY_ERROR(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                                                                                                                                                                                                                                                                                                                                                                                                                                                        "graph exec update failure")
                                                                                                                                                    SPILLWAY_ERROR(CUDA_ERROR_EXTERNAL_DEVICE,
                                                                                                                                                                   "external device") SPILLWAY_ERROR(CUDA_ERROR_INVALID_CLUSTER_SIZE,
                                                                                                                                                                                                     "invalid cluster size") SPILLWAY_ERROR(CUDA_ERROR_FUNCTION_NOT_LOADED,
                                                                                                                                                                                                                                            "function not loaded") SPILLWAY_ERROR(CUDA_ERROR_INVALID_RESOURCE_TYPE,
                                                                                                                                                                                                                                                                                  "invalid resource type")
                                                                                                                                                        SPILLWAY_ERROR(
                                                                                                                                                            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
                                                                                                                                                            "invalid resource configuration")
                                                                                                                                                            SPILLWAY_ERROR(
                                                                                                                                                                CUDA_ERROR_KEY_ROTATION,
                                                                                                                                                                "key rotation")
                                                                                                                                                                SPILLWAY_ERROR(
                                                                                                                                                                    CUDA_ERROR_UNKNOWN,
                                                                                                                                                                    "unknown error")
#undef SPILLWAY_ERROR
};

const Error* find(CUresult code) {
  for (const Error& error : kErrors)
    if (error.code == code) return &error;
  return nullptr;
}

}  // namespace

std::optional<CUresult> find_error(std::string_view name) {
  for (const Error& error : kErrors)
    if (name == error.name) return error.code;
  return std::nullopt;
}

}  // namespace spillway::simulator

using spillway::simulator::find;

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  const auto* found = find(error);
  *pStr = found ? found->name : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  const auto* found = find(error);
  *pStr = found ? found->text : nullptr;
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
