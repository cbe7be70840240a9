// The two maps of 8-bit codes that the moments use, and their numbers and thresholds as tables: for code that
// looks numbers up and does not compute them (code_map.h), with the same bits.
//
// Thread-safety: constant after the first use. Errors: none.
#pragma once
#include <array>
#include <cstdint>

#include "trainer/optimizer/quantization/code_map.h"

namespace spillway::trainer {

using CodeTable = std::array<float, 256>;
using Thresholds = std::array<float, 255>;

const CodeMap& signed_map();
const CodeMap& unsigned_map();

const CodeTable& signed_codes();    // ascending, of -0.99296875 to 1
const CodeTable& unsigned_codes();  // ascending, of 0 to 1

// The least numbers that are encoded as more than code i. Those of the signed map are of numbers from -1 on.
const Thresholds& signed_thresholds();
const Thresholds& unsigned_thresholds();

}  // namespace spillway::trainer
