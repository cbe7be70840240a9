#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <system_error>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "trainer/residency/nvme/io_queue.h"

namespace spillway::trainer {
namespace {

constexpr int kThreads = 8;

class ThreadQueue : public IoQueue {
 public:
  ThreadQueue() {
    sigset_t all, before;  // the program's signals are not for these threads
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    start();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~ThreadQueue() override {
    {
      const Locked lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(IoRequest* request) override {
    {
      const Locked lock(mutex_);
      waiting_.push_back(request);
      ++under_way_;
    }
    changed_.notify_all();
  }

  IoRequest* ended(bool wait) override {
    const Locked lock(mutex_);
    while (wait && ended_.empty() && under_way_ > 0) changed_.wait(mutex_);
    if (ended_.empty()) return nullptr;
    IoRequest* request = ended_.front();
    ended_.pop_front();
    --under_way_;
    return request;
  }

 private:
  void start() {
    try {
      for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;  // fewer are enough
    }
  }

  static int64_t moved(const IoRequest& of) {
    const ssize_t bytes = of.writes ? ::pwrite(of.file, of.data, of.bytes, static_cast<off_t>(of.offset))
                                    : ::pread(of.file, of.data, of.bytes, static_cast<off_t>(of.offset));
    return bytes < 0 ? -errno : bytes;
  }

  // The next one to be done; null when the queue goes and all is done.
  IoRequest* next() {
    const Locked lock(mutex_);
    while (waiting_.empty() && !leaving_) changed_.wait(mutex_);
    if (waiting_.empty()) return nullptr;
    IoRequest* request = waiting_.front();
    waiting_.pop_front();
    return request;
  }

  void serve() {
    while (IoRequest* request = next()) {
      request->result = moved(*request);
      {
        const Locked lock(mutex_);
        ended_.push_back(request);
      }
      changed_.notify_all();
    }
  }

  Mutex<LockOrder::kLeaf> mutex_;
  std::condition_variable_any changed_;
  std::deque<IoRequest*> waiting_ SPILLWAY_GUARDED_BY(mutex_), ended_ SPILLWAY_GUARDED_BY(mutex_);
  size_t under_way_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // that were not given back
  bool leaving_ SPILLWAY_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

std::atomic<IoQueueWrapper> wrapper_of_queues{nullptr};

}  // namespace

std::unique_ptr<IoQueue> thread_queue() {
  return std::make_unique<ThreadQueue>();
}

std::unique_ptr<IoQueue> make_io_queue(uint32_t depth, std::string* remark) {
  std::string why_not;
  auto queue = io_uring_queue(depth, &why_not);
  if (queue == nullptr) {
    *remark = "the kernel has no io_uring for this process (" + why_not + "): " + std::to_string(kThreads) +
              " threads read and write";
    queue = thread_queue();
  }
  const IoQueueWrapper wrap = wrapper_of_queues.load();
  return wrap == nullptr ? std::move(queue) : wrap(std::move(queue));
}

void wrap_io_queues(IoQueueWrapper wrapper) {
  wrapper_of_queues = wrapper;
}

}  // namespace spillway::trainer
