// A rule's kernel on each device, made where it is first wanted, and why a device has none.
//
// Thread-safety: one thread. Ownership: owns the kernels. Errors: lines for people.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/optimizer/device_key.h"
#include "trainer/runtime/device_code.h"

namespace spillway::trainer {

template <typename Kernel>
class KernelsByDevice {
 public:
  using Make = std::function<std::unique_ptr<Kernel>(at::Device, NoKernel* why_not)>;

  // For people: `what` it makes, and `instead` of it.
  KernelsByDevice(const char* what, Make make,
                  const char* instead = "by LibTorch's operators, which are slower")
      : what_(what), instead_(instead), make_(std::move(make)) {}

  // Null where there is none. Asks again where there was no memory for it.
  const Kernel* prepared(at::Device device) {
    Of& of = of_[device_key(device)];
    if (!of.made && of.may_come_later) find(device, &of);
    return of.made.get();
  }
  // REQUIRES: it was prepared.
  const Kernel* on(at::Device device) const { return of_.at(device_key(device)).made.get(); }
  const Kernel* on(const at::Tensor& there) const { return on(there.device()); }
  const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  struct Of {
    std::unique_ptr<Kernel> made;
    bool may_come_later = true;
  };

  void find(at::Device device, Of* of) {
    NoKernel why_not;
    of->made = make_(device, &why_not);
    of->may_come_later = why_not.may_come_later;
    if (of->made) return;
    std::string remark = std::string(what_) + " on " + device.str() + " " + instead_ + ": " + why_not.text;
    if (std::find(remarks_.begin(), remarks_.end(), remark) == remarks_.end())
      remarks_.push_back(std::move(remark));
  }

  const char *const what_, *const instead_;
  const Make make_;
  std::map<int, Of> of_;  // by device index
  std::vector<std::string> remarks_;
};

}  // namespace spillway::trainer
