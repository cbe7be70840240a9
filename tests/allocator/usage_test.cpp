// What is counted of a random program equals a plain model: levels, peaks and turnover by class.
#include "allocator/accounting/usage.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace spillway {
namespace {

struct Model {
  int64_t now = 0, peak = 0, added = 0, removed = 0;
  void add(uint64_t amount) {
    now += static_cast<int64_t>(amount);
    added += static_cast<int64_t>(amount);
    peak = std::max(peak, now);
  }
  void remove(uint64_t amount) {
    now -= static_cast<int64_t>(amount);
    removed += static_cast<int64_t>(amount);
  }
};

struct ModelOf {
  Model live, active;  // bytes
};

void expect_equal(const ModelOf& model, const UsageLevels& found) {
  const auto value = [](uint64_t bytes) { return static_cast<int64_t>(bytes); };
  EXPECT_EQ(value(found.live.bytes), model.live.now);
  EXPECT_EQ(value(found.peak_live.bytes), model.live.peak);
  EXPECT_EQ(value(found.allocated.bytes), model.live.added);
  EXPECT_EQ(value(found.freed.bytes), model.live.removed);
  EXPECT_EQ(value(found.active.bytes), model.active.now);
  EXPECT_EQ(value(found.peak_active.bytes), model.active.peak);
  EXPECT_EQ(value(found.deactivated.bytes), model.active.removed);
}

TEST(Usage, EqualsAPlainModel) {
  std::mt19937_64 random(3);
  Usage usage;
  ModelOf all, of_class[2];
  std::vector<uint64_t> live, pending;
  const auto take = [&](std::vector<uint64_t>& from) {
    std::swap(from[random() % from.size()], from.back());
    const uint64_t bytes = from.back();
    from.pop_back();
    return bytes;
  };
  const auto each = [&](uint64_t bytes, const auto& change) {
    change(all);
    change(of_class[bytes > (1 << 20)]);
  };
  for (int i = 0; i < 20000; ++i) {
    switch (random() % 8) {
      case 0:
      case 1:
      case 2: {
        const uint64_t bytes = random() % 2 == 0 ? 512 * (1 + random() % 64) : (1 + random() % 8) << 20;
        usage.allocate(bytes, bytes - 7);
        each(bytes, [&](ModelOf& it) { it.live.add(bytes), it.active.add(bytes); });
        live.push_back(bytes);
        break;
      }
      case 3:
      case 4:
        if (live.empty()) break;
        if (const uint64_t bytes = take(live); random() % 3 == 0) {
          usage.free(bytes, bytes - 7, true);
          each(bytes, [&](ModelOf& it) { it.live.remove(bytes); });
          pending.push_back(bytes);
        } else {
          usage.free(bytes, bytes - 7, false);
          each(bytes, [&](ModelOf& it) { it.live.remove(bytes), it.active.remove(bytes); });
        }
        break;
      case 5:
        if (pending.empty()) break;
        if (const uint64_t bytes = take(pending); true) {
          usage.complete(bytes, bytes - 7);
          each(bytes, [&](ModelOf& it) { it.active.remove(bytes); });
        }
        break;
      case 6:
        if (random() % 100 != 0) break;
        usage.reset_peaks();
        for (ModelOf* it : {&all, &of_class[0], &of_class[1]}) {
          it->live.peak = it->live.now;
          it->active.peak = it->active.now;
        }
        break;
      default:
        if (random() % 100 != 0) break;
        usage.reset_totals();
        for (ModelOf* it : {&all, &of_class[0], &of_class[1]})
          for (Model* model : {&it->live, &it->active}) model->added = model->removed = 0;
    }
    if (i % 64 != 0) continue;
    expect_equal(all, usage.read(Usage::Of::kAll));
    expect_equal(of_class[0], usage.read(Usage::Of::kSmall));
    expect_equal(of_class[1], usage.read(Usage::Of::kLarge));
    ASSERT_FALSE(HasFailure()) << "after operation " << i;
  }
  EXPECT_EQ(usage.live().count, live.size());
  EXPECT_EQ(usage.pending().count, pending.size());
  EXPECT_EQ(usage.live().bytes - usage.live().requested, 7 * live.size());
}

}  // namespace
}  // namespace spillway
