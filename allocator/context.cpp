#include "allocator/context.h"

namespace spillway {

uint64_t Injection::set(uint64_t n, bool persistent) {
  const Locked guard(mutex_);
  const uint64_t failed = failed_;
  next_ = n;
  persistent_ = persistent;
  seen_ = failed_ = 0;
  return failed;
}

bool Injection::armed() {
  const Locked guard(mutex_);
  return next_ != 0;
}

bool Injection::fails(bool* persistent) {
  const Locked guard(mutex_);
  if (next_ == 0) return false;
  ++seen_;
  const bool fail = persistent_ ? seen_ >= next_ : seen_ == next_;
  *persistent = fail && persistent_;
  failed_ += fail ? 1 : 0;
  return fail;
}

}  // namespace spillway
