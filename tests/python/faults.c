/* Failures on demand for the tests' Python programs, which cannot call the core's table themselves. */
#include "strategies/core/core.h"

/* Makes every request from the n-th on fail, or with 0 none; how many failed since the last call. */
SPILLWAY_API uint64_t fail_requests(uint64_t n) {
  return spillway_core()->fail_request(n, 1);
}
/* Makes the n-th request alone fail. */
SPILLWAY_API uint64_t fail_one_request(uint64_t n) {
  return spillway_core()->fail_request(n, 0);
}
/* Requests since the start. */
SPILLWAY_API uint64_t requests(void) {
  return spillway_core()->requests();
}
