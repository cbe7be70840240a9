// Whether somebody listens at an address.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace spillway::trainer {

// One of its addresses accepts a connection within the time, of each of them. Nothing is sent.
bool accepts_connections(const std::string& host, uint16_t port, std::chrono::milliseconds patience);

}  // namespace spillway::trainer
