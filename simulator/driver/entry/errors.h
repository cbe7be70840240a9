// Names and texts of the driver's errors.
#pragma once
#include <cuda.h>

#include <optional>
#include <string_view>

namespace spillway::simulator {

std::optional<CUresult> find_error(std::string_view name);

}  // namespace spillway::simulator
