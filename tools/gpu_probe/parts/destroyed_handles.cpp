// Point 8: what a driver says of a handle after its end. It may end the process, so each is asked in one of
// its own.
#include <cstdlib>
#include <string>

#include "tools/gpu_probe/children.h"
#include "tools/gpu_probe/driver.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

CUstream destroyed_stream() {
  device();
  CUstream stream = nullptr;
  cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuda().cuStreamDestroy(stream);
  return stream;
}

CUevent destroyed_event() {
  device();
  CUevent event = nullptr;
  cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  cuda().cuEventRecord(event, nullptr);
  cuda().cuEventDestroy(event);
  return event;
}

struct Question {
  const char* name;
  CUresult (*ask)();
};
constexpr Question kQuestions[] = {
    {"cuStreamIsCapturing of a destroyed stream",
     [] {
       CUstreamCaptureStatus status = {};
       return cuda().cuStreamIsCapturing(destroyed_stream(), &status);
     }},
    {"cuStreamQuery of a destroyed stream", [] { return cuda().cuStreamQuery(destroyed_stream()); }},
    {"cuStreamSynchronize of a destroyed stream",
     [] { return cuda().cuStreamSynchronize(destroyed_stream()); }},
    {"cuEventRecord on a destroyed stream",
     [] {
       CUevent event = nullptr;
       const CUstream stream = destroyed_stream();
       cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
       return cuda().cuEventRecord(event, stream);
     }},
    {"cuEventQuery of a destroyed event", [] { return cuda().cuEventQuery(destroyed_event()); }},
    {"cuMemUnmap of what is not mapped",
     [] {
       device();
       return cuda().cuMemUnmap(0x7f0000000000, 2 << 20);
     }},
};

}  // namespace

void ask_destroyed_handles() {
  for (const Question& question : kQuestions) {
    const std::string how = run_in_fork(6, [&] { say(question.name, question.ask()); });
    if (how != "done") say(question.name, "the process " + how);
  }
}

}  // namespace spillway::probe
