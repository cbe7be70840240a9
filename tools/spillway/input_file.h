// The files that a command is given to read.
//
// Thread-safety: any thread. Errors: "" or what is wrong, in words.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace spillway::tools {

// Of a file that is read more than once: a pipe cannot be, and opening one waits for its writer. A file that
// is not there is the reader's to name.
std::string not_a_file(const std::string& path);

// `outputs`: option and path. Also where a link leads to what is read.
std::string overwritten_input(const std::vector<std::string>& inputs,
                              const std::vector<std::pair<const char*, std::string>>& outputs);

}  // namespace spillway::tools
