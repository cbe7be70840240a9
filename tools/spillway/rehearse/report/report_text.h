// A rehearsal in words.
//
// Thread-safety: pure functions.
#pragma once
#include <string>
#include <vector>

#include "tools/spillway/look.h"
#include "tools/spillway/rehearse/judge/explain.h"
#include "tools/spillway/rehearse/judge/outcome.h"
#include "tools/spillway/rehearse/run/run.h"

namespace spillway::tools {

std::string report_text(const RunOptions& options, const Rehearsal& rehearsal,
                        const Explanation& explanation);

// Of a card at its peak, by who has it.
std::vector<BarPart> card_parts(const Need& need);
// A bar for each card of that, of a program that fits.
std::string card_bars_text(const Rehearsal& rehearsal);

// "fits", "does not fit", ...
const char* fit_text(Fit fit);
// The exit code that stands for it, or the program's own.
int exit_code_of(Fit fit, int program_exit_code);
int exit_code_of(const Rehearsal& rehearsal);
// Whether spillway gives it a meaning of its own, so that a program's needs a word.
bool is_own_code(int exit_code);
// "python train.py 'a b'", as a shell would take it.
std::string command_text(const Words& command);
std::string machine_text(const Rehearsal& rehearsal);  // "2 × a100-40gb of 39.56 GiB"
std::string allocator_text(const RunOptions& options, const Rehearsal& rehearsal);
// The values that were in force: the simulator's word, or where it left none the options'.
std::string values_of(const RunOptions& options, const Rehearsal& rehearsal);
// "rank 1 GPU 0", "process 4711 GPU 0" where there are several processes, else "GPU 0".
std::string device_name(const Rehearsal& rehearsal, const Observation& process, int device);
// "fits", "fits, if ..."
std::string verdict_text(const RunOptions& options, const Rehearsal& rehearsal);
// What must be so for "fits" to hold, "if ...", or "". Only true values take it away.
std::string fits_if(const RunOptions& options, const Rehearsal& rehearsal);
// One line: what the verdict depends on, as far as values go, then where these were read. "" where nothing is
// to be said.
std::string condition_text(const RunOptions& options, const Rehearsal& rehearsal);

}  // namespace spillway::tools
