#include "tools/spillway/doctor/trial.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace spillway::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
constexpr size_t kMostOutput = 64 << 10;

int remaining_ms(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
}

// Until the end of the output or the deadline. What is too much is read and dropped.
void collect(int from, Clock::time_point deadline, std::string* output) {
  char piece[4096];
  while (Clock::now() < deadline) {
    pollfd look{.fd = from, .events = POLLIN, .revents = 0};
    if (::poll(&look, 1, remaining_ms(deadline)) <= 0) continue;
    const ssize_t count = ::read(from, piece, sizeof piece);
    if (count <= 0 && errno != EINTR) return;
    if (count > 0)
      output->append(piece, std::min<size_t>(static_cast<size_t>(count), kMostOutput - output->size()));
  }
}

bool ended_within(pid_t pid, Clock::time_point deadline, int* status) {
  for (;;) {
    if (::waitpid(pid, status, WNOHANG) == pid) return true;
    if (Clock::now() >= deadline) return false;
    ::usleep(2000);
  }
}

// `work` runs in the child, with its output in a pipe, and does not return.
ChildAnswer run_forked(double seconds, const std::function<void()>& work) {
  ChildAnswer answer;
  int output[2];
  if (::pipe2(output, O_CLOEXEC) != 0) return answer;
  const auto deadline = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  std::fflush(stdout);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);
    ::dup2(output[1], STDOUT_FILENO);
    ::dup2(output[1], STDERR_FILENO);
    work();
    ::_exit(kNotFound);
  }
  ::close(output[1]);
  if (pid > 0) {
    ::setpgid(pid, pid);
    collect(output[0], deadline, &answer.output);
    int status = 0;
    answer.in_time = ended_within(pid, deadline, &status);
    ::kill(-pid, SIGKILL);  // also what it left running
    if (!answer.in_time) ::waitpid(pid, &status, 0);
    answer.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  ::close(output[0]);
  return answer;
}

Json json_of(const Trial& trial) {
  return {{"name", trial.name},
          {"state", static_cast<int>(trial.state)},
          {"found", trial.found},
          {"advice", trial.advice}};
}

// The child's last line; before it the libraries that it loaded may have written.
std::optional<std::vector<Trial>> read_trials(const std::string& output) {
  const size_t line = output.rfind('\n');
  const Json json = Json::parse(line == std::string::npos ? output : output.substr(line + 1), nullptr, false);
  try {
    std::vector<Trial> trials;
    for (const Json& each : json)
      trials.push_back({each.at("name"), each.at("state"), each.at("found"), each.at("advice")});
    return json.is_array() ? std::optional(trials) : std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

std::string failure_text(const ChildAnswer& answer, double seconds) {
  char text[64] = "";
  if (!answer.in_time)
    std::snprintf(text, sizeof text, "did not end within %g s", seconds);
  else if (answer.exit_code > 128)
    std::snprintf(text, sizeof text, "ended by signal %d", answer.exit_code - 128);
  else if (answer.exit_code != 0)
    std::snprintf(text, sizeof text, "ended with exit code %d", answer.exit_code);
  return text;
}

ChildAnswer run_for(double seconds, const Words& command, const Environment& environment) {
  return run_forked(seconds, [&] {
    apply(environment);
    std::vector<char*> words;
    words.reserve(command.size() + 1);
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
  });
}

std::vector<Trial> try_for(double seconds, const std::string& name,
                           const std::function<std::vector<Trial>()>& trials) {
  const ChildAnswer answer = run_forked(seconds, [&] {
    Json json = Json::array();
    for (const Trial& trial : trials()) json.push_back(json_of(trial));
    const std::string text = "\n" + json.dump(-1, ' ', false, Json::error_handler_t::replace);
    ::_exit(::write(STDOUT_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  });
  const std::string failed = failure_text(answer, seconds);
  if (failed.empty())
    if (auto read = read_trials(answer.output)) return *read;
  return {
      {name, TrialState::kMissing, "the trial " + (failed.empty() ? "said nothing" : failed),
       "look at the system's log (dmesg) and at nvidia-smi for what is wrong with the driver or a device"}};
}

}  // namespace spillway::tools
