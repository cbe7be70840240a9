// Plan: every choice of a training run that decides how much memory it needs, as a value.
//
// A plan says where the bytes of a step lie and how many of them there are at once; it never says what is
// computed. Two runs with the same configuration and the same plan at every step give the same bits.
//
// Thread-safety: values and pure functions. Errors: the parsers return nothing and say in `error` what is
// wrong, on which line, and which key is nearest. Units: bytes; microseconds per step.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/spillway.h"
#include "trainer/plan/architecture.h"

namespace spillway::trainer {

struct Shape;
struct Machine;

// Of a device, for tiles of the optimizer's states: one comes, one is updated, one goes back.
inline constexpr uint32_t kLeastUpdateSlots = 3;

// What a move leaves unchanged in the results; weaker guarantees compare greater. The numbers of spillway.h.
enum class Guarantee : uint8_t {
  kBitExact = SPILLWAY_BIT_EXACT,
  kNumericallyEqual = SPILLWAY_NUMERICALLY_EQUAL,
  kStatisticsChange = SPILLWAY_STATISTICS_CHANGE,
};
const char* name_of(Guarantee guarantee);

// In the order of the time that a copy takes. Peer: the memory of another device of the run (Plan::peers).
enum class Place : uint8_t { kDevice = 0, kPeer = 1, kHost = 2, kNvme = 3 };
const char* name_of(Place place);  // "device", "peer", "host", "nvme"
std::optional<Place> place_of(std::string_view name);

// A field that is added later needs a default that means "as before", so that old plans keep their text and
// hash.
struct Plan {
  uint32_t micro_batch = 1;                  // sequences in one forward and backward; at least 1
  uint32_t evaluation_batch = 1;             // sequences in one forward of the evaluation; at least 1
  std::set<uint32_t> recompute{};            // layers whose activations are computed again in the backward
  Place optimizer = Place::kDevice;          // what it keeps: moments, master weights
  std::map<uint32_t, uint32_t> placement{};  // layer → device index; a layer that is not named is on device 0
  // Layers of which one part alone is computed again; a layer in `recompute` is in neither. One that is in
  // both keeps the inputs of both parts, and has the activations of one at a time.
  std::set<uint32_t> recompute_attention{}, recompute_mlp{};
  // Of so many layers in a row that are computed again, on one device, only the first one's input is kept.
  uint32_t recompute_segment = 1;
  uint32_t head_chunks = 1;  // of the target tokens, one of which has logits at a time; at least 1
  // The layers' weights, and what their gradients are summed in. Where they are elsewhere they are on
  // their device only around their uses (trainer/plan/schedule.h).
  Place parameters = Place::kDevice, gradients = Place::kDevice;
  // Layers of which what they keep for the backward is elsewhere, until it comes to them. Of a segment the
  // first layer counts.
  std::set<uint32_t> offload{};
  // Micro-batches that are under way at a time, so that devices do not wait in turn; at least 1.
  uint32_t pipeline = 1;
  // A layer's update comes right before its next forward, and not at the step's end.
  bool just_in_time = false;
  // Where `offload` takes what layers keep: the host, a peer, or a disk.
  Place offload_to = Place::kHost;
  // Device → the device whose memory has what is on a peer; of a device that is not named it stays there.
  std::map<uint32_t, uint32_t> peers{};
  // In so many the matrices of layers come to their device one after the other, where the host or a disk has
  // weights, gradients and the optimizer's states; at least 1.
  uint32_t tiles = 1;
  // Tiles of the optimizer's states that a device has room for on their way from their home and back. With as
  // many as a layer has tiles, a layer's states come beside the forward of the one before.
  uint32_t update_slots = kLeastUpdateSlots;
  // The host's processor updates layers of which the host has weights, gradients and the optimizer's states.
  bool update_on_host = false;

  bool operator==(const Plan&) const = default;
  uint32_t device_of(uint32_t layer) const;
  uint32_t peer_of(uint32_t device) const;           // itself: it has none
  bool uses_peers() const;                           // something is on a peer, where there is one
  bool recomputes(uint32_t layer, Part part) const;  // alone, or with its layer
  // Whether layers' weights, gradients or activations pass to the host, or a peer, and back. Their order is
  // then that of one micro-batch after the other, and `pipeline` is 1.
  bool streams() const {
    return parameters != Place::kDevice || gradients != Place::kDevice || !offload.empty();
  }
  // What `place` says of things that are on this device lives elsewhere.
  bool is_away(Place place, uint32_t device) const {
    return place != Place::kDevice && (place != Place::kPeer || peer_of(device) != device);
  }
  // Those that are used: further ones are of use where states come from memory, and a forward beside them.
  uint32_t slots_of_update() const {
    const bool are_used = just_in_time && (optimizer == Place::kHost || optimizer == Place::kPeer);
    return are_used && !updates_on_host() ? update_slots : kLeastUpdateSlots;
  }
  bool updates_on_host() const {
    return update_on_host && parameters == Place::kHost && gradients == Place::kHost &&
           optimizer == Place::kHost && tiles == 1;
  }
  // Of layers [layer, end), computed together, of a model of so many: the last of all keep theirs, because
  // their backward begins at once.
  bool offloads(uint32_t layer, uint32_t end, uint32_t layers) const;
  // The layer at whose end what `layer` keeps has left its device: the last one before the device would have
  // more than at the end of the forward, so that the copy has as much time as costs no memory; or the next
  // one in `offload`, if that is later, so that it has all of the time until there is another. In the
  // backward it comes back from there on.
  uint32_t offloaded_until(uint32_t layer, uint32_t layers) const;
  // Behind the last of the layers from `layer` on, up to `end`, that are computed again together.
  uint32_t segment_end(uint32_t layer, uint32_t end) const;

 private:
  uint32_t last_with_room(uint32_t layer, uint32_t layers) const;
};

// Canonical and complete: equal plans have equal texts. "micro_batch=4 evaluation_batch=8 recompute=0-5 ..."
std::string to_string(const Plan& plan);
// The same in every process, build and version: 64-bit FNV-1a of the canonical text.
uint64_t hash(const Plan& plan);
// The keys of a TOML table: `to_toml(p)` parses back to `p`.
std::string to_toml(const Plan& plan);
// A TOML document whose keys are a plan's: micro_batch, evaluation_batch, recompute ("none", "all", the
// number of first layers, or a list of layers), recompute_attention and recompute_mlp (the same),
// recompute_segment, optimizer ("device", "peer", "host" or "nvme"), devices ("first", a list with one index
// a layer, or a table of each device's layers), head_chunks, parameters and gradients (as optimizer), offload
// (as recompute), pipeline, update ("at_commit" or "just_in_time"), offload_to ("peer", "host" or "nvme"),
// peers (a table of devices and the peer of each), tiles, update_slots, update_on ("device" or "host").
// `layers` bounds them. Keys that are absent keep the value that they have in `defaults`.
std::optional<Plan> parse_plan(std::string_view toml, uint32_t layers, const Plan& defaults,
                               std::string* error);

// The plan that every rank can follow when each proposes one: the smallest micro-batches, the unions of
// recompute and offload, the slower place of each kind of state, for each layer and as each peer the highest
// device, the most chunks and tiles, the fewest micro-batches under way and slots, the later update,
// and that on the host. Commutative, associative and idempotent.
Plan join(const Plan& a, const Plan& b);

// Equality of what this returns means sameness: a layer on device 0 is not named, nor a device that is its
// own peer, what nothing goes to is the host, one that is computed again as a whole is not named for its
// parts, a segment has no more layers than there are of those, and one micro-batch is under way where layers
// pass to the host and back. Nothing is in tiles unless the host or a disk has weights, gradients and the
// optimizer's states, slots that are not used are as few as there may be, and what the host has not is not
// updated there.
Plan normalised(Plan plan);

enum class MoveKind : uint8_t {
  kRecomputeMlp,
  kRecomputeAttention,
  kRecompute,
  kRecomputeSegments,
  kActivationsToPeer,
  kOffloadActivations,
  kOptimizerToPeer,
  kOptimizerToHost,
  kOptimizerToNvme,
  kParametersToPeer,
  kParametersToHost,
  kGradientsToPeer,
  kGradientsToHost,
  kParametersToNvme,
  kGradientsToNvme,
  kActivationsToNvme,
  kShiftLayers,
  kShortenPipeline,
  kFewerUpdateSlots,
  kTileLayers,
  kChunkHead,
  kSplitMicroBatch,
  kSplitEvaluation
};
inline constexpr MoveKind kMoveKinds[] = {
    MoveKind::kRecomputeMlp,      MoveKind::kRecomputeAttention, MoveKind::kRecompute,
    MoveKind::kRecomputeSegments, MoveKind::kActivationsToPeer,  MoveKind::kOffloadActivations,
    MoveKind::kOptimizerToPeer,   MoveKind::kOptimizerToHost,    MoveKind::kOptimizerToNvme,
    MoveKind::kParametersToPeer,  MoveKind::kParametersToHost,   MoveKind::kGradientsToPeer,
    MoveKind::kGradientsToHost,   MoveKind::kParametersToNvme,   MoveKind::kGradientsToNvme,
    MoveKind::kActivationsToNvme, MoveKind::kShiftLayers,        MoveKind::kShortenPipeline,
    MoveKind::kFewerUpdateSlots,  MoveKind::kTileLayers,         MoveKind::kChunkHead,
    MoveKind::kSplitMicroBatch,   MoveKind::kSplitEvaluation};
const char* name_of(MoveKind kind);
Guarantee guarantee_of(MoveKind kind);

struct Move {
  MoveKind kind{};
  Plan to;
  std::string name;
  Guarantee guarantee{};
  uint64_t bytes_freed = 0;  // predicted, of the device's peak; 0 for a move that only helps the evaluation
  uint64_t evaluation_bytes_freed = 0;  // predicted, of the device's peak while evaluating
  uint64_t cost_us = 0;  // predicted: what is redone now, and what a step takes longer from here on
};

// The plans one move away when `device` is short of memory, cheapest first (ties by guarantee, then by kind),
// none weaker than `floor`. Empty when there is nothing left to do.
std::vector<Move> neighbours(const Plan& plan, const Shape& shape, const Machine& machine, Guarantee floor,
                             uint32_t device = 0);

}  // namespace spillway::trainer
