#include "trainer/ranks/network/own_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace spillway::trainer {
namespace {

// A datagram socket that is connected knows its own address, by the table of routes alone.
std::string own_address(const addrinfo& there) {
  const int handle = socket(there.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (handle < 0) return "";
  sockaddr_storage here{};
  socklen_t size = sizeof(here);
  auto* address = reinterpret_cast<sockaddr*>(&here);
  char text[NI_MAXHOST] = "";
  const bool known = connect(handle, there.ai_addr, there.ai_addrlen) == 0 &&
                     getsockname(handle, address, &size) == 0 &&
                     getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0;
  close(handle);
  return known ? text : "";
}

}  // namespace

std::string own_address_towards(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  std::string result;
  for (const addrinfo* one = found; one != nullptr && result.empty(); one = one->ai_next)
    result = own_address(*one);
  freeaddrinfo(found);
  return result;
}

}  // namespace spillway::trainer
