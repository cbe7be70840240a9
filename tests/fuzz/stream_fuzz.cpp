// Streams of requests, as `spillway replay` takes them; a stream's last line is also read as settings of
// PyTorch's allocator.
#include "tests/fuzz/anonymous_file.h"
#include "tests/fuzz/promises/promise.h"
#include "tests/fuzz/promises/replay_promises.h"

namespace spillway::fuzz {
namespace {

using namespace tools;

std::string_view last_line(std::string_view text) {
  const size_t end = text.rfind('\n');
  return end == text.npos ? text : text.substr(end + 1);
}

void answers(const uint8_t* data, size_t size) {
  static const AnonymousFile file;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const TorchSettings settings = parse_torch_settings(last_line(text));
  // The settings are none of the stream.
  const size_t stream = settings.ignored.empty() && size > 0 ? size - last_line(text).size() : size;
  file.hold(data, stream);
  std::string error;
  const auto requests = read_stream(file.path(), &error);
  if (!requests) {
    promise_holds(error, file.path() + ":");
    if (!error.ends_with(": holds no request")) promise_holds(error, "is no line of a stream");
    return;
  }
  keeps_promises(*requests, settings);
  if (!begins_as_stream(std::string(text.substr(0, 8)))) return;
  const auto input = read_replay_input(file.path(), &error);
  promise(input && input->requests.blocks == requests->blocks, "a stream is known by its start");
}

}  // namespace
}  // namespace spillway::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spillway::fuzz::answers(data, size);
  return 0;
}
