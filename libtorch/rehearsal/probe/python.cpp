#include "libtorch/rehearsal/probe/python.h"

#include <dlfcn.h>

#include <cstdio>
#include <exception>
#include <string>

#include "base/this_library.h"
#include "libtorch/rehearsal/settings.h"
#include "libtorch/rehearsal/state.h"

// The texts of libtorch/rehearsal/python/kinds.py and so on, put in by the build.
extern const char spillway_kinds_source[];
extern const char spillway_rehearsal_source[];
extern const char spillway_libraries_source[];
extern const char spillway_numbers_source[];

namespace spillway::rehearsal {
namespace {

template <typename Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

struct Python {
  int (*is_initialized)() = find<int()>("Py_IsInitialized");
  int (*is_finalizing)() = find<int()>("Py_IsFinalizing");  // from 3.13
  int (*is_finalizing_before_3_13)() = find<int()>("_Py_IsFinalizing");
  int (*add_pending_call)(int (*)(void*), void*) = find<int(int (*)(void*), void*)>("Py_AddPendingCall");
  int (*ensure)() = find<int()>("PyGILState_Ensure");
  void (*release)(int) = find<void(int)>("PyGILState_Release");
  int (*run)(const char*) = find<int(const char*)>("PyRun_SimpleString");

  bool runs() const {
    if (is_initialized == nullptr || ensure == nullptr || is_initialized() == 0) return false;
    const auto finalizing = is_finalizing != nullptr ? is_finalizing : is_finalizing_before_3_13;
    return finalizing == nullptr || finalizing() == 0;
  }
};

const Python& python() {
  static const Python found;
  return found;
}

int name_sites_now(void*) {
  name_sites();
  return 0;
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string path_of_this_library() {
  return std::string(library_path(reinterpret_cast<const void*>(&name_sites_now)));
}

struct PythonPart {
  const char* name;
  const char* source;
  const char* without;  // what the rehearsal lacks when it fails
};

std::string hex_of(const char* text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char* c = text; *c != '\0'; ++c) {
    hex += kDigits[static_cast<unsigned char>(*c) >> 4];
    hex += kDigits[static_cast<unsigned char>(*c) & 15];
  }
  return hex;
}

// Names stay out of the program's __main__.
bool run_part(const PythonPart& part) {
  const std::string name = part.name;
  const std::string start = "def _spillway_rehearsal_start():\n    names = {'__name__': 'spillway." + name +
                            "'}\n    exec(compile(bytes.fromhex('" + hex_of(part.source) +
                            "').decode(), 'spillway/" + name + ".py', 'exec'), names)\n    names['start'](" +
                            quoted(path_of_this_library()) + ", " + std::to_string(settings().steps) + ", " +
                            quoted(settings().values) +
                            ")\n_spillway_rehearsal_start()\ndel _spillway_rehearsal_start\n";
  return python().run(start.c_str()) == 0;
}

int run_python_parts(void*) {
  static constexpr PythonPart kParts[] = {
      // Before the hook that ends the program at a step.
      {"_kinds", spillway_kinds_source, "parameters and gradients are not told apart from the rest"},
      {"_rehearsal", spillway_rehearsal_source, "steps of optimizers are not seen"},
      {"_libraries", spillway_libraries_source,
       "generate() may not end, and Triton's kernels make every value unknown"},
      {"_numbers", spillway_numbers_source, "each number that is read counts as one that decides"},
  };
  for (const PythonPart& part : kParts)
    if (!run_part(part))
      std::fprintf(stderr, "spillway rehearsal: %s: the Python part failed\n", part.without);
  return 0;
}

// LibTorch asks the module torch whether it has `_inductor`, whose compiled code it could name the source of.
// To ask is to import it: seconds, in the middle of whatever the program does. In the middle of another
// import the two of them leave modules half made. So torch has a None there while stacks are named, unless
// the program has imported Inductor itself.
class WithoutInductor {
 public:
  WithoutInductor() { run("vars(sys.modules.get('torch', sys)).setdefault('_inductor', None)"); }
  WithoutInductor(const WithoutInductor&) = delete;
  WithoutInductor& operator=(const WithoutInductor&) = delete;
  ~WithoutInductor() {
    run("names = vars(sys.modules.get('torch', sys))\n"
        "if names['_inductor'] is None: del names['_inductor']");
  }

 private:
  // Names stay out of the program's __main__.
  static void run(const std::string& lines) {
    python().run(("exec(\"\"\"import sys\n" + lines + "\"\"\", {})").c_str());
  }
};

}  // namespace

void name_sites() {
  State& state = rehearsal::state();
  if (!python().runs()) return;
  const int gil = python().ensure();
  try {
    const WithoutInductor without;
    Sites::Unnamed those;
    {
      const Locked lock(state.mutex);
      those = state.sites.unnamed();
    }
    std::vector<std::vector<Frame>> frames = frames_of(those);
    const Locked lock(state.mutex);
    state.sites.name(those, std::move(frames));
    state.dirty = true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spillway rehearsal: stacks cannot be named: %s\n", error.what());
  }
  python().release(gil);
}

void ask_python_to_name_sites() {
  if (python().add_pending_call != nullptr && python().runs())
    python().add_pending_call(name_sites_now, nullptr);
}

void start_python_parts() {
  if (python().add_pending_call != nullptr && python().run != nullptr && python().runs())
    python().add_pending_call(run_python_parts, nullptr);
}

}  // namespace spillway::rehearsal
