#include <liburing.h>

#include <cerrno>
#include <cstring>
#include <deque>

#include "trainer/residency/nvme/io_queue.h"

namespace spillway::trainer {
namespace {

class UringQueue : public IoQueue {
 public:
  ~UringQueue() override {
    if (!ready_) return;
    while (UringQueue::ended(true) != nullptr) {
    }
    io_uring_queue_exit(&ring_);
  }

  // 0, or an errno.
  int start(uint32_t depth) {
    if (const int error = io_uring_queue_init(depth, &ring_, 0); error < 0) return -error;
    ready_ = true;
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    const bool known = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                       io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    return known ? 0 : ENOSYS;  // a kernel before 5.6
  }

  void submit(IoRequest* request) override {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return fail(request, EBUSY);
    const auto bytes = static_cast<unsigned>(request->bytes);
    request->writes ? io_uring_prep_write(entry, request->file, request->data, bytes, request->offset)
                    : io_uring_prep_read(entry, request->file, request->data, bytes, request->offset);
    io_uring_sqe_set_data(entry, request);
    int submitted = 0;
    while ((submitted = io_uring_submit(&ring_)) == -EINTR || submitted == -EAGAIN) {
    }
    if (submitted >= 0) {
      ++under_way_;
      return;
    }
    io_uring_prep_nop(entry);  // it goes with the next one, and says nothing
    io_uring_sqe_set_data(entry, nullptr);
    fail(request, -submitted);
  }

  IoRequest* ended(bool wait) override {
    if (!failed_.empty()) {
      IoRequest* request = failed_.front();
      failed_.pop_front();
      return request;
    }
    while (under_way_ > 0) {
      io_uring_cqe* completion = nullptr;
      const int error =
          wait ? io_uring_wait_cqe(&ring_, &completion) : io_uring_peek_cqe(&ring_, &completion);
      if (error == -EINTR) continue;
      if (error < 0 || completion == nullptr) return nullptr;
      auto* request = static_cast<IoRequest*>(io_uring_cqe_get_data(completion));
      const int result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      if (request == nullptr) continue;
      --under_way_;
      request->result = result;
      return request;
    }
    return nullptr;
  }

 private:
  void fail(IoRequest* request, int error) {
    request->result = -error;
    failed_.push_back(request);
  }

  io_uring ring_{};
  bool ready_ = false;
  size_t under_way_ = 0;
  std::deque<IoRequest*> failed_;  // that were never begun
};

}  // namespace

std::unique_ptr<IoQueue> io_uring_queue(uint32_t depth, std::string* why_not) {
  auto queue = std::make_unique<UringQueue>();
  const int error = queue->start(depth);
  if (error == 0) return queue;
  *why_not = std::strerror(error);
  return nullptr;
}

}  // namespace spillway::trainer
