#include "strategies/framework/framework_course.h"

#include <array>

#include "allocator/allocator.h"
#include "base/mutex.h"
#include "trace/record.h"

namespace spillway {
namespace {

constexpr size_t kMostSamples = 256;

struct Course {
  std::vector<FrameworkSample> samples;
  uint64_t least_apart_ns = 0;
};

Mutex<LockOrder::kFrameworkCourse> mutex;
std::array<Course, Allocator::kMaxDevices> courses SPILLWAY_GUARDED_BY(mutex);

bool is_device(int device) {
  return device >= 0 && device < Allocator::kMaxDevices;
}

// Every second one stays, and the next come half as often.
void thin_out(Course* course) {
  std::vector<FrameworkSample> kept;
  for (size_t i = 0; i < course->samples.size(); i += 2) kept.push_back(course->samples[i]);
  course->samples = std::move(kept);
  const uint64_t span = course->samples.back().clock_ns - course->samples.front().clock_ns;
  course->least_apart_ns = span / (kMostSamples / 2);
}

}  // namespace

void note_framework_course(int device, uint64_t used_bytes, uint64_t held_bytes) {
  if (!is_device(device)) return;
  const Locked lock(mutex);
  Course& course = courses[static_cast<size_t>(device)];
  const uint64_t now = trace::clock_ns();
  if (!course.samples.empty() && now - course.samples.back().clock_ns < course.least_apart_ns) return;
  if (course.samples.size() + 1 == kMostSamples) thin_out(&course);
  course.samples.push_back({now, used_bytes, held_bytes});
}

std::vector<FrameworkSample> framework_course(int device) {
  if (!is_device(device)) return {};
  const Locked lock(mutex);
  return courses[static_cast<size_t>(device)].samples;
}

}  // namespace spillway
