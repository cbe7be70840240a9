#include "tools/spillway/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/command_line/option_checks.h"
#include "base/utf8.h"
#include "tools/spillway/suggest.h"

namespace spillway::tools {
namespace {

struct Declared {
  const Command* command;
  CLI::App* app;
  std::function<int()> run;
};

// The words before the first "--" and those behind it.
struct CommandLine {
  CommandLine(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (!has_separator && word == "--") {
        has_separator = true;
      } else {
        (has_separator ? command : own).push_back(word);
      }
    }
  }
  Words own, command;
  bool has_separator = false;
};

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

int refuse_word(const CLI::App& app, const std::string& word) {
  const bool is_flag = word.size() > 1 && word[0] == '-';
  std::string text = app.get_name() + ": '" + word + "' is not " + (is_flag ? "an option." : "expected.");
  if (is_flag) text += did_you_mean(word.substr(0, word.find('=')), option_names(app));
  return fail(kUsageError, text + " See 'spillway " + app.get_name() + " --help'.");
}

int refuse_command(const std::vector<Command>& commands, const CLI::App& app, const std::string& word) {
  std::vector<std::string> names = option_names(app);
  for (const Command& command : commands) names.emplace_back(command.name);
  const char* kind = word[0] == '-' ? "an option" : "a command";
  return fail(kUsageError,
              "'" + word + "' is not " + kind + "." + did_you_mean(word, names) + " See 'spillway --help'.");
}

// `option`: null where it is not known.
std::string values_taken_by(const CLI::Option* option) {
  const int least = option != nullptr ? option->get_expected_min() : 1;
  const int most = option != nullptr ? option->get_expected_max() : 1;
  if (most < 2) return ": it takes one value, and is given once";
  return ": it takes " + (least < most ? std::to_string(least) + " to " : std::string()) +
         std::to_string(most) + " values";
}

// CLI11's words for an option without its value, or with several, name types and counts.
int refuse_parse(const CommandLine& line, const std::vector<Declared>& declared,
                 const CLI::ParseError& error) {
  std::string text = error.what(), command;
  const CLI::App* app = nullptr;
  for (const Declared& known : declared)
    if (!line.own.empty() && line.own.front() == known.command->name)
      command = known.command->name, app = known.app;
  if (error.get_name() == "ArgumentMismatch") {
    const std::string name = text.substr(0, text.find(':'));
    text = name + values_taken_by(app != nullptr ? app->get_option_no_throw(name) : nullptr);
  }
  const std::string help = command.empty() ? "--help" : command + " --help";
  return fail(kUsageError, (command.empty() ? "" : command + ": ") + text + ". See 'spillway " + help + "'.");
}

int run_parsed(const CommandLine& line, const Declared& declared) {
  const std::string name = declared.command->name;
  if (const std::string wrong = wrong_empty_option(*declared.app); !wrong.empty())
    return fail(kUsageError, name + ": " + wrong);
  if (const Words extra = declared.app->remaining(); !extra.empty()) {
    if (declared.command->takes_command && extra.front()[0] != '-') {
      return fail(kUsageError,
                  name + ": put the command behind '--': spillway " + name + " ... -- " + extra.front());
    }
    return refuse_word(*declared.app, extra.front());
  }
  if (line.has_separator && !declared.command->takes_command) {
    return fail(kUsageError, name + ": it runs no command, so '--' has no place here");
  }
  if (declared.command->takes_command && line.command.empty()) {
    return fail(kUsageError, name + ": no command to run: spillway " + name + " ... -- COMMAND [ARGUMENTS]");
  }
  return declared.run();
}

}  // namespace

int fail(int code, const std::string& text) {
  std::fprintf(stderr, "spillway: %s\n", printable(text).c_str());
  return code;
}

void print_result(const std::string& text) {
  std::fputs(printable(text).c_str(), stdout);
}

int run_command_line(const std::vector<Command>& commands, int argc, char** argv) {
  CLI::App app("Spillway keeps CUDA programs alive when GPU memory runs out.", "spillway");
  app.set_version_flag("--version", "spillway " SPILLWAY_VERSION_TEXT);
  app.footer(kExitCodes);
  app.allow_extras();
  app.require_subcommand(0, 1);  // a file that has a command's name is a file behind the first one
  CommandLine line(argc, argv);
  std::vector<Declared> declared;
  for (const Command& command : commands) {
    CLI::App* sub = app.add_subcommand(command.name, command.description);
    sub->allow_extras();
    sub->footer(std::string("Example: ") + command.example + "\n\n" + kExitCodes);
    declared.push_back({&command, sub, command.declare(*sub, line.command)});
  }
  try {
    app.parse(Words(line.own.rbegin(), line.own.rend()));  // CLI11 takes them from the back
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return refuse_parse(line, declared, error);
  }
  if (const Words extra = app.remaining(); !extra.empty())
    return refuse_command(commands, app, extra.front());
  for (const Declared& each : declared) {
    if (each.app->parsed()) return run_parsed(line, each);
  }
  std::fputs(app.help().c_str(), stderr);
  return kUsageError;
}

}  // namespace spillway::tools
