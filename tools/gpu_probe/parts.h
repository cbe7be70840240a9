// The probe's parts: each asks one thing of the machine, in a process of its own.
#pragma once
#include <span>

namespace spillway::probe {

struct Part {
  const char* name;
  const char* asks;  // for people
  double seconds;    // after which it is killed
  void (*run)();
};

// In the order of what decides most.
std::span<const Part> parts();

void ask_facts();
void ask_host_locations();
void ask_page_costs();
void ask_beside_a_kernel();
void ask_host_making();
void ask_copies();
void ask_exchange();
void ask_straddling();
void ask_kernels_on_host_pages();
void ask_mapping_rules();
void ask_sharing();
void ask_addresses();
void ask_free_memory();
void ask_capture();
void ask_destroyed_handles();
void ask_queue();
void ask_full_card();

}  // namespace spillway::probe
