// What values of options must be, beside CLI11's own checks: of every program of this project. Each says what
// is wrong with a value, or "".
//
// Thread-safety: pure functions.
#pragma once
#include <CLI/CLI.hpp>

#include <cmath>
#include <filesystem>
#include <string>

namespace spillway {

// CLI::Range lets "nan" pass, which is neither below nor above anything.
inline CLI::Validator number_between(double least, double most) {
  const CLI::Validator range = CLI::Range(least, most);
  CLI::Validator checked = range;
  checked.operation([range](std::string& text) -> std::string {
    double number = 0;
    if (CLI::detail::lexical_cast(text, number) && std::isnan(number)) return "'" + text + "' is no number";
    return range(text);
  });
  return checked;
}

// Of what several processes read: a pipe is empty for the second one.
inline CLI::Validator regular_file() {
  CLI::Validator checked = CLI::ExistingFile;
  checked.operation([](std::string& path) -> std::string {
    std::string wrong = CLI::ExistingFile(path);
    std::error_code unknown;
    if (wrong.empty() && !std::filesystem::is_regular_file(path, unknown))
      wrong = "'" + path + "' is no file that can be read several times, as is done with this one";
    return wrong;
  });
  return checked;
}

// Of what was parsed, the first option whose value is empty: it would count as not given, and is what an
// unset variable of the shell leaves.
inline std::string wrong_empty_option(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (value.empty())
        return option->get_name() +
               " is empty: leave it out, or see whether a variable of the shell is unset";
  for (const CLI::App* command : app.get_subcommands())
    if (std::string wrong = wrong_empty_option(*command); !wrong.empty()) return wrong;
  return "";
}

}  // namespace spillway
