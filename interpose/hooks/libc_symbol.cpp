#include "interpose/hooks/libc_symbol.h"

#include <elf.h>
#include <link.h>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace spillway::interpose {
namespace {

struct Symbols {
  const ElfW(Sym) * table = nullptr;
  const char* names = nullptr;
  const uint32_t* hash = nullptr;  // DT_GNU_HASH
};

// glibc adds the load address to what the dynamic section of a loaded library says; a C library that does not
// shows offsets.
template <class T>
const T* at(ElfW(Addr) base, ElfW(Addr) value) {
  return reinterpret_cast<const T*>(value < base ? base + value : value);
}

Symbols symbols_of(const dl_phdr_info& object) {
  Symbols found;
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    if (object.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) found.table = at<ElfW(Sym)>(object.dlpi_addr, entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) found.names = at<char>(object.dlpi_addr, entry->d_un.d_ptr);
      if (entry->d_tag == DT_GNU_HASH) found.hash = at<uint32_t>(object.dlpi_addr, entry->d_un.d_ptr);
    }
  }
  return found;
}

uint32_t hash_of(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

// One of the symbol's versions: dlsym and dlvsym are the same code in each.
void* find(const Symbols& symbols, ElfW(Addr) base, const char* name) {
  if (symbols.table == nullptr || symbols.names == nullptr || symbols.hash == nullptr) return nullptr;
  const uint32_t buckets = symbols.hash[0], first = symbols.hash[1], bloom_words = symbols.hash[2];
  const auto* bloom = reinterpret_cast<const ElfW(Addr)*>(symbols.hash + 4);
  const auto* bucket = reinterpret_cast<const uint32_t*>(bloom + bloom_words);
  const uint32_t* chain = bucket + buckets;
  const uint32_t hash = hash_of(name);
  uint32_t index = bucket[hash % buckets];
  if (index < first) return nullptr;
  for (;; ++index) {
    const uint32_t here = chain[index - first];
    const ElfW(Sym)& symbol = symbols.table[index];
    if ((here | 1) == (hash | 1) && symbol.st_shndx != SHN_UNDEF &&
        std::strcmp(symbols.names + symbol.st_name, name) == 0)
      return reinterpret_cast<void*>(base + symbol.st_value);
    if ((here & 1) != 0) return nullptr;
  }
}

struct Search {
  const char* name;
  void* found;
};

// dlsym lives in libc.so.6, before glibc 2.34 in libdl.so.2.
int look_in(dl_phdr_info* object, size_t, void* context) {
  auto& search = *static_cast<Search*>(context);
  const char* slash = object->dlpi_name == nullptr ? nullptr : std::strrchr(object->dlpi_name, '/');
  const char* file = slash == nullptr ? object->dlpi_name : slash + 1;
  if (file == nullptr || (std::strcmp(file, "libc.so.6") != 0 && std::strcmp(file, "libdl.so.2") != 0))
    return 0;
  search.found = find(symbols_of(*object), object->dlpi_addr, search.name);
  return search.found != nullptr ? 1 : 0;
}

}  // namespace

void* libc_symbol(const char* name) {
  Search search{name, nullptr};
  dl_iterate_phdr(look_in, &search);
  return search.found;
}

}  // namespace spillway::interpose
