#include "trainer/report/report.h"

#include <set>

namespace spillway::trainer {
namespace {

size_t devices_of(const Plan& plan) {
  std::set<uint32_t> devices{0};
  for (const auto& [layer, device] : plan.placement) devices.insert(device);
  return devices.size();
}

}  // namespace

Speed speed_of(const RunReport& report, const PlanUse& use) {
  Speed speed{.predicted = use.estimate.time.seconds(),
              .achieved = use.seconds.median(),
              .tokens_per_second = 0,
              .share = {},
              .utilization = {}};
  if (speed.achieved <= 0) return speed;
  speed.tokens_per_second = double(use.tokens) / double(use.steps) / speed.achieved;
  if (!report.rates_measured) return speed;
  speed.share = speed.predicted / speed.achieved;
  speed.utilization = report.history.operations() /
                      (speed.achieved * report.history.rates().flops * double(devices_of(use.plan)));
  return speed;
}

}  // namespace spillway::trainer
