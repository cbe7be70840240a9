// Which images of device code a binary holds, and which of them a card can run.
//
// The binary is what nvcc embeds: a wrapper that points to a container of images, each machine code (cubin)
// or PTX text for one architecture. A lone cubin and a lone PTX text are read too, as cuModuleLoadData takes
// them.
//
// Thread-safety: pure. Ownership: values; the bytes are only read, and never past `size`. Errors: what is
// malformed has no images. Units: bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway::cards {

struct Image {
  bool ptx = false;
  int sm = 0;          // 80: compute capability 8.0
  char suffix = 0;     // 'a': for this architecture only; 'f': for its family; 0: for later ones too
  uint64_t bytes = 0;  // uncompressed
};

enum class BinaryKind { kWrapper, kContainer, kCubin, kPtx, kUnknown };
// By the first bytes, of which `size` can be read.
BinaryKind kind_of(const void* data, size_t size);

// The container's own size, header included; 0 when there is no container.
uint64_t container_bytes(const void* data, size_t size);
// The images of a container, cubin or PTX text; empty when it is malformed.
std::vector<Image> read_images(const void* data, size_t size);

// A variable of device memory or of constant memory.
struct Variable {
  std::string name;
  uint64_t bytes = 0;
};
// Those that a cubin defines; empty for every other kind of binary.
std::vector<Variable> read_variables(const void* data, size_t size);

// The container behind a wrapper such as __cudaRegisterFatBinary gets; null when it is none.
const void* unwrap(const void* wrapper);

// Machine code runs on the same major capability and on no smaller minor one; PTX is compiled for its own and
// every later capability.
bool runs_on(const Image& image, int major, int minor);
// The image that CUDA takes on a card: machine code before PTX, then the nearest; null when none runs.
const Image* choose_image(const std::vector<Image>& images, int major, int minor);
// "sm_75 sm_80 compute_90"
std::string list_images(const std::vector<Image>& images);

}  // namespace spillway::cards
