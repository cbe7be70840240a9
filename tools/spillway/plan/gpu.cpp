#include "tools/spillway/plan/gpu.h"

#include <algorithm>
#include <cctype>

#include "simulator/cards/cards.h"
#include "simulator/cards/overheads.h"
#include "tools/spillway/suggest.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr int kOldestKernels = 75;  // CUDA 13 compiles for Turing and later
constexpr double kTera = 1e12, kGiga = 1e9;

uint64_t outside_of(const cards::Card& card) {
  uint64_t bytes = 0;
  for (const char* row : {"context", "cublas.handle", "cublas.library", "cublaslt.library"})
    if (const cards::Overhead* overhead = cards::find_overhead(row, card.major))
      bytes += bytes_of(*overhead, card);
  return bytes;
}

// 64 lanes for 32-bit floats in Volta, Turing and the A100, 128 in all others; an operation is half of a
// multiply-add.
double fp32_of(const cards::Card& card) {
  const bool has_64 = card.major == 7 || (card.major == 8 && card.minor == 0);
  return 2.0 * (has_64 ? 64 : 128) * card.multiprocessors * card.clock_khz * 1e3;
}

Gpu simulated(const char* id, double tf32, double half) {
  Gpu gpu;
  gpu.id = id;
  gpu.tf32 = tf32 * kTera, gpu.half = half * kTera;
  const cards::Card* card = cards::find_card(id);
  if (card == nullptr) return gpu;
  gpu.bf16 = card->major >= 8 ? gpu.half : 0;  // Ampere was the first with bfloat16
  gpu.has_kernels = card->major * 10 + card->minor >= kOldestKernels;
  gpu.name = card->name;
  gpu.capacity_bytes = card->capacity_bytes;
  gpu.outside_bytes = outside_of(*card);
  gpu.fp32 = fp32_of(*card);
  gpu.memory = cards::memory_gbs(*card) * kGiga;
  gpu.host = card->host_gbs * kGiga;
  gpu.peer = card->peer_gbs * kGiga;
  gpu.workspace_bytes = card->major >= 9 && card->major < 12 ? uint64_t{32} << 20 : kProductWorkspace;
  return gpu;
}

struct Sheet {
  const char *id, *name;
  uint64_t framebuffer_mib;
  int multiprocessors;
  double memory, host, fp32, tf32, half;
};

// The driver keeps 2 to 3% of the framebuffer on all cards whose capacity is known.
Gpu of_sheet(const Sheet& sheet) {
  cards::Card like{};
  like.major = 8, like.minor = 6;
  like.multiprocessors = sheet.multiprocessors;
  return {.id = sheet.id,
          .name = sheet.name,
          .capacity_bytes = (sheet.framebuffer_mib << 20) / 40 * 39,
          .outside_bytes = outside_of(like),
          .fp32 = sheet.fp32 * kTera,
          .tf32 = sheet.tf32 * kTera,
          .half = sheet.half * kTera,
          .bf16 = sheet.half * kTera,
          .memory = sheet.memory * kGiga,
          .host = sheet.host * kGiga,
          .peer = sheet.host * kGiga,
          .workspace_bytes = kProductWorkspace};
}

std::string letters_of(const std::string& text) {
  std::string plain;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)))
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

std::vector<const Gpu*> that_contain(const std::string& text) {
  const std::string wanted = letters_of(text);
  std::vector<const Gpu*> found;
  for (const Gpu& gpu : gpus()) {
    const std::string id = letters_of(gpu.id), name = letters_of(gpu.name);
    if (id == wanted || name == wanted) return {&gpu};
    if (wanted.size() > 1 && (id.find(wanted) != std::string::npos || name.find(wanted) != std::string::npos))
      found.push_back(&gpu);
  }
  return found;
}

// A card without a name, of which a training may use all.
Gpu of_size(uint64_t bytes) {
  const trainer::Machine usual;
  return {.id = size_text(bytes),
          .name = "card of " + size_text(bytes) + " for the training",
          .capacity_bytes = bytes,
          .outside_bytes = 0,
          .fp32 = usual.flops / kAchievedOperations,
          .tf32 = 0,
          .half = 0,
          .bf16 = 0,
          .memory = usual.memory_bytes_per_second / kAchievedMemory,
          .host = usual.host_bytes_per_second,
          .peer = usual.peer_bytes_per_second,
          .workspace_bytes = kProductWorkspace};
}

double operations_of(const Gpu& gpu, trainer::Precision precision) {
  switch (precision) {
    case trainer::Precision::kFloat32:
      return gpu.fp32;
    case trainer::Precision::kTf32:
      return gpu.tf32;
    case trainer::Precision::kFp16Mixed:
      return gpu.half;
    case trainer::Precision::kBf16Mixed:
    case trainer::Precision::kBf16:
    case trainer::Precision::kInt8:  // its products are of bfloat16
      return gpu.bf16;
  }
  return 0;
}

std::string unknown_gpu(const std::string& text, const std::vector<const Gpu*>& several) {
  std::string message = "'" + text + "' is " + (several.empty() ? "no card" : "not one card");
  if (!several.empty()) {
    message += ": it may be";
    for (const Gpu* gpu : several) message += " " + gpu->id;
    return message;
  }
  std::vector<std::string> ids;
  for (const Gpu& gpu : gpus()) ids.push_back(gpu.id);
  message += " and no size." + did_you_mean(text, ids) + " Cards are";
  for (const std::string& id : ids) message += " " + id;
  return message + "; a size is " + kSizesAccepted;
}

}  // namespace

const std::vector<Gpu>& gpus() {
#define SPILLWAY_SPEED(id, tf32, half) simulated(id, tf32, half),
#define SPILLWAY_CARD_OF_SHEET(...) of_sheet({__VA_ARGS__}),
  static const std::vector<Gpu> all = {
#include "tools/spillway/plan/speeds.inc"
  };
#undef SPILLWAY_SPEED
#undef SPILLWAY_CARD_OF_SHEET
  return all;
}

std::optional<Gpu> find_gpu(const std::string& text, std::string* error) {
  const std::vector<const Gpu*> found = that_contain(text);
  if (found.size() == 1) return *found[0];
  const bool has_unit = !text.empty() && std::isalpha(static_cast<unsigned char>(text.back()));
  if (found.empty() && has_unit)  // a plain number is rather a card's, mistyped
    if (const auto bytes = parse_size(text)) return of_size(*bytes);
  *error = unknown_gpu(text, found);
  return std::nullopt;
}

std::string note_on(const Gpu& gpu, trainer::Precision precision) {
  if (!gpu.has_kernels)
    return "cannot run there with PyTorch for CUDA 13, which has no kernels for cards older than Turing";
  // Of a size alone nothing is known.
  if (operations_of(gpu, precision) > 0 || gpu.half == 0) return "";
  const char* type = precision == trainer::Precision::kTf32 ? "TF32" : "bfloat16";
  return std::string("it has no tensor cores for ") + type + ": " + trainer::name_of(precision) +
         " products take at least as long as those of fp32";
}

trainer::Machine machine_of(const Gpu& gpu, uint32_t count, trainer::Precision precision) {
  const double operations = operations_of(gpu, precision);
  return {.devices = count,
          .workspace_bytes = gpu.workspace_bytes,
          .flops = (operations > 0 ? operations : gpu.fp32) * kAchievedOperations,
          .host_bytes_per_second = gpu.host,
          .peer_bytes_per_second = gpu.peer,
          .memory_bytes_per_second = gpu.memory * kAchievedMemory,
          .launch_seconds = trainer::Machine().launch_seconds,
          .device_bytes = gpu.capacity_bytes - std::min(gpu.capacity_bytes, gpu.outside_bytes),
          .host_bytes = 0};
}

}  // namespace spillway::tools
