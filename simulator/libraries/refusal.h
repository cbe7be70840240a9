// What a stand-in does with a call that it does not serve.
#pragma once

namespace spillway::stand_in {

// Says once on stderr that `function` is not simulated, and which library called it (`caller` is an address
// in it: __builtin_return_address(0)). `answer` is the status that the caller then returns.
void say_refused(const char* function, const char* answer, const void* caller);

}  // namespace spillway::stand_in
