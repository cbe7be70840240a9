// Where the layers of a served model lie: a map by name or layer by layer, as a training's `plan.devices`
// (trainer/plan/device_map.h). "balanced" is by what a server needs of a device: the weights of its layers,
// and as large a cache on each as the others can use.
//
// Thread-safety: pure functions. Errors: texts that name the option. Units: bytes.
#pragma once
#include <string>
#include <vector>

#include "trainer/plan/device_map.h"

namespace spillway::trainer::serve {

struct ServedSizes {
  uint32_t number_bytes = 4;    // of a weight, and of a number in the cache
  uint32_t sequences = 1;       // whose logits the first device has at once
  std::vector<uint64_t> rooms;  // that weights, cache and steps may fill, of each device
};

// Of the weights of a device's layers; the first device has the embedding and the head too.
uint64_t weight_bytes(const Architecture& model, const DeviceMap& map, uint32_t device,
                      uint32_t number_bytes);
// The layers of a device in words, "layers 0 to 5", "layer 3"; of a T5 the decoder's behind the encoder's.
std::string layers_in_words(const Architecture& model, const DeviceMap& map, uint32_t device);

// `text`: "first", "even", "balanced", a list or a table. Nothing and `*error` where it cannot be that.
std::optional<DeviceMap> served_map(const std::string& text, const Architecture& model,
                                    const ServedSizes& sizes, std::string* error);

}  // namespace spillway::trainer::serve
