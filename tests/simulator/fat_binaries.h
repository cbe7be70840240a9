// Fat binaries as nvcc lays them out, for tests: the layout is written down here a second time on purpose.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace spillway::test {

struct ImageSpec {
  int kind;  // 1: PTX, 2: machine code
  int sm;
  char suffix = 0;
  uint64_t payload = 64;
  uint64_t uncompressed = 0;  // other than 0: compressed
};

// At most 8 bytes.
inline void append(std::string& out, uint64_t value, size_t bytes) {
  out.append(reinterpret_cast<const char*>(&value), bytes);
}

inline std::string container(const std::vector<ImageSpec>& images) {
  std::string body;
  for (const ImageSpec& image : images) {
    append(body, static_cast<uint64_t>(image.kind), 2);
    append(body, 0x0101, 2);
    append(body, 64, 4);
    append(body, image.payload, 8);
    append(body, image.uncompressed ? image.payload : 0, 4);
    append(body, 0, 4);
    append(body, 8, 2);
    append(body, 1, 2);
    append(body, static_cast<uint64_t>(image.sm), 4);
    append(body, 0, 8);
    append(body,
           (image.suffix == 'a'   ? 0x100000u
            : image.suffix == 'f' ? 0x200000u
                                  : 0u) |
               (image.uncompressed ? 0x8011u : 0x11u),
           8);
    append(body, 0, 8);
    append(body, image.uncompressed, 8);
    body.append(image.payload, 'x');
  }
  std::string text;
  append(text, 0xba55ed50u, 4);
  append(text, 1, 2);
  append(text, 16, 2);
  append(text, body.size(), 8);
  return text + body;
}

struct FatBinary {
  uint32_t magic = 0x466243b1, version = 1;
  const void* data = nullptr;
  const void* more = nullptr;
};

// The header of a cubin as nvcc of CUDA 13 writes it, and as CUDA 12's did.
inline std::string cubin(int sm, bool new_abi = true) {
  std::string header(64, '\0');
  std::memcpy(header.data(),
              "\x7f"
              "ELF\x02\x01\x01",
              7);
  header[7] = new_abi ? '\x41' : '\x33';
  header[18] = static_cast<char>(190);
  header[new_abi ? 49 : 48] = static_cast<char>(sm);
  return header;
}

// A section's header, with what a symbol table has in it.
inline void append_section(std::string& out, uint32_t type, uint64_t offset, uint64_t bytes,
                           uint32_t link = 0) {
  append(out, 0, 4);
  append(out, type, 4);
  append(out, 0, 8);  // flags and address
  append(out, 0, 8);
  append(out, offset, 8);
  append(out, bytes, 8);
  append(out, link, 4);
  append(out, 0, 4);
  append(out, 8, 8);
  append(out, type == 2 ? 24 : 0, 8);
}

// A cubin of three sections that defines one variable.
inline std::string cubin_with_variable(int sm, const std::string& name, uint64_t bytes) {
  constexpr uint64_t kHeader = 64, kSymbol = 24;
  std::string text = cubin(sm), symbols(kSymbol, '\0');
  append(symbols, 1, 4);
  append(symbols, 0x11, 1);  // an object that others see
  append(symbols, 0, 1);
  append(symbols, 1, 2);
  append(symbols, 0, 8);
  append(symbols, bytes, 8);
  const std::string strings = std::string(1, '\0') + name + std::string(1, '\0');
  const uint64_t sections = kHeader + symbols.size() + strings.size();
  std::memcpy(text.data() + 40, &sections, sizeof sections);
  text[60] = 3;
  text += symbols + strings;
  append_section(text, 0, 0, 0);
  append_section(text, 2, kHeader, symbols.size(), 2);
  append_section(text, 3, kHeader + symbols.size(), strings.size());
  return text;
}

}  // namespace spillway::test
