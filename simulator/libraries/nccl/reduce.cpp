#include "simulator/libraries/nccl/reduce.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

namespace spillway::nccl {
namespace {

// How a type lies in memory and what is computed with.
template <typename Stored, typename Working>
struct Plain {
  using Memory = Stored;
  using Value = Working;
  static Value load(Memory stored) { return static_cast<Value>(stored); }
  static Memory store(Value value) { return static_cast<Memory>(value); }
};
struct Half {
  using Memory = __half;
  using Value = float;
  static Value load(Memory stored) { return __half2float(stored); }
  static Memory store(Value value) { return __float2half_rn(value); }
};
struct Bfloat16 {
  using Memory = __nv_bfloat16;
  using Value = float;
  static Value load(Memory stored) { return __bfloat162float(stored); }
  static Memory store(Value value) { return __float2bfloat16_rn(value); }
};
template <typename Stored>
struct Float8 {
  using Memory = Stored;
  using Value = float;
  static Value load(Memory stored) { return static_cast<float>(stored); }
  static Memory store(Value value) { return Memory(value); }
};

// Integers wrap around, as on the device.
template <typename Value>
Value combine(Reduction reduction, Value a, Value b) {
  using Arithmetic = typename std::conditional_t<std::is_integral_v<Value>, std::make_unsigned<Value>,
                                                 std::type_identity<Value>>::type;
  switch (reduction) {
    case Reduction::kProduct:
      return static_cast<Value>(static_cast<Arithmetic>(a) * static_cast<Arithmetic>(b));
    case Reduction::kMaximum:
      return a != a || a > b ? a : b;  // a value that is no number stays
    case Reduction::kMinimum:
      return a != a || a < b ? a : b;
    default:
      return static_cast<Value>(static_cast<Arithmetic>(a) + static_cast<Arithmetic>(b));
  }
}

template <typename Format>
class Typed final : public Accumulator {
 public:
  using Memory = typename Format::Memory;
  using Value = typename Format::Value;

  Typed(Reduction reduction, uint64_t count) : reduction_(reduction), values_(count) {}

  void add(const void* part, double scalar) override {
    const auto* bytes = static_cast<const char*>(part);
    for (size_t i = 0; i < values_.size(); ++i) {
      Memory stored;
      std::memcpy(&stored, bytes + i * sizeof stored, sizeof stored);
      Value value = Format::load(stored);
      if (reduction_ == Reduction::kPreMulSum) value = static_cast<Value>(value * static_cast<Value>(scalar));
      values_[i] = first_ ? value : combine(reduction_, values_[i], value);
    }
    first_ = false;
  }

  void finish(void* out, int ranks) override {
    auto* bytes = static_cast<char*>(out);
    for (size_t i = 0; i < values_.size(); ++i) {
      const Value value = reduction_ == Reduction::kAverage
                              ? static_cast<Value>(values_[i] / static_cast<Value>(ranks))
                              : values_[i];
      const Memory stored = Format::store(value);
      std::memcpy(bytes + i * sizeof stored, &stored, sizeof stored);
    }
  }

 private:
  Reduction reduction_;
  bool first_ = true;
  std::vector<Value> values_;
};

// Calls `use` with the format of the type.
template <typename Use>
auto with_format(uint32_t type, Use use) {
  switch (type) {
    case ncclInt8:
      return use(Plain<int8_t, int8_t>{});
    case ncclUint8:
      return use(Plain<uint8_t, uint8_t>{});
    case ncclInt32:
      return use(Plain<int32_t, int32_t>{});
    case ncclUint32:
      return use(Plain<uint32_t, uint32_t>{});
    case ncclInt64:
      return use(Plain<int64_t, int64_t>{});
    case ncclUint64:
      return use(Plain<uint64_t, uint64_t>{});
    case ncclFloat16:
      return use(Half{});
    case ncclFloat64:
      return use(Plain<double, double>{});
    case ncclBfloat16:
      return use(Bfloat16{});
    case ncclFloat8e4m3:
      return use(Float8<__nv_fp8_e4m3>{});
    case ncclFloat8e5m2:
      return use(Float8<__nv_fp8_e5m2>{});
    default:
      return use(Plain<float, float>{});
  }
}

}  // namespace

std::unique_ptr<Accumulator> make_accumulator(uint32_t type, Reduction reduction, uint64_t count) {
  return with_format(type, [&](auto format) -> std::unique_ptr<Accumulator> {
    return std::make_unique<Typed<decltype(format)>>(reduction, count);
  });
}

double read_scalar(uint32_t type, const void* address) {
  return with_format(type, [&](auto format) {
    typename decltype(format)::Memory stored;
    std::memcpy(&stored, address, sizeof stored);
    return static_cast<double>(format.load(stored));
  });
}

}  // namespace spillway::nccl
