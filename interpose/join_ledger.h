// Takes part in the ledger of the machine's processes from the first use of the driver on, but in `observe`.
//
// Thread-safety: any thread. Errors: without shared memory the process takes no part, which the
// summary holds and `spillway run` says.
#pragma once

namespace spillway::interpose {

void join_ledger_once();

}  // namespace spillway::interpose
