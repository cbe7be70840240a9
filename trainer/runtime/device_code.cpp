#include "trainer/runtime/device_code.h"

#include <ATen/DynamicLibrary.h>
#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <memory>
#include <type_traits>

namespace spillway::trainer {
namespace {

template <typename Function>
void find(at::DynamicLibrary& library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(library.sym(name));
}

// What NVRTC says the size of, and then gives; "" where it has none.
template <typename Size, typename Read>
std::string read(Size size, Read fill, nvrtcProgram program) {
  size_t bytes = 0;
  if (size(program, &bytes) != NVRTC_SUCCESS) return "";
  std::string text(bytes, '\0');
  return fill(program, text.data()) == NVRTC_SUCCESS ? text : "";
}

// Of a text the size counts the NUL at its end too.
template <typename Size, typename Read>
std::string read_text(Size size, Read fill, nvrtcProgram program) {
  const std::string text = read(size, fill, program);
  return text.substr(0, text.find('\0'));
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// The first line of a compiler's log that says an error, else the first one.
std::string error_line(const std::string& log) {
  const size_t error = log.find("error");
  const size_t begin = error == std::string::npos ? error : log.rfind('\n', error);
  return first_line(begin == std::string::npos ? log : log.substr(begin + 1));
}

// NVRTC opens its builtins by their bare name, which its own RUNPATH resolves. An interposer of dlopen, as a
// sanitizer is one, opens them in its place and with its own RUNPATH. Builtins that are loaded already are
// found by that name; a compilation says so where there are none.
void load_builtins(at::DynamicLibrary& library) {
  decltype(&nvrtcVersion) version = nullptr;
  find(library, "nvrtcVersion", &version);
  int major = 0, minor = 0;
  Dl_info where{};
  if (version(&major, &minor) != NVRTC_SUCCESS || dladdr(reinterpret_cast<void*>(version), &where) == 0)
    return;
  const std::string name = "libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor);
  const std::filesystem::path beside = std::filesystem::path(where.dli_fname).parent_path() / name;
  dlopen(beside.c_str(), RTLD_LAZY | RTLD_LOCAL);
}

}  // namespace

std::optional<RuntimeCompiler> RuntimeCompiler::load(std::string* error,
                                                     const std::vector<const char*>& libraries) {
  error->clear();
  for (const char* name : libraries) {
    try {
      at::DynamicLibrary library(name, nullptr, /*leak_handle=*/true);
      RuntimeCompiler compiler;
      find(library, "nvrtcCreateProgram", &compiler.create_);
      find(library, "nvrtcCompileProgram", &compiler.compile_);
      find(library, "nvrtcGetProgramLogSize", &compiler.log_bytes_);
      find(library, "nvrtcGetProgramLog", &compiler.log_);
      find(library, "nvrtcGetCUBINSize", &compiler.cubin_bytes_);
      find(library, "nvrtcGetCUBIN", &compiler.cubin_);
      find(library, "nvrtcGetPTXSize", &compiler.ptx_bytes_);
      find(library, "nvrtcGetPTX", &compiler.ptx_);
      find(library, "nvrtcDestroyProgram", &compiler.destroy_);
      load_builtins(library);
      return compiler;
    } catch (const c10::Error& failure) {
      if (error->empty())
        *error = "NVRTC was not found (" + first_line(failure.what_without_backtrace()) + ")";
    }
  }
  return std::nullopt;
}

std::optional<DeviceBinary> RuntimeCompiler::compile(const DeviceSource& source, int capability,
                                                     std::string* error) const {
  std::vector<const char*> texts, names;
  for (size_t i = 1; i < source.files.size(); ++i)
    texts.push_back(source.files[i].text), names.push_back(source.files[i].name);
  nvrtcProgram made = nullptr;
  if (create_(&made, source.files[0].text, source.files[0].name, static_cast<int>(texts.size()), texts.data(),
              names.data()) != NVRTC_SUCCESS)
    return *error = "NVRTC takes no program", std::nullopt;
  const auto destroy = [this](nvrtcProgram program) { destroy_(&program); };
  const std::unique_ptr<std::remove_pointer_t<nvrtcProgram>, decltype(destroy)> program(made, destroy);
  const std::string card = "--gpu-architecture=sm_" + std::to_string(capability);
  const std::array options = {card.c_str(),       "--std=c++20", "--fmad=false",      "--prec-div=true",
                              "--prec-sqrt=true", "--ftz=false", "--ptxas-options=-v"};
  const nvrtcResult compiled = compile_(made, static_cast<int>(options.size()), options.data());
  DeviceBinary binary{.cubin = compiled == NVRTC_SUCCESS ? read(cubin_bytes_, cubin_, made) : "",
                      .ptx = compiled == NVRTC_SUCCESS ? read_text(ptx_bytes_, ptx_, made) : "",
                      .log = read_text(log_bytes_, log_, made)};
  if (!binary.cubin.empty()) return binary;
  *error = "NVRTC does not compile it for compute capability " + std::to_string(capability) + ": " +
           error_line(binary.log);
  return std::nullopt;
}

std::optional<CUfunction> load_kernel(const driver::Table& table, const DeviceBinary& binary,
                                      const char* name, NoKernel* why_not) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUresult result = table.cuModuleLoadData(&module, binary.cubin.data());
  if (result == CUDA_SUCCESS) result = table.cuModuleGetFunction(&function, module, name);
  if (result == CUDA_SUCCESS) return function;
  *why_not = {
      .text = std::string("the driver does not load ") + name + ": " + driver::describe(table, result),
      .may_come_later = result == CUDA_ERROR_OUT_OF_MEMORY};
  return std::nullopt;
}

}  // namespace spillway::trainer
