#include "trainer/app/log.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/rotating_file_sink.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{8} << 20, kOlderFiles = 2;
constexpr const char* kFileNames[] = {"train.log", "train.1.log", "train.2.log", "train.jsonl"};
constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                 spdlog::level::warn, spdlog::level::err};

spdlog::level::level_enum level_of(std::string_view name) {
  const auto found = std::ranges::find(kLogLevels, name);
  return found == std::end(kLogLevels) ? spdlog::level::info : kLevels[found - std::begin(kLogLevels)];
}

// The standard output, above the progress line.
class ConsoleSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit ConsoleSink(ProgressLine* line) : line_(line) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (line_ != nullptr) line_->clear();
    std::fwrite(message.payload.data(), 1, message.payload.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
    if (line_ != nullptr) line_->redraw();
  }
  void flush_() override {}

  ProgressLine* line_;
};

// Since 1970, to the millisecond.
double seconds_now() {
  using std::chrono::milliseconds;
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return double(std::chrono::duration_cast<milliseconds>(since).count()) / 1000;
}

// A process that was killed may have left half of an object.
void drop_torn_line(const std::string& path) {
  constexpr std::streamoff kMostTail = std::streamoff{1} << 20;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? std::streamoff{file.tellg()} : 0;
  if (size <= 0) return;
  std::string tail(static_cast<size_t>(std::min(size, kMostTail)), '\0');
  file.seekg(size - std::streamoff(tail.size()));
  if (!file.read(tail.data(), std::streamsize(tail.size())) || tail.back() == '\n') return;
  const size_t end = tail.rfind('\n');
  const size_t torn = end == std::string::npos ? tail.size() : tail.size() - end - 1;
  std::error_code error;
  fs::resize_file(path, uint64_t(size) - torn, error);
}

}  // namespace

struct RunLog::Outputs {
  spdlog::level::level_enum least = spdlog::level::info;
  std::unique_ptr<ProgressLine> line;
  std::shared_ptr<spdlog::logger> console, file, data;
  struct Line {
    spdlog::log_clock::time_point time;
    spdlog::level::level_enum level;
    std::string text;
  };
  std::vector<Line> early;  // until there are files
  bool with_files = false;

  void complain(const std::string& what) {
    if (line) line->clear();
    std::fprintf(stderr, "spillway-train: %s: the training goes on without this log\n", what.c_str());
    if (line) line->redraw();
  }

  template <typename Sink, typename... Arguments>
  std::shared_ptr<spdlog::logger> file_logger(const char* pattern, const Arguments&... arguments) try {
    auto made = std::make_shared<spdlog::logger>("", std::make_shared<Sink>(arguments...));
    made->set_pattern(pattern);
    made->flush_on(spdlog::level::trace);
    made->set_error_handler([this, logger = made.get()](const std::string& what) {
      logger->set_level(spdlog::level::off);
      complain(what);
    });
    return made;
  } catch (const spdlog::spdlog_ex& error) {
    complain(error.what());
    return nullptr;
  }
};

RunLog::RunLog(std::string_view least, bool quiet) : outputs_(std::make_unique<Outputs>()) {
  outputs_->least = level_of(least);
  if (quiet) return;
  if (ProgressLine::possible()) outputs_->line = std::make_unique<ProgressLine>();
  outputs_->console =
      std::make_shared<spdlog::logger>("", std::make_shared<ConsoleSink>(outputs_->line.get()));
  outputs_->console->set_level(outputs_->least);
}

RunLog::~RunLog() = default;

void RunLog::open(const std::string& folder, bool resumed, bool data) {
  std::error_code none;
  if (!resumed)
    for (const char* name : kFileNames) fs::remove(folder + "/" + name, none);
  outputs_->file = outputs_->file_logger<spdlog::sinks::rotating_file_sink_st>(
      "%Y-%m-%dT%H:%M:%S.%e%z %l: %v", folder + "/train.log", kMostBytes, kOlderFiles);
  if (outputs_->file) outputs_->file->set_level(outputs_->least);
  outputs_->with_files = true;
  const std::vector<Outputs::Line> early = std::exchange(outputs_->early, {});
  if (outputs_->file)
    for (const auto& [time, line_level, text] : early)
      outputs_->file->log(time, spdlog::source_loc{}, line_level, text);
  if (!data) return;
  const std::string path = folder + "/train.jsonl";
  drop_torn_line(path);
  outputs_->data = outputs_->file_logger<spdlog::sinks::basic_file_sink_st>("%v", path);
}

void RunLog::say(LogLevel level, const std::string& text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line(text.data() + begin, end - begin);
    if (!outputs_->with_files)
      outputs_->early.push_back(
          {spdlog::log_clock::now(), kLevels[static_cast<size_t>(level)], std::string(line)});
    for (const auto& logger : {outputs_->console, outputs_->file})
      if (logger) logger->log(kLevels[static_cast<size_t>(level)], line);
    begin = end + 1;
  }
}

void RunLog::step(const std::string& line, const Progress& progress) {
  if (!outputs_->line) return say(LogLevel::kInfo, line);
  if (outputs_->least <= spdlog::level::info) outputs_->line->show(progress);
  if (outputs_->file) outputs_->file->info(line);
}

void RunLog::record(const nlohmann::ordered_json& event) {
  using Json = nlohmann::ordered_json;
  if (!outputs_->data) return;
  Json timed = {{"time", seconds_now()}};
  timed.update(event);
  outputs_->data->info(timed.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void RunLog::end(const std::string& verdict, int exit_code) {
  if (outputs_->file) outputs_->file->log(exit_code == 0 ? spdlog::level::info : spdlog::level::err, verdict);
  record({{"event", "end"}, {"verdict", verdict}, {"exit_code", exit_code}});
}

}  // namespace spillway::trainer
