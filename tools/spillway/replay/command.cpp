// `spillway replay`: a program's requests, given again to PyTorch's allocator as a model and to Spillway's.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/spillway/command.h"
#include "tools/spillway/input_file.h"
#include "tools/spillway/rehearse/report/output.h"
#include "tools/spillway/replay/input/input.h"
#include "tools/spillway/replay/output.h"
#include "tools/spillway/replay/replay.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr ReplayAllocator kAllocators[] = {ReplayAllocator::kNative, ReplayAllocator::kExpandable,
                                           ReplayAllocator::kSpillway};

struct Options {
  std::string path, capacity, allocators = "native,expandable,spillway", settings, out;
  bool json = false, find = false;
  uint64_t seconds = 60;
};

struct Row {
  ReplayAllocator allocator;
  std::optional<ReplayOutcome> outcome;      // with a capacity
  std::optional<SmallestCapacity> smallest;  // where it is looked for
};

struct Result {
  const std::string& path;
  const ReplayInput& input;
  std::optional<uint64_t> given;     // all that the allocator may have
  std::optional<uint64_t> capacity;  // of these, what is left for what the history tells of
  bool capacity_is_the_failures = false;
  std::vector<Row> rows;
};

std::optional<std::vector<ReplayAllocator>> parse_allocators(const std::string& text) {
  std::vector<ReplayAllocator> chosen;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const std::string name = text.substr(start, end - start);
    const auto found = std::find_if(std::begin(kAllocators), std::end(kAllocators),
                                    [&](auto one) { return name == replay_allocator_name(one); });
    if (found == std::end(kAllocators)) return std::nullopt;
    chosen.push_back(*found);
    start = end + 1;
  }
  return chosen;
}

// `record`: of what the allocator does on the capacity; may be null.
Row run_one(ReplayAllocator allocator, const Result& result, bool find, uint64_t seconds,
            ReplayRecord* record) {
  const ReplayTarget target{allocator, result.input.settings};
  const ReplayDeadline deadline = Clock::now() + std::chrono::seconds(seconds);
  Row row{allocator, std::nullopt, std::nullopt};
  if (result.capacity)
    row.outcome = replay(result.input.requests, target, *result.capacity, deadline, record);
  if (find) {
    row.smallest = smallest_capacity(result.input.requests, target, deadline);
    if (row.smallest->bytes) *row.smallest->bytes += result.input.unknown_bytes;
  }
  return row;
}

std::string completes_text(const Row& row) {
  if (!row.outcome) return "";
  if (!row.outcome->error.empty()) return "not replayed";
  if (!row.outcome->finished) return "too slow";
  return row.outcome->completes() ? "yes" : "no";
}

std::string smallest_text(const Row& row) {
  if (!row.smallest) return "";
  if (row.smallest->bytes) return exact_size_text(*row.smallest->bytes);
  return row.smallest->error.empty() ? "not found in time" : "not replayed";
}

std::string failure_text(const Row& row) {
  const std::string name = replay_allocator_name(row.allocator);
  const std::string error = row.outcome ? row.outcome->error : row.smallest ? row.smallest->error : "";
  if (!error.empty()) return "  " + name + ": " + error + "\n";
  if (!row.outcome || !row.outcome->failure) return "";
  const ReplayFailure& failure = *row.outcome->failure;
  return "  " + name + " does not serve request " + std::to_string(failure.request) + ", " +
         exact_size_text(failure.bytes) + ", in step " + std::to_string(failure.step) + ": it holds " +
         size_text(failure.reserved) + ", " + size_text(failure.live) +
         " are live, the largest free piece is " + size_text(failure.largest_free) + "\n";
}

std::string caveats_text(const Result& result) {
  const ReplayInput& input = result.input;
  std::string text;
  if (input.requests.older > 0)
    text += "  " + size_text(input.requests.older_bytes) +
            " were allocated before the history began: they are placed first, by their addresses, which is "
            "an approximation\n";
  if (input.unknown_bytes > 0)
    text += "  " + size_text(input.unknown_bytes) +
            " more were in use that the history does not tell of: the capacity is " +
            (result.rows[0].smallest ? "smaller by them, the smallest one larger\n" : "smaller by them\n");
  if (!input.incomplete.empty()) text += "  NOT WHOLE: " + input.incomplete + "\n";
  for (const std::string& setting : input.settings.ignored)
    text += "  the setting " + setting + " does not count\n";
  return text;
}

std::string text_of(const Result& result) {
  const Requests& requests = result.input.requests;
  std::string text = "Replay of a " + std::string(result.input.kind) + ": " + result.path;
  text += result.input.device == 0 ? "\n" : ", device " + std::to_string(result.input.device) + "\n";
  text += "  " + count_text(requests.blocks, "allocation", "allocations") + ", " +
          count_text(requests.streams, "stream", "streams") + ", " +
          count_text(requests.steps.size(), "step", "steps") + "; at most " +
          exact_size_text(most_live(requests)) + " live\n";
  if (result.capacity) {
    text += "  capacity " + exact_size_text(*result.capacity);
    if (result.given && result.capacity != result.given) text += " of " + size_text(*result.given);
    text += result.capacity_is_the_failures ? ", as the program's allocator had when it failed\n" : "\n";
  }
  using enum Align;
  Table table({kLeft, kLeft, kRight, kRight, kRight});
  table.add({"allocator", result.capacity ? "completes" : "", result.capacity ? "most held" : "",
             result.capacity ? "most live" : "", result.rows[0].smallest ? "smallest capacity" : ""});
  for (const Row& row : result.rows) {
    const bool ran = row.outcome && row.outcome->error.empty();
    table.add({replay_allocator_name(row.allocator), completes_text(row),
               ran ? size_text(row.outcome->most_reserved) : "", ran ? size_text(row.outcome->most_live) : "",
               smallest_text(row)});
  }
  text += table.text("");
  for (const Row& row : result.rows) text += failure_text(row);
  return text + caveats_text(result);
}

Json json_of(const Row& row) {
  Json json = {{"allocator", replay_allocator_name(row.allocator)}};
  if (row.outcome) {
    const ReplayOutcome& outcome = *row.outcome;
    json["completes"] = outcome.finished && outcome.error.empty() ? Json(outcome.completes()) : Json();
    json["most_reserved_bytes"] = outcome.most_reserved;
    json["most_live_bytes"] = outcome.most_live;
    json["failure"] = outcome.failure ? Json{{"request", outcome.failure->request},
                                             {"bytes", outcome.failure->bytes},
                                             {"step", outcome.failure->step},
                                             {"reserved_bytes", outcome.failure->reserved},
                                             {"live_bytes", outcome.failure->live},
                                             {"largest_free_bytes", outcome.failure->largest_free}}
                                      : Json();
    json["error"] = outcome.error;
  }
  if (row.smallest) json["smallest_bytes"] = row.smallest->bytes ? Json(*row.smallest->bytes) : Json();
  return json;
}

std::string json_text(const Result& result) {
  const Requests& requests = result.input.requests;
  Json json = {{"spillway_replay", 1},
               {"path", result.path},
               {"kind", result.input.kind},
               {"device", result.input.device},
               {"allocations", requests.blocks},
               {"streams", requests.streams},
               {"steps", requests.steps.size()},
               {"most_live_rounded_bytes", most_live(requests)},
               {"older_bytes", requests.older_bytes},
               {"unknown_bytes", result.input.unknown_bytes},
               {"incomplete", result.input.incomplete},
               {"capacity_bytes", result.capacity ? Json(*result.capacity) : Json()}};
  json["allocators"] = Json::array();
  for (const Row& row : result.rows) json["allocators"].push_back(json_of(row));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int write_record(const Options& options, const Result& result, ReplayRecord record) {
  const Row& row = result.rows[0];
  const ReplayOutcome outcome = row.outcome.value_or(ReplayOutcome());
  if (!outcome.error.empty())
    return fail(kUnwritable, "replay: --out: nothing was replayed: " + outcome.error);
  if (!outcome.finished) record.incomplete = "the replay took too long and ends early";
  const std::string wrong = write_output(
      options.out,
      replay_snapshot(result.input, row.allocator, result.capacity.value_or(0), std::move(record)));
  if (!wrong.empty()) return fail(kUnwritable, "replay: --out: " + wrong);
  if (!options.json)
    std::printf("What %s did is a memory snapshot now: %s. spillway report explains it.\n",
                replay_allocator_name(row.allocator), options.out.c_str());
  return kSuccess;
}

int run_replay(const Options& options) {
  if (options.path.empty())
    return fail(
        kUsageError,
        "replay: name the file: a memory snapshot of PyTorch's, a log of RMM's, a trace, or a stream");
  const auto allocators = parse_allocators(options.allocators);
  if (!allocators)
    return fail(kUsageError, "replay: --allocator: '" + options.allocators +
                                 "' is not a list of native, expandable and spillway");
  std::optional<uint64_t> capacity;
  if (!options.capacity.empty()) capacity = parse_size(options.capacity);
  if (!options.capacity.empty() && !capacity)
    return fail(kUsageError,
                "replay: --capacity: '" + options.capacity + "' is no size: write " + kSizesAccepted);
  if (const std::string wrong = check_outputs({{"--out", options.out}}); !wrong.empty())
    return fail(kUnwritable, "replay: " + wrong);
  if (const std::string wrong = overwritten_input({options.path}, {{"--out", options.out}}); !wrong.empty())
    return fail(kUsageError, "replay: " + wrong);
  if (const std::string wrong = not_a_file(options.path); !wrong.empty())
    return fail(kUnreadableTrace, "replay: " + wrong);
  std::string error;
  auto input = read_replay_input(options.path, &error);
  if (!input) return fail(kUnreadableTrace, "replay: " + error);
  if (!options.settings.empty()) {
    input->alloc_conf = options.settings;
    input->settings = parse_torch_settings(options.settings);
  }
  Result result{options.path, *input, capacity ? capacity : input->capacity, {}, !capacity, {}};
  result.capacity = result.given;
  if (result.capacity) *result.capacity -= std::min(*result.capacity, input->unknown_bytes);
  const bool find = options.find || !result.capacity, records = !options.out.empty();
  if (records && (allocators->size() != 1 || !result.capacity))
    return fail(kUsageError, result.capacity ? "replay: --out: choose one allocator: --allocator NAME"
                                             : "replay: --out: say on what: --capacity SIZE");
  ReplayRecord record;
  for (const ReplayAllocator allocator : *allocators)
    result.rows.push_back(run_one(allocator, result, find, options.seconds, records ? &record : nullptr));
  print_result(options.json ? json_text(result) : text_of(result));
  return records ? write_record(options, result, std::move(record)) : kSuccess;
}

std::function<int()> declare_replay(CLI::App& app, const Words&) {
  auto options = std::make_shared<Options>();
  app.add_option(
      "file", options->path,
      "A memory snapshot of PyTorch's, a log of RMM's, a trace of Spillway's, or a stream of requests");
  app.add_option("--capacity", options->capacity,
                 "What the allocator may take, such as 24GiB; otherwise what it had when a request failed");
  app.add_option("--allocator", options->allocators, "Which, separated by commas")->capture_default_str();
  app.add_option("--alloc-conf", options->settings,
                 "Of PyTorch's allocator, as PYTORCH_ALLOC_CONF; otherwise what the file says");
  app.add_option("--out", options->out, "Write what one allocator did as a memory snapshot, to this file")
      ->type_name("FILE");
  app.add_flag("--find", options->find, "Look for the smallest capacity of each");
  app.add_flag("--json", options->json, "The result as data");
  app.add_option("--seconds", options->seconds, "The most that one allocator may take")
      ->capture_default_str()
      ->check(CLI::Range(1, 86400));
  return [options] { return run_replay(*options); };
}

}  // namespace

Command replay_command() {
  return {"replay", "Give a program's requests to other allocators", "spillway replay run.pickle --find",
          false, declare_replay};
}

}  // namespace spillway::tools
