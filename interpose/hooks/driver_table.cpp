#include "interpose/hooks/driver_table.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "driver/versions.h"
#include "interpose/hooks/hooks.h"
#include "interpose/hooks/libc_symbol.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

struct Export {
  const void* address;
  Function function;
};

struct Loaded {
  driver::Table table;
  void* library = nullptr;
  Export exports[kFunctions];  // by address
  size_t count = 0;
};
// What stands for no driver, and while a thread is loading it.
constinit Loaded nothing{};
std::atomic<const Loaded*> loaded{nullptr};
[[gnu::tls_model("initial-exec")]] thread_local bool loading = false;

int by_address(const void* left, const void* right) {
  const auto* a = static_cast<const Export*>(left);
  const auto* b = static_cast<const Export*>(right);
  if (a->address != b->address) return a->address < b->address ? -1 : 1;
  return static_cast<int>(a->function) - static_cast<int>(b->function);
}

template <class Pointer>
void look_up(void* library, Function function, Pointer& field, Loaded& into) {
  void* address = real_dlsym()(library, name_of(function));
  field = reinterpret_cast<Pointer>(address);
  if (address != nullptr) into.exports[into.count++] = {address, function};
}

void fill(void* library, Loaded& into) {
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) \
  look_up(library, Function::name, into.table.name, into);
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
  std::qsort(into.exports, into.count, sizeof(Export), by_address);
}

// Nobody waits for another thread here: that one may need the loader's lock, which a thread whose library's
// initialiser calls the driver holds. Who comes second has done the same work, and drops it.
const Loaded* load() {
  loading = true;
  const char* named = std::getenv("SPILLWAY_DRIVER");
  void* library = dlopen(named != nullptr && *named != '\0' ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* room = library == nullptr ? MAP_FAILED
                                  : ::mmap(nullptr, sizeof(Loaded), PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const Loaded* mine = &nothing;
  if (room != MAP_FAILED) {
    auto* filled = new (room) Loaded;
    filled->library = library;
    fill(library, *filled);
    mine = filled;
  }
  dlerror();  // what the driver lacks is no error of the program's
  loading = false;
  const Loaded* first = nullptr;
  if (loaded.compare_exchange_strong(first, mine)) return mine;
  if (room != MAP_FAILED) ::munmap(room, sizeof(Loaded));
  return first;
}

// Part of every hooked call's way, and so no call of its own.
[[gnu::always_inline]] inline const Loaded& driver_library() {
  const Loaded* at = loaded.load(std::memory_order_acquire);
  if (at != nullptr) [[likely]]
    return *at;
  return loading ? nothing : *load();
}

const Export* find_export(const Loaded& library, const void* address) {
  size_t low = 0, high = library.count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (library.exports[middle].address < address)
      low = middle + 1;
    else
      high = middle;
  }
  return low < library.count && library.exports[low].address == address ? &library.exports[low] : nullptr;
}

bool is_exported(const Loaded& library, const char* name) {
  for (size_t i = 0; i < library.count; ++i)
    if (std::strcmp(name_of(library.exports[i].function), name) == 0) return true;
  return false;
}

void* hook_named(const char* name) {
  for (size_t i = 0; i < kFunctions; ++i)
    if (std::strcmp(kNames[i], name) == 0) return hook_of(static_cast<Function>(i));
  return nullptr;
}

}  // namespace

LookUp real_dlsym() {
  static std::atomic<LookUp> found{nullptr};
  LookUp at = found.load(std::memory_order_acquire);
  if (at == nullptr) {
    at = reinterpret_cast<LookUp>(libc_symbol("dlsym"));
    if (at == nullptr) give_up("the C library is not glibc: dlsym is not found in it");
    found.store(at, std::memory_order_release);
  }
  return at;
}

VersionedLookUp real_dlvsym() {
  static std::atomic<VersionedLookUp> found{nullptr};
  VersionedLookUp at = found.load(std::memory_order_acquire);
  if (at == nullptr) {
    at = reinterpret_cast<VersionedLookUp>(libc_symbol("dlvsym"));
    if (at == nullptr) give_up("the C library is not glibc: dlvsym is not found in it");
    found.store(at, std::memory_order_release);
  }
  return at;
}

const driver::Table& load_table() {
  const Loaded& library = driver_library();
  if (&library != &nothing) loaded_table.store(&library.table, std::memory_order_release);
  return library.table;
}

bool loading_real() {
  return loading;
}

bool is_driver_name(const char* name) {
  return begins_with(name, "cu") && name[2] >= 'A' && name[2] <= 'Z';  // cudnnCreate is none
}

bool is_driver_function(const char* name) {
  if (!is_driver_name(name)) return false;
  for (const char* known : kNames)
    if (std::strcmp(known, name) == 0) return true;
  return false;
}

bool may_be_drivers(const void* found) {
  Dl_info info{};
  if (dladdr(found, &info) == 0 || info.dli_fname == nullptr) return false;
  const char* slash = std::strrchr(info.dli_fname, '/');
  return begins_with(slash == nullptr ? info.dli_fname : slash + 1, "libcuda");
}

// Not by looking the name up in the driver: dlerror would keep that it is not there.
bool is_unlisted(const void* found, const char* name) {
  const Loaded& library = driver_library();
  Dl_info info{};
  void* owner = nullptr;
  return library.library != nullptr && !is_driver_function(name) &&
         dladdr1(found, &info, &owner, RTLD_DL_LINKMAP) != 0 && owner == library.library;
}

void* hook_for(const void* found, const char* name) {
  const Loaded& library = driver_library();
  const Export* at = find_export(library, found);
  if (at == nullptr) return nullptr;
  // Exports that are the same code have one address: the one of that name, if it is among them.
  const Export* const end = library.exports + library.count;
  for (const Export* same = at; name != nullptr && same < end && same->address == found; ++same)
    if (std::strcmp(name_of(same->function), name) == 0) return hook_of(same->function);
  return hook_of(at->function);
}

// A hook calls what the driver exports under its name: where that is nothing, there is none to give.
void* hook_for(const void* found, const char* base, int cuda_version, bool per_thread) {
  const char* name = driver::export_named(base, cuda_version, per_thread);
  if (void* hook = hook_for(found, name)) return hook;
  const bool known = cuda_version <= CUDA_VERSION && name != nullptr && is_exported(driver_library(), name);
  return known ? hook_named(name) : nullptr;
}

}  // namespace spillway::interpose
