// What one rehearsed process left: the probe's result (PyTorch's own figures, exact) and the simulator's
// report (the whole card, exact pages and modelled parts).
//
// Thread-safety: plain values. Ownership: none. Errors: a file that cannot be read, or is not what it should
// be, is a line in `damaged`, and the rest is used. Units: bytes.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace spillway::tools {

struct Frame {
  std::string function, file;
  uint64_t line = 0;
};

// Where memory was asked for or values were read: a Python stack, innermost first, or a label.
struct Place {
  std::string label;
  std::vector<Frame> frames;
};

struct Held {
  std::optional<uint32_t> place;  // nothing: the places too small to be listed, together
  uint64_t bytes = 0, blocks = 0;
};

struct Point {
  uint64_t last_event = 0, allocated = 0, reserved = 0;
};

// PyTorch's view of one device.
struct AllocatorView {
  uint64_t events = 0, peak_allocated = 0, peak_reserved = 0, peak_step = 0, segments_freed = 0;
  uint64_t retries = 0, failures = 0;  // requests repeated with an emptied cache; requests not served
  std::string stream_hash;
  std::vector<Held> held_at_peak;
  // Of the peak: what an optimizer's steps have shown to be that. The rest is activations and all else.
  uint64_t parameters = 0, gradients = 0, optimizer_state = 0;
  std::vector<Point> timeline, steps;
};

// The simulated driver's.
struct CardView {
  std::string card;  // "" where only a capacity was given
  int physical = 0;  // its number in the machine
  uint64_t capacity = 0, peak = 0, refused = 0;
  std::map<std::string, uint64_t> refused_parts;             // by label; the other refusals are of pages
  uint64_t first_refused_bytes = 0, first_refused_free = 0;  // of the first refusal
  // What PyTorch's allocator had of that peak, and the most that all others had, which may be at another
  // moment.
  uint64_t allocator_at_peak = 0, outside_peak = 0;
  uint64_t machine_peak = 0;  // of all processes, as far as this one saw
  std::map<std::string, uint64_t> modelled_at_peak;
};

struct DeviceObservation {
  int ordinal = 0;
  std::optional<AllocatorView> allocator;
  std::optional<CardView> card;
};

struct Failure {
  int device = 0;
  uint64_t requested = 0, allocated = 0, reserved = 0, device_free = 0, limit = 0, step = 0;
  uint32_t place = 0;
  std::vector<Held> held;
};

// A copy is of a tensor, or of whatever no operator of PyTorch asked for; a bulk copy is one of more than 1
// MiB. A number was printed or calculated with; a branch is where the program then decided by one.
enum class ReadKind { kShape, kValue, kCopy, kBulk, kNumber, kBranch };
struct Read {
  uint32_t place = 0;
  ReadKind kind = ReadKind::kCopy;
  uint64_t count = 0, bytes = 0;
};

// What the simulated driver counted, whoever asked: copies that the program may read values from, and larger
// ones.
struct DriverReads {
  std::string site;  // in the program's machine code
  uint64_t small = 0, bulk = 0;
};

struct Observation {
  int64_t pid = 0;
  std::optional<int64_t> rank;
  uint64_t unreported = 0;  // processes that this stands for, of which only the machine's file tells
  bool has_probe = false, has_python = false, complete = false, ended_by_steps = false;
  std::string values;  // the simulator's mode
  // Of PyTorch's native allocator: it may ask the card twice before it empties its cache.
  bool expandable_segments = false, splits_are_limited = false;
  std::string problem, allocator;  // why there are no sites; the allocator's name
  std::string stream_error;        // why the stream of allocations is not whole
  std::string architectures;       // that PyTorch has kernels for: "sm_75 sm_80 compute_120"; "" is not known
  uint64_t steps = 0, failure_count = 0;
  uint64_t checkpointed_models = 0;  // by the probe, in a run that tries it
  std::vector<Failure> failures;
  std::string uncaught_type, uncaught_message;
  bool uncaught_out_of_memory = false;  // PyTorch's error, or one raised because of it
  bool uncaught_names_memory = false;   // the text of an error that a refused request leads to
  std::vector<Read> reads;
  std::vector<DriverReads> driver_reads;
  uint64_t assumed_sizes = 0;  // taken as the most that they can be: masks that nobody computed are all true
  std::map<std::string, uint64_t> uncomputed;  // with true values: launches by kernels that nobody computed
  std::string other_runtime;  // the file whose CUDA runtime is not the simulated one: its calls failed
  std::map<uint32_t, Place> places;
  std::map<int, DeviceObservation> devices;
  std::string history;  // the file with every event (history.h), "" without

  bool used_devices() const;
  uint64_t peak_of(int device) const;  // of the whole card
};

// Reads every result in `folder`; processes that used no device and have nothing to say are left out. By
// rank, then process.
std::vector<Observation> read_observations(const std::string& folder, std::vector<std::string>* damaged);

// Names the files with every event, where there are any.
void find_histories(const std::string& folder, std::vector<Observation>* processes);

// The names that the probe and the simulator are told, in `folder`.
std::string probe_pattern(const std::string& folder);
std::string history_pattern(const std::string& folder);
std::string simulator_pattern(const std::string& folder);

}  // namespace spillway::tools
