#include "libtorch/allocator/ipc/ipc_socket.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "base/service_thread.h"
#include "libtorch/allocator/core.h"

namespace spillway::libtorch {
namespace {

constexpr size_t kBatch = 128;  // the system passes at most 253 at once
constexpr uint64_t kMostPages = uint64_t{1} << 20;
constexpr timeval kPatience{.tv_sec = 10, .tv_usec = 0};

class Socket {
 public:
  explicit Socket(int number) : number_(number) {
    if (number < 0) return;
    setsockopt(number, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    setsockopt(number, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  }
  ~Socket() {
    if (number_ >= 0) close(number_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool valid() const { return number_ >= 0; }
  int number() const { return number_; }

  bool send_all(const void* data, size_t bytes) const {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t sent = send(number_, at, bytes, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += sent;
      bytes -= static_cast<size_t>(sent);
    }
    return true;
  }
  bool receive_all(void* data, size_t bytes) const {
    return bytes == 0 || recv(number_, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }

 private:
  int number_;
};

struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&name); }
};

Address address_of(const SocketName& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  // A leading zero byte: the abstract namespace, where nothing is left behind.
  const int length = std::snprintf(address.name.sun_path + 1, sizeof address.name.sun_path - 1,
                                   "spillway-%016lx%016lx", name[0], name[1]);
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  return address;
}

// Room for the descriptors of one batch, aligned as the system wants it.
struct Batch {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kBatch * sizeof(int))> control{};
  int32_t count = 0;
  iovec part{&count, sizeof count};
  msghdr message{};

  Batch() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
};

bool send_batch(const Socket& socket, const std::vector<int>& descriptors) {
  Batch batch;
  batch.count = static_cast<int32_t>(descriptors.size());
  batch.message.msg_control = batch.control.data();
  batch.message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
  cmsghdr* header = CMSG_FIRSTHDR(&batch.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size() * sizeof(int));
  return sendmsg(socket.number(), &batch.message, MSG_NOSIGNAL) == sizeof batch.count;
}

// How many came, -1: the page is gone, -2: nothing came.
int receive_batch(const Socket& socket, std::vector<int>* descriptors) {
  Batch batch;
  batch.message.msg_control = batch.control.data();
  batch.message.msg_controllen = batch.control.size();
  if (recvmsg(socket.number(), &batch.message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof batch.count)
    return -2;
  int came = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&batch.message); header != nullptr;
       header = CMSG_NXTHDR(&batch.message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const size_t before = descriptors->size();
    descriptors->resize(before + count);
    std::memcpy(descriptors->data() + before, CMSG_DATA(header), count * sizeof(int));
    came += static_cast<int>(count);
  }
  if (batch.count < 0) return -1;
  return came == batch.count && came > 0 ? came : -2;
}

bool same_user(const Socket& socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0);
}

void answer(const Socket& socket) {
  uint64_t count = 0;
  if (!same_user(socket) || !socket.receive_all(&count, sizeof count) || count > kMostPages) return;
  std::vector<uint64_t> serials(count);
  if (!socket.receive_all(serials.data(), count * sizeof(uint64_t))) return;
  for (size_t first = 0; first < count; first += kBatch) {
    std::vector<int> descriptors;
    bool gone = false;
    for (size_t i = first; i < std::min<size_t>(count, first + kBatch) && !gone; ++i) {
      const int descriptor = core().table->shared_descriptor(serials[i]);
      gone = descriptor < 0;
      if (!gone) descriptors.push_back(descriptor);
    }
    const int32_t refusal = -1;
    const bool sent = gone ? socket.send_all(&refusal, sizeof refusal) : send_batch(socket, descriptors);
    for (const int descriptor : descriptors) close(descriptor);
    if (gone || !sent) return;
  }
}

void serve(int listener) {
  while (true) {
    const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0 && errno != EINTR && errno != ECONNABORTED && errno != EMFILE && errno != ENFILE)
      return;
    if (connection < 0) usleep(10'000);  // without descriptors there is nothing to do but wait for one
    const Socket socket(connection);
    if (socket.valid()) answer(socket);
  }
}

}  // namespace

SocketName start_descriptor_server() {
  SocketName name{};
  if (getrandom(name.data(), sizeof name, 0) != sizeof name) return {};
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return {};
  const Address address = address_of(name);
  if (bind(listener, address.raw(), address.bytes) == 0 && listen(listener, SOMAXCONN) == 0 &&
      start_service_thread([listener] { serve(listener); }))
    return name;
  close(listener);
  return {};
}

std::string ask_descriptor_server(const SocketName& name, int process, const std::vector<uint64_t>& serials,
                                  std::vector<int>* descriptors) {
  const Socket connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address address = address_of(name);
  if (!connection.valid() || connect(connection.number(), address.raw(), address.bytes) != 0)
    return std::string("it does not answer (") + std::strerror(errno) + ")";
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(connection.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.pid != process)
    return "another process answers there";
  const uint64_t count = serials.size();
  if (!connection.send_all(&count, sizeof count) ||
      !connection.send_all(serials.data(), count * sizeof(uint64_t)))
    return "it has stopped listening";
  for (size_t left = count; left > 0;) {
    const int came = receive_batch(connection, descriptors);
    if (came == -1) return "it has freed the memory meanwhile";
    if (came < 0 || static_cast<size_t>(came) > left) return "it stopped answering";
    left -= static_cast<size_t>(came);
  }
  return "";
}

}  // namespace spillway::libtorch
