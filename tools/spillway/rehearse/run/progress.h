// One line on standard error that shows how far the program has come, from the results that it rewrites.
//
// Thread-safety: none. Errors: a result that cannot be read now is passed over.
#pragma once
#include <chrono>
#include <string>

namespace spillway::tools {

class Progress {
 public:
  Progress(std::string folder, bool shown) : folder_(std::move(folder)), shown_(shown) {}
  void show();
  void clear();

 private:
  std::string folder_;
  bool shown_, drawn_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace spillway::tools
