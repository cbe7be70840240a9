#include "strategies/sites/python_stack.h"

#include <dlfcn.h>

#include <array>
#include <atomic>

#include "strategies/sites/python_layout.h"

namespace spillway {
namespace {

struct Object;  // Python's

// https://docs.python.org/3/c-api/structures.html#c.PyMethodDef
struct Method {
  const char* name;
  Object* (*call)(Object*, Object*);
  int flags;
  const char* doc;
};
constexpr int kNoArguments = 4;  // METH_NOARGS
constexpr int kFileInput = 257;  // Py_file_input

template <typename Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

// Found in the process, which may be no Python program.
struct Python {
  int (*is_initialized)() = find<int()>("Py_IsInitialized");
  int (*add_pending_call)(int (*)(void*), void*) = find<int(int (*)(void*), void*)>("Py_AddPendingCall");
  void* (*this_thread)() = find<void*()>("PyGILState_GetThisThreadState");
  Object* (*frame)() = find<Object*()>("PyEval_GetFrame");
  Object* (*code_of)(Object*) = find<Object*(Object*)>("PyFrame_GetCode");
  Object* (*caller_of)(Object*) = find<Object*(Object*)>("PyFrame_GetBack");
  int (*instruction_of)(Object*) = find<int(Object*)>("PyFrame_GetLasti");  // from 3.11
  int (*line_of)(const void*, int) = find<int(const void*, int)>("PyCode_Addr2Line");
  Object* (*attribute)(Object*, const char*) = find<Object*(Object*, const char*)>("PyObject_GetAttrString");
  const char* (*text)(Object*) = find<const char*(Object*)>("PyUnicode_AsUTF8");
  int64_t (*length)(Object*) = find<int64_t(Object*)>("PyUnicode_GetLength");
  Object* (*new_function)(Method*, Object*,
                          Object*) = find<Object*(Method*, Object*, Object*)>("PyCFunction_NewEx");
  Object* (*new_dictionary)() = find<Object*()>("PyDict_New");
  int (*set_item)(Object*, const char*,
                  Object*) = find<int(Object*, const char*, Object*)>("PyDict_SetItemString");
  Object* (*builtins)() = find<Object*()>("PyEval_GetBuiltins");
  Object* (*run)(const char*, int, Object*,
                 Object*) = find<Object*(const char*, int, Object*, Object*)>("PyRun_String");
  void (*release)(Object*) = find<void(Object*)>("Py_DecRef");
  void (*forget_error)() = find<void()>("PyErr_Clear");
  Object* (*error)() = find<Object*()>("PyErr_Occurred");
  Object* answer = find<Object>("_Py_TrueStruct");
  void (*keep)(Object*) = find<void(Object*)>("Py_IncRef");
  const void* code_type = ::dlsym(RTLD_DEFAULT, "PyCode_Type");
  int (*error_matches)(Object*) = find<int(Object*)>("PyErr_ExceptionMatches");
  Object** exception = find<Object*>("PyExc_Exception");
  // Frames of a Python without a GIL stand still no less, but other threads may change what they show.
  bool has_gil = ::dlsym(RTLD_DEFAULT, "_Py_MergeZeroLocalRefcount") == nullptr;

  bool has_all() const {
    for (const auto* found :
         {reinterpret_cast<const void*>(is_initialized), reinterpret_cast<const void*>(add_pending_call),
          reinterpret_cast<const void*>(this_thread),    reinterpret_cast<const void*>(frame),
          reinterpret_cast<const void*>(code_of),        reinterpret_cast<const void*>(caller_of),
          reinterpret_cast<const void*>(instruction_of), reinterpret_cast<const void*>(line_of),
          reinterpret_cast<const void*>(attribute),      reinterpret_cast<const void*>(text),
          reinterpret_cast<const void*>(length),         reinterpret_cast<const void*>(new_function),
          reinterpret_cast<const void*>(new_dictionary), reinterpret_cast<const void*>(set_item),
          reinterpret_cast<const void*>(builtins),       reinterpret_cast<const void*>(run),
          reinterpret_cast<const void*>(release),        reinterpret_cast<const void*>(forget_error),
          reinterpret_cast<const void*>(error),          reinterpret_cast<const void*>(answer),
          reinterpret_cast<const void*>(keep),           code_type,
          reinterpret_cast<const void*>(error_matches),  reinterpret_cast<const void*>(exception)})
      if (found == nullptr) return false;
    return has_gil;
  }
};

const Python& python() {
  static const Python found;
  return found;
}

std::atomic<const PythonLayout*> layout{nullptr};

// Holds one reference.
class Reference {
 public:
  explicit Reference(Object* object) : object_(object) {}
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  ~Reference() {
    if (object_ != nullptr) python().release(object_);
  }
  Object* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  Object* object_;
};

// Python's own words on a frame. The code and its names live as long as the probe's functions.
ReportedFrame report_on(Object* frame) {
  ReportedFrame report;
  const Reference code(python().code_of(frame));
  const Reference name(python().attribute(code.get(), "co_name"));
  const Reference file(python().attribute(code.get(), "co_filename"));
  if (!name || !file) return report;
  report.object = frame;
  report.code = code.get();
  report.name = name.get();
  report.file = file.get();
  report.name_text = python().text(name.get());
  report.name_length = static_cast<uint64_t>(python().length(name.get()));
  report.instruction = static_cast<uint64_t>(python().instruction_of(frame));
  return report;
}

// The layout while it is being found; under the GIL.
struct Probe {
  PythonLayout layout;
  bool learned = false, verified = false;
  unsigned calls = 0;
};
Probe* probe = nullptr;

constexpr const char* kProgram =
    "def inner():\n"
    "  return look()\n"
    "def middle():\n"
    "  return inner()\n"
    "def outer():\n"
    "  return middle()\n"
    "middle(); outer(); outer()\n";

// In the third call the stack is known: it must read so.
bool reads_as_it_must(const PythonLayout& found, const void* thread) {
  struct Expected {
    const char* name;
    int line;
  };
  static constexpr Expected kExpected[] = {{"inner", 2}, {"middle", 4}, {"outer", 6}, {"<module>", 7}};
  std::array<PythonFrame, std::size(kExpected)> frames;
  if (found.walk(thread, frames) != frames.size()) return false;
  for (size_t i = 0; i < frames.size(); ++i)
    if (found.name_of(frames[i].code) != kExpected[i].name || found.file_of(frames[i].code) != "<string>" ||
        python().line_of(frames[i].code, static_cast<int>(frames[i].instruction)) != kExpected[i].line)
      return false;
  return true;
}

Object* look(Object*, Object*) {
  Object* frame = python().frame();
  const Reference caller(frame == nullptr ? nullptr : python().caller_of(frame));
  const void* thread = python().this_thread();
  if (caller && thread != nullptr && ++probe->calls <= 2)
    probe->learned =
        probe->layout.learn(thread, report_on(frame), report_on(caller.get()), python().code_type);
  else if (probe->learned)
    probe->verified = reads_as_it_must(probe->layout, thread);
  python().keep(python().answer);
  return python().answer;
}

constexpr unsigned kMostTries = 3;
std::atomic<unsigned> tries{0};
std::atomic<bool> asked{false};

// By Python's main thread, with the GIL. What a signal's handler raised meanwhile is the program's.
int run_probe(void*) {
  static Method method = {"look", &look, kNoArguments, nullptr};
  if (layout.load() != nullptr) return 0;
  probe = new Probe;
  const Reference globals(python().new_dictionary());
  const Reference function(python().new_function(&method, nullptr, nullptr));
  if (globals && function && python().set_item(globals.get(), "look", function.get()) == 0 &&
      python().set_item(globals.get(), "__builtins__", python().builtins()) == 0) {
    const Reference result(python().run(kProgram, kFileInput, globals.get(), globals.get()));
  }
  if (probe->verified) layout.store(&probe->layout, std::memory_order_release);  // stays for ever
  if (!probe->verified && tries.fetch_add(1) + 1 < kMostTries) asked.store(false);
  if (python().error() == nullptr) return 0;
  if (python().error_matches(*python().exception) == 0) return -1;
  python().forget_error();
  return 0;
}

}  // namespace

void prepare_python_stacks() {
  if (!python().has_all() || python().is_initialized() == 0 || asked.exchange(true)) return;
  if (python().add_pending_call(&run_probe, nullptr) != 0) asked.store(false);
}

bool python_stacks_ready() {
  return layout.load(std::memory_order_acquire) != nullptr;
}

size_t python_stack(std::span<PythonFrame> frames) {
  const PythonLayout* known = layout.load(std::memory_order_acquire);
  if (known == nullptr || python().is_initialized() == 0) return 0;
  const void* thread = python().this_thread();
  return thread == nullptr ? 0 : known->walk(thread, frames);
}

uint64_t signature_of(const PythonFrame& frame) {
  return layout.load(std::memory_order_acquire)->signature_of(frame.code);
}

std::string text_of(const PythonFrame& frame) {
  const PythonLayout& known = *layout.load(std::memory_order_acquire);
  const int line = python().line_of(frame.code, static_cast<int>(frame.instruction));
  return std::string(known.file_of(frame.code)) + ":" + std::to_string(line) + " " +
         std::string(known.name_of(frame.code));
}

}  // namespace spillway
