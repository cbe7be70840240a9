// spillway-serve --model FOLDER
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/command_line/option_checks.h"
#include "trainer/app/results.h"
#include "trainer/plan/toml/strict_table.h"
#include "trainer/serve/api/jobs.h"
#include "trainer/serve/app/generate.h"
#include "trainer/serve/engine/cache_size.h"
#include "trainer/serve/engine/placement.h"
#include "trainer/serve/evaluate/perplexity.h"
#include "trainer/serve/http/server.h"

namespace spillway::trainer::serve {
namespace {

struct Options {
  ModelOptions model;
  CacheOptions cache;
  BatchLimits batch;
  ServerOptions server;
  PerplexityOptions perplexity;
  std::string device = "cuda", device_map, type = "fp32", name, limit, cache_bytes, requests;
  uint32_t blocks = 0, devices = 0, threads = 0;
};

const std::map<std::string, at::ScalarType> kTypes = {
    {"fp32", at::kFloat}, {"bf16", at::kBFloat16}, {"fp16", at::kHalf}};

// What is wrong with the command line or the machine.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

uint64_t bytes_of_text(const std::string& option, const std::string& text) {
  if (text.empty()) return 0;
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes == 0) throw UsageError(option + ": '" + text + "' is no size, such as 2GiB");
  return *bytes;
}

// All that a map may name: those that were asked for, or else every one where there is a map, and one
// without.
std::vector<at::Device> gpus(const Options& options) {
  const size_t found = at::globalContext().hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0;
  if (found == 0) throw UsageError("no CUDA device: run under 'spillway simulate', or give --device cpu");
  if (options.devices > found)
    throw UsageError("--devices is " + std::to_string(options.devices) + ", but there are only " +
                     std::to_string(found));
  const size_t used = options.devices ? options.devices : options.device_map.empty() ? 1 : found;
  std::vector<at::Device> devices;
  devices.reserve(used);
  for (size_t i = 0; i < used; ++i) devices.emplace_back(at::kCUDA, static_cast<at::DeviceIndex>(i));
  return devices;
}

// What weights, cache and steps may fill there. Without a core there is none to ask.
uint64_t room_of(at::Device device, double utilization) {
  at::empty({1}, at::TensorOptions().device(device));  // what others have there is known once it is used
  spillway_memory memory;
  if (!Core::get().query(device.index(), &memory)) return 0;
  const double bytes = double(memory.limit) * utilization - double(memory.context) - double(memory.others);
  return uint64_t(std::max(0.0, bytes));
}

DeviceMap placed(const Options& options, const Architecture& model) {
  ServedSizes sizes{.number_bytes = uint32_t(c10::elementSize(options.model.type)),
                    .sequences = options.batch.sequences,
                    .rooms = {}};
  for (const at::Device device : options.model.devices)
    sizes.rooms.push_back(room_of(device, options.cache.memory_utilization));
  std::string error;
  const auto map =
      served_map(options.device_map.empty() ? "balanced" : options.device_map, model, sizes, &error);
  if (!map) throw UsageError(error);
  if (sizes.rooms.size() == 1) return *map;
  for (uint32_t device = 0; device < sizes.rooms.size(); ++device)
    std::fprintf(stderr, "%s: %s, weights of %.1f MiB\n", options.model.devices[device].str().c_str(),
                 layers_in_words(model, *map, device).c_str(),
                 double(weight_bytes(model, *map, device, sizes.number_bytes)) / 0x1p20);
  return *map;
}

void choose_devices(Options* options) {
  std::string error;
  at::set_num_threads(options->threads ? int(options->threads) : at::get_num_threads());
  const uint64_t limit = bytes_of_text("--limit", options->limit);
  options->cache.bytes = bytes_of_text("--cache", options->cache_bytes);
  options->model.type = kTypes.at(options->type);
  if (options->device == "cpu") {
    if (limit) throw UsageError("--limit is of a card's memory, and --device is cpu");
    if (options->devices || !options->device_map.empty())
      throw UsageError("--devices and --device-map are of GPUs, and --device is cpu");
    return;
  }
  if (!Core::install("", &error)) throw UsageError(error);
  options->model.devices = gpus(*options);
  for (const at::Device device : options->model.devices)
    if (limit && Core::get().limit(device.index(), limit) != SPILLWAY_OK)
      throw UsageError(Core::get().last_error());
  options->model.place = [options](const Architecture& model) { return placed(*options, model); };
}

std::unique_ptr<Engine> make_engine(const Options& options, const ServedModel& model) {
  std::string told;
  const uint32_t blocks =
      options.blocks ? options.blocks : cache_blocks(model, options.cache, options.batch, Core::get(), &told);
  if (!told.empty()) std::fprintf(stderr, "%s\n", told.c_str());
  return std::make_unique<Engine>(model, blocks, options.batch);
}

std::string name_of_model(const Options& options) {
  if (!options.name.empty()) return options.name;
  const std::filesystem::path folder = std::filesystem::path(options.model.folder + "/").parent_path();
  return folder.filename().string();
}

int serve(Options options, const CLI::App& app) {
  choose_devices(&options);
  const auto server = app.get_subcommands().empty() ? std::make_unique<HttpServer>(options.server) : nullptr;
  std::string error;
  const auto model = ServedModel::open(options.model, &error);
  if (!model) throw UsageError(error);
  if (app.got_subcommand("perplexity")) return print_perplexity(*model, options.perplexity);
  auto engine = make_engine(options, *model);
  const ModelCard card = card_of(*model, name_of_model(options), engine->stats().blocks);
  if (app.got_subcommand("generate")) return generate(options.requests, card, engine.get());
  const auto listening = [&](const std::string& address) {
    std::printf("%s serves %s\n", address.c_str(), card.name.c_str());
    std::fflush(stdout);
  };
  return server->serve(card, std::move(engine), listening) ? kExitDone : kExitError;
}

void add_options(CLI::App* app, Options* options) {
  app->fallthrough();
  app->add_option("--model", options->model.folder, "a folder of transformers, or of a training's run.save");
  app->add_option("--device", options->device, "cuda or cpu")->check(CLI::IsMember({"cuda", "cpu"}));
  app->add_option("--devices", options->devices, "GPUs that the layers are spread over; 1 without a map")
      ->check(CLI::Range(1, 64));
  app->add_option(
      "--device-map", options->device_map,
      "which layers lie where: balanced, even, first, a list or a table; balanced if it is left out");
  app->add_option("--dtype", options->type, "the numbers of weights and cache: fp32, bf16 or fp16")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  app->add_option("--context", options->model.context, "tokens; the model's own if it is left out");
  app->add_option("--threads", options->threads, "of the CPU's kernels; as many as cores if it is left out");
  app->add_option("--limit", options->limit, "bytes of each card that may be used, such as 20GiB");
  app->add_option("--memory-utilization", options->cache.memory_utilization,
                  "the share of the card, or of the limit, that weights, cache and steps may fill")
      ->check(number_between(0.05, 1.0));
  app->add_option("--cache", options->cache_bytes, "bytes of the cache, in place of the utilization");
  app->add_option("--blocks", options->blocks, "the same, in blocks of 16 tokens");
  app->add_option("--max-sequences", options->batch.sequences, "that run together")
      ->check(CLI::Range(1, 4096));
  app->add_option("--prefill-tokens", options->batch.prefill_tokens, "of prompts in one step")
      ->check(CLI::Range(16, 1 << 20));
}

void add_server_options(CLI::App* app, Options* all) {
  app->add_option("--host", all->server.host, "the address to listen on");
  app->add_option("--port", all->server.port, "0: any that is free")->check(CLI::Range(0, 65535));
  app->add_option("--name", all->name, "of the model; the folder's if it is left out");
  app->add_option("--max-body", all->server.most_body_bytes, "bytes of a request");
  app->add_option("--max-waiting", all->server.most_waiting, "sequences that may wait; more are refused");
  app->add_option("--max-connections", all->server.most_connections, "clients at a time");
  app->add_option("--drain-seconds", all->server.drain_seconds, "that requests have after SIGTERM");
}

int run(int argc, char** argv) {
  CLI::App app(
      "Serves a GPT-2, a Llama or a T5 over the completions interface, or makes text for a file of requests, "
      "or "
      "measures a text.\nExit codes: 0 done or drained, 1 error, 2 usage, 17 out of memory.");
  Options options;
  add_options(&app, &options);
  add_server_options(&app, &options);
  CLI::App* generate = app.add_subcommand("generate", "answers a file of requests, and ends");
  generate->add_option("requests", options.requests, "a request a line, as JSON; -: standard input")
      ->required()
      ->check([](const std::string& path) { return path == "-" ? std::string() : CLI::ExistingFile(path); });
  CLI::App* perplexity = app.add_subcommand("perplexity", "of a text, by strided windows");
  perplexity->add_option("file", options.perplexity.file, "a text, or a file of spillway.tokenize")
      ->required()
      ->check(CLI::ExistingFile);
  perplexity->add_option("--window", options.perplexity.context, "tokens; the context if it is left out");
  perplexity->add_option("--stride", options.perplexity.stride,
                         "tokens; half of the window if it is left out");
  app.require_subcommand(0, 1);
  try {
    app.parse(argc, argv);
    // Behind the parsing, which names an option that is misspelt.
    if (options.model.folder.empty()) throw CLI::RequiredError("--model");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitUsage;
  }
  if (const std::string wrong = wrong_empty_option(app); !wrong.empty()) throw UsageError(wrong);
  return serve(std::move(options), app);
}

int code_of(int argc, char** argv, std::string* error) {
  try {
    return run(argc, argv);
  } catch (const UsageError& usage) {
    *error = usage.what();
    return kExitUsage;
  } catch (const NoRoomError& room) {
    *error = room.what();
    return kExitOutOfMemory;
  } catch (const c10::OutOfMemoryError& memory) {
    *error = std::string("no room for the weights and the cache: ") + memory.what_without_backtrace();
    return kExitOutOfMemory;
  } catch (const c10::Error& libtorch) {
    *error = libtorch.what_without_backtrace();
  } catch (const std::exception& other) {
    *error = other.what();
  }
  return kExitError;
}

}  // namespace
}  // namespace spillway::trainer::serve

int main(int argc, char** argv) {
  std::string error;
  int code = spillway::trainer::serve::code_of(argc, argv, &error);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    error += std::string(error.empty() ? "" : "; ") + "the output could not be written to its end";
    code = spillway::trainer::kExitError;
  }
  if (!error.empty()) std::fprintf(stderr, "spillway-serve: %s\n", error.c_str());
  return code;
}
