// Which of this machine's addresses other ranks can reach.
#pragma once
#include <cstdint>
#include <string>

namespace spillway::trainer {

// The address by which this machine reaches `host`, where all ranks meet, as a number; "" where it reaches it
// by none. Nothing is sent.
std::string own_address_towards(const std::string& host, uint16_t port);

}  // namespace spillway::trainer
