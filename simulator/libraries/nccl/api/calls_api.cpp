// Collectives, sends and receives, reductions, groups, registrations, errors.
#include <nccl.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "simulator/libraries/nccl/api/exports.h"
#include "simulator/libraries/nccl/api/group.h"
#include "simulator/libraries/nccl/api/handles.h"
#include "simulator/libraries/nccl/error.h"
#include "simulator/libraries/nccl/reduce.h"

namespace spillway::nccl {
namespace {

Reduction builtin(ncclRedOp_t operation) {
  switch (operation) {
    case ncclSum:
      return Reduction::kSum;
    case ncclProd:
      return Reduction::kProduct;
    case ncclMax:
      return Reduction::kMaximum;
    case ncclMin:
      return Reduction::kMinimum;
    case ncclAvg:
      return Reduction::kAverage;
    default:
      return Reduction::kNone;
  }
}

ncclResult_t wrong(Kind kind, const std::string& what) {
  return note(fail(ncclInvalidArgument, std::string(function_name(kind)) + ": " + what));
}

ncclResult_t submit_call(ncclComm_t handle, Call call, cudaStream_t stream) {
  const auto communicator = find(handle);
  const Signature& signature = call.signature;
  if (!communicator) return wrong(signature.kind, "no communicator, or one that was destroyed");
  if (element_bytes(signature.type) == 0)
    return wrong(signature.kind, "there is no data type " + std::to_string(signature.type));
  const int ranks = communicator->ranks(), rank = communicator->rank();
  const int named = call.pairwise() ? call.peer : signature.root;
  if (named != kNoRoot && (named < 0 || named >= ranks))
    return wrong(signature.kind, "rank " + std::to_string(named) + " of " + std::to_string(ranks));
  if (signature.count > (uint64_t{1} << 60) / kMostRanks / 8)
    return wrong(signature.kind, "the count is impossibly large");
  if ((!call.source && source_bytes(signature, rank, ranks) > 0) ||
      (!call.target && target_bytes(signature, rank, ranks) > 0))
    return wrong(signature.kind, "a buffer is NULL");
  return submit(communicator, call, stream);
}

ncclResult_t reduce(Kind kind, const void* source, void* target, size_t count, ncclDataType_t type,
                    ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream) {
  Call call;
  call.signature = {kind, builtin(operation), static_cast<uint32_t>(type), root, count};
  call.source = source;
  call.target = target;
  if (call.signature.reduction == Reduction::kNone) {
    const auto made = find_reduction(comm, operation);
    if (!made || made->type != call.signature.type)
      return wrong(kind, "reduction " + std::to_string(operation) + " is none of this communicator and type");
    call.signature.reduction = Reduction::kPreMulSum;
    call.scalar = made->scalar;
    call.device_scalar = made->device_scalar;
  }
  return submit_call(comm, call, stream);
}

ncclResult_t move(Kind kind, const void* source, void* target, size_t count, ncclDataType_t type, int root,
                  ncclComm_t comm, cudaStream_t stream) {
  Call call;
  call.signature = {kind, Reduction::kNone, static_cast<uint32_t>(type), root, count};
  call.source = source;
  call.target = target;
  return submit_call(comm, call, stream);
}

ncclResult_t message(Kind kind, const void* source, void* target, size_t count, ncclDataType_t type, int peer,
                     ncclComm_t comm, cudaStream_t stream) {
  if (peer < 0) return wrong(kind, "rank " + std::to_string(peer));
  Call call;
  call.signature = {kind, Reduction::kNone, static_cast<uint32_t>(type), kNoRoot, count};
  call.peer = peer;
  call.source = source;
  call.target = target;
  return submit_call(comm, call, stream);
}

}  // namespace
}  // namespace spillway::nccl

using namespace spillway::nccl;

ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return reduce(Kind::kAllReduce, sendbuff, recvbuff, count, datatype, op, kNoRoot, comm, stream);
}

ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  if (root < 0) return wrong(Kind::kReduce, "root " + std::to_string(root));
  return reduce(Kind::kReduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}

ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  return reduce(Kind::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, kNoRoot, comm, stream);
}

ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  if (root < 0) return wrong(Kind::kBroadcast, "root " + std::to_string(root));
  return move(Kind::kBroadcast, sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  return move(Kind::kAllGather, sendbuff, recvbuff, sendcount, datatype, kNoRoot, comm, stream);
}

ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                          ncclComm_t comm, cudaStream_t stream) {
  return move(Kind::kAlltoAll, sendbuff, recvbuff, count, datatype, kNoRoot, comm, stream);
}

ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  if (root < 0) return wrong(Kind::kGather, "root " + std::to_string(root));
  return move(Kind::kGather, sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         int root, ncclComm_t comm, cudaStream_t stream) {
  if (root < 0) return wrong(Kind::kScatter, "root " + std::to_string(root));
  return move(Kind::kScatter, sendbuff, recvbuff, count, datatype, root, comm, stream);
}

ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(Kind::kSend, sendbuff, nullptr, count, datatype, peer, comm, stream);
}

ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(Kind::kReceive, nullptr, recvbuff, count, datatype, peer, comm, stream);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const auto type = static_cast<uint32_t>(datatype);
  if (!op || !scalar || !find(comm) || element_bytes(type) == 0)
    return fail(ncclInvalidArgument,
                "ncclRedOpCreatePreMulSum: no communicator, scalar or place for the operation");
  MadeReduction made{.type = type};
  if (residence == ncclScalarDevice)
    made.device_scalar = scalar;
  else
    made.scalar = read_scalar(type, scalar);
  *op = add_reduction(comm, made);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  if (drop_reduction(comm, op)) return ncclSuccess;
  return fail(ncclInvalidArgument,
              "ncclRedOpDestroy: reduction " + std::to_string(op) + " was not made here");
}

ncclResult_t ncclGroupStart() {
  start_group();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  return end_group();
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
  if (!simInfo || simInfo->magic != 0x74685283)
    return fail(ncclInvalidArgument, "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
  return end_group(&simInfo->estimatedTime);
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  if (!find(comm) || !buff || size == 0 || !handle)
    return fail(ncclInvalidArgument, "ncclCommRegister: no communicator, buffer or place for the handle");
  *handle = add_registration(comm, buff);
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  if (!handle || drop_registration(comm, handle)) return ncclSuccess;
  return fail(ncclInvalidArgument, "ncclCommDeregister: this communicator has no such registration");
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int) {
  if (!find(comm) || !buff || size == 0 || !win)
    return fail(ncclInvalidArgument,
                "ncclCommWindowRegister: no communicator, buffer or place for the window");
  if (reinterpret_cast<uintptr_t>(buff) % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
    return fail(ncclInvalidArgument, "ncclCommWindowRegister: the buffer is not aligned to 4096 bytes");
  *win = static_cast<ncclWindow_t>(add_registration(comm, buff));
  return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return ncclCommDeregister(comm, win);
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr) {
  void* buffer = find_registered(comm, win);
  if (!buffer || !outUserPtr)
    return fail(ncclInvalidArgument, "ncclWinGetUserPtr: this communicator has no such window");
  *outUserPtr = buffer;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  return last_error();
}

// NCCL's log is not kept.
void ncclResetDebugInit() {}

#define SPILLWAY_NCCL_REDUCE \
  (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t)
#define SPILLWAY_NCCL_MOVE (const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)
#define SPILLWAY_NCCL_ROOTED (const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclAllReduce, SPILLWAY_NCCL_REDUCE)
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclReduceScatter, SPILLWAY_NCCL_REDUCE)
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclReduce,
                       (const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
                        cudaStream_t))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclBroadcast, SPILLWAY_NCCL_ROOTED)
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclGather, SPILLWAY_NCCL_ROOTED)
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclScatter, SPILLWAY_NCCL_ROOTED)
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclBcast,
                       (void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclAllGather, SPILLWAY_NCCL_MOVE)
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclAlltoAll, SPILLWAY_NCCL_MOVE)
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclSend,
                       (const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclRecv, (void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclRedOpCreatePreMulSum,
                       (ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t, ncclComm_t))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclGroupStart, ())
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclGroupEnd, ())
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommRegister, (const ncclComm_t, void*, size_t, void**))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommDeregister, (const ncclComm_t, void*))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommWindowRegister, (ncclComm_t, void*, size_t, ncclWindow_t*, int))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t, ncclWindow_t))
SPILLWAY_NCCL_PROFILED(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t, ncclWindow_t, void**))
SPILLWAY_NCCL_PROFILED(const char*, ncclGetErrorString, (ncclResult_t))
SPILLWAY_NCCL_PROFILED(const char*, ncclGetLastError, (ncclComm_t))
SPILLWAY_NCCL_PROFILED(void, ncclResetDebugInit, ())
