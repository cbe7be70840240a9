// The numbers that an 8-bit code stands for: denser near zero, as a floating-point number whose exponent is a
// power of ten.
//
// Dettmers, "8-Bit Approximations for Parallelism in Deep Learning" (2016), as bitsandbytes builds it: for i
// = 0..6 the interval from 0.1 to 1 is cut into 2^i bins (signed: of both signs) or 2^(i+1) bins (unsigned),
// whose middles times 10^(i-6) are the numbers; with 0 and 1 they are 256. A block's numbers are divided by
// the largest of them before.
//
// Thread-safety: constant after the first use. Errors: none.
#pragma once
#include <array>
#include <cstdint>

namespace spillway::trainer {

using CodeTable = std::array<float, 256>;
inline constexpr int32_t kSignedZero = 127;  // the code of 0 among the signed ones

const CodeTable& signed_codes();    // ascending, of -0.99296875 to 1
const CodeTable& unsigned_codes();  // ascending, of 0 to 1

// Numbers from which on the next code is nearer: between code i and i + 1.
std::array<float, 255> thresholds_of(const CodeTable& codes);

}  // namespace spillway::trainer
