// The one Spillway core of the process, if there is one: found by path, so that the same binary runs without
// it.
//
// Thread-safety: load once, then immutable. Every call does nothing when there is no core. Errors: texts.
#pragma once
#include <string>

#include "strategies/core/core.h"

namespace spillway::trainer {

class Core {
 public:
  // Loads the shim for this LibTorch from lib/spillway/ or lib/ beside the executable's folder, which brings
  // the core, and makes it LibTorch's allocator. Call before the first CUDA tensor. `trace`: the file, unless
  // SPILLWAY_TRACE names one.
  static bool install(const std::string& trace, std::string* error);
  static const Core& get() { return instance(); }

  bool loaded() const { return table_ != nullptr; }
  const spillway_core_table* table() const { return table_; }

  void phase(const char* name) const;
  void step_begin(uint64_t step, uint64_t attempt, uint64_t plan_hash) const;
  void step_end(uint64_t step, uint64_t tokens) const;
  void plan_changed(uint64_t step, uint64_t from, uint64_t to, uint64_t incident, const char* reason) const;
  spillway_strategy_id chosen_move(uint64_t* incident) const;
  // The failure's number in the trace; 0: there is no core, or it refused.
  uint64_t note_host_failure(int device, uint64_t bytes, bool is_done_again) const;
  bool query(int device, spillway_memory* out) const;
  void reset_peaks(int device) const;
  std::string trace_path() const;

  decltype(&spillway_register) register_strategy = nullptr;
  decltype(&spillway_unregister) unregister_strategy = nullptr;
  decltype(&spillway_allow) allow = nullptr;
  decltype(&spillway_query_strategies) query_strategies = nullptr;
  decltype(&spillway_limit) limit = nullptr;
  decltype(&spillway_last_error) last_error = nullptr;

 private:
  static Core& instance();
  bool resolve(void* library, std::string* error);

  const spillway_core_table* table_ = nullptr;
  decltype(&spillway_phase) phase_ = nullptr;
  decltype(&spillway_step_begin) step_begin_ = nullptr;
  decltype(&spillway_step_end) step_end_ = nullptr;
  decltype(&spillway_plan_changed) plan_changed_ = nullptr;
  decltype(&spillway_chosen_move) chosen_move_ = nullptr;
  decltype(&spillway_query) query_ = nullptr;
  decltype(&spillway_reset_peaks) reset_peaks_ = nullptr;
  decltype(&spillway_trace_path) trace_path_ = nullptr;
};

}  // namespace spillway::trainer
