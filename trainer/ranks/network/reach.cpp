#include "trainer/ranks/network/reach.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace spillway::trainer {
namespace {

bool accepts(const addrinfo& there, std::chrono::milliseconds patience) {
  const int handle = socket(there.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (handle < 0) return false;
  bool connected = connect(handle, there.ai_addr, there.ai_addrlen) == 0;
  if (!connected && errno == EINPROGRESS) {
    pollfd waiting{.fd = handle, .events = POLLOUT, .revents = 0};
    int error = 0;
    socklen_t size = sizeof(error);
    connected = poll(&waiting, 1, int(patience.count())) == 1 &&
                getsockopt(handle, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  }
  close(handle);
  return connected;
}

}  // namespace

bool accepts_connections(const std::string& host, uint16_t port, std::chrono::milliseconds patience) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return false;
  bool any = false;
  for (const addrinfo* one = found; one != nullptr && !any; one = one->ai_next) any = accepts(*one, patience);
  freeaddrinfo(found);
  return any;
}

}  // namespace spillway::trainer
