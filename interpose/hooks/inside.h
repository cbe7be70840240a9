// Whether the thread is inside a hooked call: what is called from there, by the driver or by Spillway itself,
// is passed on untouched.
#pragma once

namespace spillway::interpose {

class Inside {
 public:
  Inside() : outermost_(!inside_) { inside_ = true; }
  ~Inside() {
    if (outermost_) inside_ = false;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  static bool now() { return inside_; }

 private:
  bool outermost_;
  [[gnu::tls_model("initial-exec")]] static inline thread_local bool inside_ = false;
};

}  // namespace spillway::interpose
