// gpu_probe: what a CUDA driver and its machine do, asked by trial. Prints one JSON object a line (output.h).
//
//   gpu_probe [--list] [--device N] [--seconds S] [PART...]
//
// Each part runs in a process of its own, which ends after the part's own time; after S seconds in all no
// other begins. Exit code: 0 all parts ended by themselves, 1 one did not, 2 wrong arguments, 3 no driver or
// no device.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tools/gpu_probe/children.h"
#include "tools/gpu_probe/driver.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

constexpr Part kParts[] = {
    {"facts", "the driver, the card, the machine", 20, ask_facts},
    {"host locations", "which host memory can be mapped, and who may touch it", 40, ask_host_locations},
    {"page costs", "creating, mapping, allowing, unmapping, releasing", 90, ask_page_costs},
    {"beside a kernel", "which calls wait for an unrelated kernel", 60, ask_beside_a_kernel},
    {"host making", "GB/s at which pinned host memory is made", 60, ask_host_making},
    {"copies", "GB/s both ways", 60, ask_copies},
    {"exchange", "a block to the host and back at its address", 60, ask_exchange},
    {"straddling", "copies and memsets over device and host pages", 40, ask_straddling},
    {"kernels on host pages", "values, atomics and GB/s", 60, ask_kernels_on_host_pages},
    {"mapping rules", "parts of handles, parts of ranges", 20, ask_mapping_rules},
    {"sharing", "descriptors and legacy handles", 30, ask_sharing},
    {"addresses", "cuGetProcAddress beside the library's symbols", 20, ask_addresses},
    {"free memory", "the cost of cuMemGetInfo", 30, ask_free_memory},
    {"capture", "calls inside a global-mode capture", 30, ask_capture},
    {"destroyed handles", "a stream or event after its end", 40, ask_destroyed_handles},
    {"queue", "launches of five seconds", 40, ask_queue},
    {"full card", "what works when nothing is left", 60, ask_full_card},
};

struct Arguments {
  bool list = false;
  int device = 0;
  double seconds = 1e9;
  std::string child;
  std::vector<std::string> parts;
};

const Part* find(const std::string& name) {
  for (const Part& part : kParts)
    if (name == part.name) return &part;
  return nullptr;
}

int refuse(const std::string& text) {
  std::fprintf(stderr, "gpu_probe: %s; --list shows the parts\n", text.c_str());
  return 2;
}

int read(int count, char** words, Arguments& out) {
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const char* next = i + 1 < count ? words[i + 1] : nullptr;
    if (word == "--list") {
      out.list = true;
    } else if (word == "--device" || word == "--seconds" || word == "--child") {
      if (!next) return refuse(word + " needs a value");
      if (word == "--device")
        out.device = std::atoi(next);
      else if (word == "--seconds")
        out.seconds = std::atof(next);
      else
        out.child = next;
      ++i;
    } else if (word.rfind("--", 0) == 0 || !find(word)) {
      return refuse("no part '" + word + "'");
    } else {
      out.parts.push_back(word);
    }
  }
  if (!out.child.empty() && !find(out.child)) return refuse("no part '" + out.child + "'");
  return 0;
}

int run_child(const Arguments& arguments) {
  choose_device(arguments.device);
  choose_part(arguments.child.c_str());
  find(arguments.child)->run();
  return 0;
}

int run_parts(const Arguments& arguments) {
  const double start = now_us();
  bool failed = false;
  for (const Part& part : kParts) {
    bool wanted = arguments.parts.empty();
    for (const std::string& name : arguments.parts) wanted |= name == part.name;
    const double left = arguments.seconds - (now_us() - start) / 1e6;
    if (!wanted || left <= 0) continue;
    choose_part(part.name);
    const double begin = now_us();
    const std::string how = run_again(part.name, arguments.device, std::min(left, part.seconds));
    say("end", how, "", {{"seconds", (now_us() - begin) / 1e6}});
    if (how == "exit code 3") return 3;
    failed |= how != "done";
  }
  return failed ? 1 : 0;
}

}  // namespace

std::span<const Part> parts() {
  return kParts;
}

int run(int count, char** words) {
  // A part that crashes would otherwise write all that the driver has mapped.
  constexpr rlimit kNoCoreFile = {};
  setrlimit(RLIMIT_CORE, &kNoCoreFile);
  Arguments arguments;
  if (const int wrong = read(count, words, arguments); wrong != 0) return wrong;
  if (arguments.list) {
    for (const Part& part : kParts) std::printf("%-24s%4.0f s  %s\n", part.name, part.seconds, part.asks);
    return 0;
  }
  return arguments.child.empty() ? run_parts(arguments) : run_child(arguments);
}

}  // namespace spillway::probe

int main(int count, char** words) {
  return spillway::probe::run(count, words);
}
