// PyTorch warns at the first kernel that is registered over another. While this lives, it does not: where a
// kernel takes the place of PyTorch's own, that is what is meant.
//
// Thread-safety: its own thread's warnings. Ownership: the handler before it is put back. Errors: none.
#pragma once
#include <c10/util/Exception.h>

#include <string>

namespace spillway {

class WithoutOverrideWarning final : public c10::WarningHandler {
 public:
  WithoutOverrideWarning() : outer_(c10::WarningUtils::get_warning_handler()), guard_(this) {}
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("Overriding a previously registered kernel") == std::string::npos)
      outer_->process(warning);
  }

 private:
  c10::WarningHandler* outer_;
  c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace spillway
