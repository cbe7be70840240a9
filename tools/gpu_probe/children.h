// Processes with a deadline: whatever a driver does to one, the probe goes on.
#pragma once
#include <functional>
#include <string>

namespace spillway::probe {

// Runs this program again with these arguments; its lines are passed on as they come. After `seconds` it is
// killed, with its own children. Returns "done", "exit code N", "ended by signal N" or "did not end in N s".
std::string run_again(const std::string& part, int device, double seconds);

// The same for a function, in a fork of this process, which must not have called the driver.
std::string run_in_fork(double seconds, const std::function<void()>& work);

}  // namespace spillway::probe
