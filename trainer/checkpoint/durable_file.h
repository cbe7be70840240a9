// Files that survive a power cut: a reader sees the old file or the whole new one (temporary file, fsync,
// rename, fsync of the folder).
//
// Thread-safety: one writer of a path at a time. Ownership: the callback borrows the unfinished file. Errors:
// errno, 0 when all went well. After an error before the rename, or an exception of the callback, the old
// file is what it was.
#pragma once
#include <functional>
#include <string>

#include "base/output_file.h"

namespace spillway::trainer {

// `fill` writes the bytes and returns an errno.
int write_durably(const std::string& path, const std::function<int(DraftFile&)>& fill);

}  // namespace spillway::trainer
