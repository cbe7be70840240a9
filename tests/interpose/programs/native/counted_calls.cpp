// Calls the driver 19,200,000 times in 96 threads at once, one after the other in 30 more, and 500 times in a
// child.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

int (*get_version)(int*) = nullptr;

void call(int times) {
  for (int i = 0, version = 0; i < times; ++i) get_version(&version);
}

}  // namespace

int main() {
  constexpr int kAtOnce = 96, kLater = 30;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver != nullptr) get_version = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDriverGetVersion"));
  if (get_version == nullptr) {
    std::fprintf(stderr, "there is no driver\n");
    return 1;
  }
  std::barrier begin(kAtOnce);
  std::vector<std::thread> threads;
  threads.reserve(kAtOnce);
  for (int i = 0; i < kAtOnce; ++i)
    threads.emplace_back([&begin] {
      begin.arrive_and_wait();
      call(200'000);
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kLater; ++i) std::thread(call, 1).join();
  call(1);
  const pid_t child = fork();
  if (child == 0) {
    call(500);
    _exit(0);
  }
  return waitpid(child, nullptr, 0) == child ? 0 : 1;
}
