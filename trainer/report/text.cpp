#include <algorithm>

#include "base/printed.h"
#include "trainer/report/report.h"

namespace spillway::trainer {
namespace {

constexpr size_t kMostRows = 24, kMostColumns = 4, kMostPlansTold = 8, kMostMovesTold = 40;

double mebibytes(uint64_t bytes) {
  return double(bytes) / 0x1p20;
}

// Spillway's own line of what the allocator said, if there is one.
std::string short_reason(const std::string& reason) {
  const size_t ours = reason.find("Spillway: ");
  const size_t begin = ours == std::string::npos ? 0 : ours;
  return reason.substr(begin, reason.find('\n', begin) - begin);
}

class Page {
 public:
  explicit Page(const RunReport& report) : report_(report), history_(report.history) {}

  std::string write() {
    text_ = "spillway-train: " + report_.verdict + "\nmodel  " + report_.model + "\n";
    const auto& points = history_.points();
    if (points.empty())
      text_ += printed("No step was done.\n");
    else
      text_ += printed("steps  %llu to %llu\n", (unsigned long long)points.front().first,
                       (unsigned long long)points.back().last);
    rank();
    memory();
    if (!points.empty()) course();
    speed();
    moves();
    evaluations();
    return std::move(text_);
  }

 private:
  void rank() {
    if (!report_.rank) return;
    const RankPart& rank = *report_.rank;
    text_ +=
        printed("rank   %u of %u, waited %.1f s for the others\n", rank.rank, rank.size, rank.waited_seconds);
    if (!rank.incident) return;
    text_ += "incident " + rank.incident->number + "\n";
    text_ += "cause  " + rank.incident->cause + "\n";
  }

  void memory() {
    text_ += printed(
        "\nMemory of a step in MiB, by plan: what the estimate counts, and the most that was measured\n");
    const auto& plans = history_.plans();
    for (size_t i = 0; i < std::min(plans.size(), kMostPlansTold); ++i) {
      text_ += printed("plan %zu, %llu steps: ", i + 1, (unsigned long long)plans[i].steps);
      text_ += to_string(plans[i].plan) + "\n" + plans[i].estimate.to_text();
      measured(plans[i].devices);
    }
    if (plans.size() > kMostPlansTold)
      text_ += printed("%zu more plans stand in report.json\n", plans.size() - kMostPlansTold);
  }

  void measured(const std::vector<DevicePeaks>& devices) {
    for (size_t i = 0; i < devices.size(); ++i)
      text_ +=
          printed("  device %-3zu %-28s %10.1f MiB in use, %.1f reserved, of %.1f\n", i, "measured",
                  mebibytes(devices[i].live), mebibytes(devices[i].reserved), mebibytes(devices[i].limit));
  }

  // Rows of many points each; the memory is that of the device that has most.
  void course() {
    const auto& points = history_.points();
    const bool measured = !points.back().devices.empty();
    text_ += printed("\n%15s %5s %12s %10s %12s%s\n", "steps", "plan", "loss", "s/step", "MiB estimated",
                     measured ? "     in use   reserved" : "");
    const size_t a_row = (points.size() + kMostRows - 1) / kMostRows;
    for (size_t i = 0; i < points.size(); i += a_row) row(i, std::min(points.size(), i + a_row), measured);
  }

  void row(size_t begin, size_t end, bool measured) {
    double loss = 0, seconds = 0, steps = 0;
    uint64_t live = 0, reserved = 0, estimated = 0;
    size_t plan = 0;
    for (size_t i = begin; i < end; ++i) {
      const StepPoint& point = history_.points()[i];
      const double count = double(point.last - point.first + 1);
      loss += point.loss * count, seconds += point.seconds, steps += count;
      for (const DevicePeaks& device : point.devices)
        live = std::max(live, device.live), reserved = std::max(reserved, device.reserved);
      const uint64_t peak = std::ranges::max(history_.plans()[point.plan].estimate.device_peak_bytes);
      if (peak >= estimated) estimated = peak, plan = point.plan;
    }
    const StepPoint &first = history_.points()[begin], &last = history_.points()[end - 1];
    text_ +=
        printed("%7llu-%-7llu %5zu %12.4f %10.4f %13.1f", (unsigned long long)first.first,
                (unsigned long long)last.last, plan + 1, loss / steps, seconds / steps, mebibytes(estimated));
    if (measured) text_ += printed(" %10.1f %10.1f", mebibytes(live), mebibytes(reserved));
    text_ += printed("\n");
  }

  // The plans of most steps.
  std::vector<size_t> columns() const {
    std::vector<size_t> order(history_.plans().size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return history_.plans()[i].steps; });
    order.resize(std::min(order.size(), kMostColumns));
    std::ranges::sort(order);
    return order;
  }

  template <typename Cell>
  void line(const char* name, const std::vector<size_t>& plans, const Cell& cell) {
    text_ += printed("  %-34s", name);
    for (const size_t i : plans) text_ += printed(" %14s", cell(history_.plans()[i]).c_str());
    text_ += printed("\n");
  }

  static std::string number(const char* format, double value) {
    char text[40];
    std::snprintf(text, sizeof text, format, value);
    return text;
  }

  void speed() {
    const std::vector<size_t> plans = columns();
    const std::pair<const char*, double StepTime::*> parts[] = {
        {"arithmetic", &StepTime::compute},
        {"device memory", &StepTime::memory},
        {"launches", &StepTime::launches},
        {"optimizer", &StepTime::optimizer},
        {"copies to and from the host", &StepTime::host_link},
        {"copies between devices", &StepTime::peer_link},
        {"exchange of the ranks", &StepTime::ranks},
        {"copies beside the passes", &StepTime::streamed},
        {"reads and writes of the disk", &StepTime::nvme}};
    text_ += printed("\nTime of a step in seconds%23s", "");
    for (const size_t i : plans) text_ += printed(" %14s", ("plan " + std::to_string(i + 1)).c_str());
    text_ += printed("\n");
    const bool alone = std::ranges::all_of(
        plans, [&](size_t i) { return report_.history.plans()[i].estimate.time.ranks == 0; });
    for (const auto& [name, part] : parts)
      if (part != &StepTime::ranks || !alone)
        line(name, plans,
             [part = part](const PlanUse& use) { return number("%.6f", use.estimate.time.*part); });
    line("predicted, without a failure", plans,
         [](const PlanUse& use) { return number("%.6f", use.estimate.time.seconds()); });
    line("predicted to be limited by", plans,
         [](const PlanUse& use) { return std::string(use.estimate.time.limit()); });
    achieved(plans);
    rates();
  }

  void achieved(const std::vector<size_t>& plans) {
    const auto percent = [](const std::optional<double>& share) {
      return share ? number("%.1f%%", 100 * *share) : "-";
    };
    const auto where = [](const Speed& speed, const char* format, double value) {
      return speed.achieved > 0 ? number(format, value) : "-";
    };
    line("achieved, the median", plans, [&](const PlanUse& use) {
      const Speed speed = speed_of(report_, use);
      return where(speed, "%.6f", speed.achieved);
    });
    line("tokens a second", plans, [&](const PlanUse& use) {
      const Speed speed = speed_of(report_, use);
      return where(speed, "%.0f", speed.tokens_per_second);
    });
    if (!report_.rates_measured) return;
    line("share of the predicted speed", plans,
         [&](const PlanUse& use) { return percent(speed_of(report_, use).share); });
    line("model's arithmetic, of a product's", plans,
         [&](const PlanUse& use) { return percent(speed_of(report_, use).utilization); });
  }

  void rates() {
    const Machine& rates = history_.rates();
    text_ += printed(
        "Rates: %.1f TFLOPS, device memory %.0f GB/s, host %.1f GB/s, between devices %.1f GB/s, launch %.1f "
        "us\n",
        rates.flops / 1e12, rates.memory_bytes_per_second / 1e9, rates.host_bytes_per_second / 1e9,
        rates.peer_bytes_per_second / 1e9, rates.launch_seconds * 1e6);
    if (report_.rates_measured) {
      text_ += printed("The first three are as measured at the start; the others are assumed.\n");
    } else {
      text_ +=
          printed("These are assumed, of no card in particular: they were %s.\n", report_.rates_from.c_str());
      text_ += printed("So predicted and achieved times must not be compared.\n");
    }
  }

  void moves() {
    text_ += printed("\nChanges of plan: %llu\n", (unsigned long long)history_.all_moves());
    const auto& moves = history_.moves();
    for (size_t i = 0; i < std::min(moves.size(), kMostMovesTold); ++i) {
      const PlanMove& move = moves[i];
      text_ += printed("  step %llu: %s", (unsigned long long)move.step, move.action.c_str());
      if (!move.phase.empty())
        text_ += printed(", out of memory in %s (incident %llu)", move.phase.c_str(),
                         (unsigned long long)move.incident);
      if (move.asked && !move.asked->is_this_rank) text_ += printed(" of rank %u", move.asked->rank);
      text_ += ", now " + to_string(move.to) + "\n";
      if (move.asked) asked(*move.asked);
      if (!move.reason.empty()) text_ += "    " + short_reason(move.reason) + "\n";
    }
    if (history_.all_moves() > kMostMovesTold)
      text_ += printed("  and %llu more\n", (unsigned long long)(history_.all_moves() - kMostMovesTold));
  }

  void asked(const AskedUndo& asked) {
    if (!asked.why_all_end.empty()) {
      text_ += "    all ranks undid the step and ended: " + asked.why_all_end;
      text_ += printed("; rank %u had ", asked.rank) + to_string(asked.after) + "\n";
      return;
    }
    text_ += printed("    all ranks undid the step for rank %u, which had ", asked.rank);
    text_ += to_string(asked.before) + " and then " + to_string(asked.after);
    text_ += printed("; attempt %u, %s\n", asked.attempt, name_of(asked.guarantee));
  }

  void evaluations() {
    const auto all = history_.evaluations();
    if (all.empty()) return;
    text_ += printed("\nEvaluation losses\n");
    const size_t a_row = (all.size() + kMostRows - 1) / kMostRows;
    for (size_t i = 0; i < all.size(); i += a_row) told(all[i]);
    if ((all.size() - 1) % a_row != 0) told(all.back());
  }

  void told(const EvaluationPoint& evaluation) {
    text_ += printed("  after %llu steps  %.4f\n", (unsigned long long)evaluation.step, evaluation.loss);
  }

  const RunReport& report_;
  const RunHistory& history_;
  std::string text_;
};

}  // namespace

std::string report_text(const RunReport& report) {
  return Page(report).write();
}

}  // namespace spillway::trainer
