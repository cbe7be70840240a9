// Every NCCL function has a twin with a p in front, for profilers that replace the first and call the second.
//
// Thread-safety, ownership, errors, units: none.
#pragma once

#define SPILLWAY_NCCL_PROFILED(result, name, parameters) \
  extern "C" result p##name parameters __attribute__((alias(#name)));
