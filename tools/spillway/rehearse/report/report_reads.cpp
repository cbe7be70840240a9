// What a verdict depends on, in words: the values that the program read.
#include <algorithm>

#include "tools/spillway/rehearse/judge/places.h"
#include "tools/spillway/rehearse/report/report_text.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kReadPlaces = 8;

const char* kind_text(ReadKind kind) {
  static constexpr const char* kTexts[] = {"shape  ", "value  ", "copy   ", "bulk   ", "number ", "branch "};
  return kTexts[static_cast<int>(kind)];
}

void add_places(const Observation& process, std::map<std::string, uint64_t>* counts) {
  for (const Read& read : process.reads) {
    const auto place = process.places.find(read.place);
    (*counts)[kind_text(read.kind) +
              (place == process.places.end() ? "a place unknown" : place_text(place->second))] += read.count;
  }
  if (process.has_probe) {
    const ReadTotals totals = reads_of(process);
    constexpr const char* kUnseen = "outside PyTorch, or in the last second of a process that was killed";
    if (totals.copy_without_line > 0)
      (*counts)[kind_text(ReadKind::kCopy) + std::string(kUnseen)] += totals.copy_without_line;
    if (totals.bulk_without_line > 0)
      (*counts)[kind_text(ReadKind::kBulk) + std::string(kUnseen)] += totals.bulk_without_line;
    return;
  }
  for (const DriverReads& reads : process.driver_reads) {
    if (reads.small > 0) (*counts)[kind_text(ReadKind::kCopy) + reads.site] += reads.small;
    if (reads.bulk > 0) (*counts)[kind_text(ReadKind::kBulk) + reads.site] += reads.bulk;
  }
}

std::string counted_text(const std::vector<std::pair<uint64_t, std::string>>& sorted, const char* one,
                         const char* several) {
  using enum Align;
  Table table({kRight, kLeft});
  for (size_t i = 0; i < std::min(kReadPlaces, sorted.size()); ++i)
    table.add({std::to_string(sorted[i].first) + " ×", sorted[i].second});
  if (sorted.size() > kReadPlaces)
    table.add(
        {"", "and " + count_text(sorted.size() - kReadPlaces, one, several) + " more (--json has all)"});
  return table.text("  ");
}

bool may_decide(const std::string& counted) {
  return !counted.starts_with("bulk") && !counted.starts_with("number");
}

std::string read_places_text(const Rehearsal& rehearsal) {
  std::map<std::string, uint64_t> counts;
  for (const Observation& process : rehearsal.processes) add_places(process, &counts);
  std::vector<std::pair<uint64_t, std::string>> sorted;
  sorted.reserve(counts.size());
  for (const auto& [text, count] : counts) sorted.emplace_back(count, text);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    const bool a_decides = may_decide(a.second), b_decides = may_decide(b.second);
    return a_decides != b_decides ? a_decides : a.first > b.first;
  });
  return counted_text(sorted, "place", "places");
}

// What the verdict depends on: "7 values read from the device, 4 of which decide a shape, and on 1 small copy
// ...".
std::string depends_text(const ReadTotals& reads) {
  const uint64_t values = reads.shape + reads.value;
  std::string text;
  if (values > 0) text = count_text(values, "value", "values") + " read from the device";
  if (reads.shape > 0) text += ", " + std::to_string(reads.shape) + " of which decide a shape";
  if (reads.copy == 0) return text;
  if (values > 0) text += reads.shape > 0 ? ", and on " : " and on ";
  return text + count_text(reads.copy, "copy", "copies") +
         " to the host of at most 1 MiB that the program may read";
}

std::string bulk_text(const ReadTotals& reads) {
  if (reads.bulk == 0) return "";
  return count_text(reads.bulk, "bulk copy", "bulk copies") + " to the host (more than 1 MiB each) " +
         (reads.bulk == 1 ? "is" : "are") + " taken as data that decides nothing\n";
}

std::string numbers_text(const ReadTotals& reads) {
  if (reads.number == 0) return "";
  return count_text(reads.number, "number was", "numbers were") +
         " read to be printed or calculated with, which decides nothing\n";
}

std::string computed_text(const Rehearsal& rehearsal) {
  const std::map<std::string, uint64_t> uncomputed = uncomputed_of(rehearsal);
  if (uncomputed.empty())
    return "the verdict is unconditional: every value was computed (by CPU kernels, whose temporaries are "
           "their own)\n";
  std::vector<std::pair<uint64_t, std::string>> sorted;
  sorted.reserve(uncomputed.size());
  for (const auto& [kernel, launches] : uncomputed) sorted.emplace_back(launches, kernel);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  return "the verdict is conditional on what " + count_text(uncomputed.size(), "kernel", "kernels") +
         " would have computed, for which there is no CPU kernel: their outputs are undefined\n" +
         counted_text(sorted, "kernel", "kernels");
}

std::string masks_text(const Rehearsal& rehearsal) {
  if (const auto& all = rehearsal.with_all_masks)
    return "masks that no kernel computed hold nowhere here: with masks that hold everywhere (--masks all) " +
           (all->fit == Fit::kDoesNotFit
                ? std::string("it does not fit")
                : "the program ended with exit code " + std::to_string(all->exit_code)) +
           "\n";
  const uint64_t count = assumed_sizes_of(rehearsal);
  if (count == 0) return "";
  return count_text(count, "size was", "sizes were") +
         " taken as the largest possible: a mask that no kernel computed holds everywhere (--masks none: "
         "nowhere)\n";
}

std::string unprobed_text(const Rehearsal& rehearsal) {
  std::string text;
  for (const Observation& process : rehearsal.processes)
    if (!process.has_probe && process.unreported == 0)
      text +=
          "not known: what held the memory of process " + std::to_string(process.pid) +
          ", its steps and the lines that read: PyTorch's allocator was not used in it, or Spillway is not "
          "built for its PyTorch\n";
  return text;
}

}  // namespace

std::string fits_if(const RunOptions& options, const Rehearsal& rehearsal) {
  const std::string values = values_of(options, rehearsal);
  if (decide(rehearsal) != Fit::kFits || !is_conditional(values, rehearsal)) return "";
  if (values == "compute") return "if nothing that was not computed decides what it allocates";
  const uint64_t shapes = reads_of(rehearsal).shape;
  if (shapes == 0) return "if no value that it read decides what it allocates";
  return "if " + count_text(shapes, "shape", "shapes") + " that the device decides " +
         (shapes == 1 ? "is" : "are") + " no larger than with " + values;
}

std::string condition_text(const RunOptions& options, const Rehearsal& rehearsal) {
  const std::string values = values_of(options, rehearsal);
  if (values == "compute") return computed_text(rehearsal) + unprobed_text(rehearsal);
  const ReadTotals reads = reads_of(rehearsal);
  const bool all_told = std::none_of(rehearsal.processes.begin(), rehearsal.processes.end(),
                                     [](const Observation& process) { return process.unreported > 0; });
  std::string text =
      is_conditional(values, rehearsal) ? "the verdict is conditional on " + depends_text(reads) + "\n"
      : !all_told ? "whether the verdict depends on values that were read is not known: not every process "
                    "left a report\n"
                  : "the verdict is unconditional: no value was read that the program could branch on\n";
  return text + masks_text(rehearsal) + numbers_text(reads) + bulk_text(reads) + read_places_text(rehearsal) +
         unprobed_text(rehearsal);
}

}  // namespace spillway::tools
