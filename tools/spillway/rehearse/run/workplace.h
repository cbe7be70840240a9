// A new folder for the results of one run, removed at the end. Those of processes that were killed are
// removed by the next one: the owner holds a lock on its folder, which ends with it.
//
// Thread-safety: none. Ownership: the folder. Errors: an empty path.
#pragma once
#include <string>

namespace spillway::tools {

class Workplace {
 public:
  Workplace();
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;
};

}  // namespace spillway::tools
