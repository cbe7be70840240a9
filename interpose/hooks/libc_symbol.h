// The C library's own dlsym and dlvsym. Nothing that is looked up by name finds them, because this library
// exports functions of the same names: they are read from the C library's symbol table.
//
// Thread-safety: any thread, also before main. Errors: null where the C library is not glibc.
#pragma once

namespace spillway::interpose {

void* libc_symbol(const char* name);

}  // namespace spillway::interpose
