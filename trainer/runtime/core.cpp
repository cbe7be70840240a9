#include "trainer/runtime/core.h"

#include <dlfcn.h>

#include <filesystem>

#include "libtorch/plugin/shim.h"
#include "strategies/core/open.h"

namespace spillway::trainer {
namespace {

// That of an installation, or of a build folder.
std::filesystem::path library_folder() {
  std::error_code code;
  const auto executable = std::filesystem::read_symlink("/proc/self/exe", code);
  const std::filesystem::path lib = executable.parent_path().parent_path() / "lib";
  const bool installed = std::filesystem::exists(lib / "spillway/libspillway.so", code);
  return installed ? lib / "spillway" : lib;
}

template <typename Function>
bool find(void* library, const char* name, Function* out, std::string* error) {
  const bool found = find_in(library, name, out);
  if (!found) *error = std::string("libspillway.so lacks ") + name + ": it is older than this program";
  return found;
}

}  // namespace

Core& Core::instance() {
  static Core core;
  return core;
}

bool Core::resolve(void* library, std::string* error) {
  const bool found = find(library, "spillway_register", &register_strategy, error) &&
                     find(library, "spillway_unregister", &unregister_strategy, error) &&
                     find(library, "spillway_allow", &allow, error) &&
                     find(library, "spillway_limit", &limit, error) &&
                     find(library, "spillway_query_strategies", &query_strategies, error) &&
                     find(library, "spillway_last_error", &last_error, error) &&
                     find(library, "spillway_phase", &phase_, error) &&
                     find(library, "spillway_step_begin", &step_begin_, error) &&
                     find(library, "spillway_step_end", &step_end_, error) &&
                     find(library, "spillway_plan_changed", &plan_changed_, error) &&
                     find(library, "spillway_chosen_move", &chosen_move_, error) &&
                     find(library, "spillway_query", &query_, error) &&
                     find(library, "spillway_reset_peaks", &reset_peaks_, error) &&
                     find(library, "spillway_trace_path", &trace_path_, error);
  if (!found) return false;
  table_ = core_in(library);
  if (!table_) *error = "libspillway.so has another version than this program: build both together";
  return table_ != nullptr;
}

bool Core::install(const std::string& trace, std::string* error) {
  if (!trace.empty()) ::setenv("SPILLWAY_TRACE", trace.c_str(), 0);
  const std::filesystem::path folder = library_folder();
  const std::string shim = folder / libtorch::shim_name(libtorch_version()), core = folder / "libspillway.so";
  // The shim brings the core.
  void* core_library = libtorch::open_shim(shim, RTLD_GLOBAL) ? ::dlopen(core.c_str(), RTLD_NOW) : nullptr;
  if (!core_library) {
    *error = std::string(::dlerror()) +
             "\nSpillway's allocator was not found: build it, or set run.allocator = \"native\"";
    return false;
  }
  if (!instance().resolve(core_library, error)) return false;
  const std::string why_not = libtorch::install_shim(shim, RTLD_GLOBAL);
  if (!why_not.empty()) *error = "Spillway's allocator was not installed: " + why_not;
  return why_not.empty();
}

void Core::phase(const char* name) const {
  if (phase_) phase_(name);
}
void Core::step_begin(uint64_t step, uint64_t attempt, uint64_t plan_hash) const {
  if (step_begin_) step_begin_(step, attempt, plan_hash);
}
void Core::step_end(uint64_t step, uint64_t tokens) const {
  if (step_end_) step_end_(step, tokens);
}
void Core::plan_changed(uint64_t step, uint64_t from, uint64_t to, uint64_t incident,
                        const char* reason) const {
  if (plan_changed_) plan_changed_(step, from, to, incident, reason);
}
spillway_strategy_id Core::chosen_move(uint64_t* incident) const {
  return chosen_move_ ? chosen_move_(incident) : 0;
}
uint64_t Core::note_host_failure(int device, uint64_t bytes, bool is_done_again) const {
  if (!table_) return 0;
  spillway_driver_request request{};
  request.size = sizeof request;
  request.device = device, request.bytes = bytes;
  uint64_t incident = 0;
  table_->note_host_failure(&request, is_done_again, &incident);
  return incident;
}
bool Core::query(int device, spillway_memory* out) const {
  *out = {};
  out->size = sizeof *out;
  return query_ && query_(device, out) == SPILLWAY_OK;
}
void Core::reset_peaks(int device) const {
  if (reset_peaks_) reset_peaks_(device);
}
std::string Core::trace_path() const {
  return trace_path_ ? trace_path_() : "";
}

}  // namespace spillway::trainer
