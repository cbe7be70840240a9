// Sharing between processes: one card's room, legacy handles of memory and events.
#include <fcntl.h>
#include <gmock/gmock.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "simulator/cards/machine_file.h"
#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;
using testing::HasSubstr;

// Two processes that pass each other bytes and wait for one another. `maker` runs in a child of its own.
class Pair {
 public:
  Pair() {
    EXPECT_EQ(pipe(to_user_), 0);
    EXPECT_EQ(pipe(to_maker_), 0);
  }
  void maker(const Settings& settings, const std::function<void(const Table&)>& body) {
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ != 0) return;
    for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
    in_maker_ = true;
    body(started_driver());
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  void user(const Settings& settings, const std::function<void(const Table&)>& body) const {
    in_process(settings, [&] { body(started_driver()); });
  }
  template <typename Value>
  void send(const Value& value) const {
    EXPECT_EQ(write(in_maker_ ? to_user_[1] : to_maker_[1], &value, sizeof value), ssize_t{sizeof value});
  }
  template <typename Value>
  Value receive() const {
    Value value = {};
    EXPECT_EQ(read(in_maker_ ? to_maker_[0] : to_user_[0], &value, sizeof value), ssize_t{sizeof value});
    return value;
  }
  void kill_maker() const {
    EXPECT_EQ(kill(child_, SIGKILL), 0);
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
  }
  void join() const {
    int status = 1;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    EXPECT_EQ(status, 0);
  }

 private:
  int to_user_[2], to_maker_[2];
  pid_t child_ = -1;
  bool in_maker_ = false;
};

class File {
 public:
  explicit File(const std::string& content = "")
      : path_("/tmp/spillway-machine-" + std::to_string(getpid())) {
    std::ofstream(path_) << content;
  }
  ~File() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }
  simulator::MachineFile read() const {
    simulator::MachineFile machine = {};
    std::ifstream(path_).read(reinterpret_cast<char*>(&machine), sizeof machine);
    return machine;
  }

 private:
  std::string path_;
};

uint64_t free_bytes(const Table& table) {
  size_t free = 0, total = 0;
  EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
  return free;
}

TEST(SharedMachine, processes_share_the_room_of_a_card) {
  const File file;
  const Settings settings = {{"SPILLWAY_SIM_MACHINE", file.path()},
                             {"SPILLWAY_SIM_CAPACITY", "100MiB"},
                             {"SPILLWAY_SIM_DEVICES", "2"}};
  Pair pair;
  pair.maker(settings, [&](const Table& table) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(table.cuMemAlloc(&memory, 60 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(table.simulator->charge(0, "nccl", 10 * kMiB), CUDA_SUCCESS);
    pair.send('x');
    pair.receive<char>();
    EXPECT_EQ(free_bytes(table), 10 * kMiB) << "what the other took";
    EXPECT_EQ(table.cuMemFree(memory), CUDA_SUCCESS);
    pair.send('x');
    pair.receive<char>();
  });
  pair.user(settings, [&](const Table& table) {
    pair.receive<char>();
    EXPECT_EQ(free_bytes(table), 30 * kMiB);
    CUdeviceptr memory = 0;
    EXPECT_EQ(table.cuMemAlloc(&memory, 32 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(table.simulator->charge(0, "context", 31 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(table.simulator->charge(1, "context", 31 * kMiB), CUDA_SUCCESS) << "the other card is free";
    EXPECT_EQ(table.cuMemAlloc(&memory, 20 * kMiB), CUDA_SUCCESS);
    pair.send('x');
    pair.receive<char>();
    EXPECT_EQ(free_bytes(table), 70 * kMiB);
    pair.send('x');
  });
  pair.join();
}

TEST(SharedMachine, what_a_killed_process_held_is_free) {
  const File file;
  const Settings settings = {{"SPILLWAY_SIM_MACHINE", file.path()}, {"SPILLWAY_SIM_CAPACITY", "100MiB"}};
  Pair pair;
  pair.maker(settings, [&](const Table& table) {
    CUdeviceptr memory = 0;
    EXPECT_EQ(table.cuMemAlloc(&memory, 80 * kMiB), CUDA_SUCCESS);
    pair.send(getpid());
    pause();
  });
  pair.user(settings, [&](const Table& table) {
    const auto maker = pair.receive<pid_t>();
    CUdeviceptr memory = 0;
    EXPECT_EQ(table.cuMemAlloc(&memory, 80 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(kill(maker, SIGKILL), 0);  // nobody waits for it yet: it stays as a zombie
    for (int i = 0; i < 1000 && free_bytes(table) < 100 * kMiB; ++i) usleep(1000);
    EXPECT_EQ(table.cuMemAlloc(&memory, 80 * kMiB), CUDA_SUCCESS);
  });
  int status = 0;
  wait(&status);
}

// A process that ends without a word, having used the first card it sees.
void end_abruptly(const Settings& settings, uint64_t bytes, bool by_signal) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
    const Table& table = started_driver();
    CUdeviceptr memory = 0;
    table.cuMemAlloc(&memory, bytes);
    table.cuMemFree(memory);
    table.cuMemAlloc(&memory, 1000 * kMiB);
    if (by_signal) kill(getpid(), SIGKILL);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
}

TEST(SharedMachine, what_a_process_needed_stays_to_be_read) {
  const File file;
  const Settings settings = {{"SPILLWAY_SIM_MACHINE", file.path()},
                             {"SPILLWAY_SIM_CAPACITY", "100MiB"},
                             {"SPILLWAY_SIM_DEVICES", "2"},
                             {"CUDA_VISIBLE_DEVICES", "1"}};
  end_abruptly(settings, 80 * kMiB, true);
  end_abruptly(settings, 60 * kMiB, false);
  const simulator::MachineFile machine = file.read();
  EXPECT_EQ(machine.places, 2u);
  EXPECT_EQ(machine.cards[1].peak_bytes, 80 * kMiB) << "they did not live at one time";
  EXPECT_EQ(machine.cards[1].capacity_bytes, 100 * kMiB);
  EXPECT_EQ(machine.cards[0].peak_bytes, 0u);
  for (const int i : {0, 1}) {
    const simulator::MachineFile::Use& use = machine.processes[i].uses[1];
    EXPECT_EQ(use.peak_bytes, (i == 0 ? 80 : 60) * kMiB);
    EXPECT_EQ(use.ordinal, 0u);
    EXPECT_EQ(use.refused, 1u);
    EXPECT_EQ(use.refused_bytes, 1000 * kMiB);
  }
}

TEST(SharedMachine, a_full_file_keeps_the_sum_of_those_that_ended) {
  const File file;
  const Settings settings = {{"SPILLWAY_SIM_MACHINE", file.path()}, {"SPILLWAY_SIM_CAPACITY", "100MiB"}};
  end_abruptly(settings, 80 * kMiB, true);
  for (size_t i = 0; i < simulator::kMachineProcesses + 1; ++i) end_abruptly(settings, 2 * kMiB, true);
  const simulator::MachineFile::Card card = file.read().cards[0];
  EXPECT_EQ(card.peak_bytes, 80 * kMiB);
  EXPECT_EQ(card.gone, 2u);
  EXPECT_EQ(card.gone_peak_bytes, 80 * kMiB);
  EXPECT_EQ(card.gone_refused, 2u);
}

TEST(SharedMachine, a_forked_child_counts_for_itself) {
  const File file;
  in_process({{"SPILLWAY_SIM_MACHINE", file.path()}, {"SPILLWAY_SIM_CAPACITY", "100MiB"}}, [] {
    const Table& table = started_driver();
    CUdeviceptr memory = 0;
    EXPECT_EQ(table.cuMemAlloc(&memory, 40 * kMiB), CUDA_SUCCESS);
    const pid_t child = fork();
    if (child == 0) std::exit(0);  // with the destructors of the libraries
    int status = 1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    in_process({}, [&] { EXPECT_EQ(table.cuMemAlloc(&memory, kMiB), CUDA_ERROR_NOT_INITIALIZED); });
    EXPECT_EQ(free_bytes(table), 60 * kMiB);
    EXPECT_EQ(table.cuMemAlloc(&memory, 60 * kMiB), CUDA_SUCCESS);
  });
}

TEST(SharedMachine, a_file_of_something_else_is_refused) {
  const std::string zeros(sizeof(simulator::MachineFile), '\0');
  for (const std::string& content : {std::string("hello"), zeros, std::string(zeros.size(), 'x')}) {
    const File file(content);
    in_process({{"SPILLWAY_SIM_MACHINE", file.path()}}, [&] {
      testing::internal::CaptureStderr();
      EXPECT_EQ(loaded_driver().cuInit(0), CUDA_ERROR_INVALID_VALUE);
      EXPECT_THAT(
          testing::internal::GetCapturedStderr(),
          HasSubstr("SPILLWAY_SIM_MACHINE: the file " + file.path() + " is no machine of this simulator"));
    });
  }
  in_process({{"SPILLWAY_SIM_MACHINE", "/nowhere/at/all"}}, [] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(loaded_driver().cuInit(0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot be opened: No such file"));
  });
}

int64_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

bool lock_whole(int descriptor) {
  struct flock range = {};
  range.l_type = F_WRLCK;
  return fcntl(descriptor, F_SETLK, &range) == 0;
}

TEST(SharedMachine, a_refused_file_is_neither_locked_nor_held) {
  const File file(std::string(100, '\0'));
  in_process({{"SPILLWAY_SIM_MACHINE", file.path()}}, [&] {
    const Table& table = loaded_driver();
    const int64_t before = open_descriptors();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(table.cuInit(0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(open_descriptors(), before);
    in_process({}, [&] { EXPECT_TRUE(lock_whole(open(file.path().c_str(), O_RDWR))); });
    ASSERT_EQ(truncate(file.path().c_str(), 0), 0);
    EXPECT_EQ(table.cuInit(0), CUDA_SUCCESS) << "the program may try again";
  });
}

TEST(SharedMachine, a_file_that_another_keeps_locked_is_refused_in_time) {
  const File file;
  const int held = open(file.path().c_str(), O_RDWR);
  ASSERT_TRUE(lock_whole(held));
  in_process({{"SPILLWAY_SIM_MACHINE", file.path()}}, [&] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(loaded_driver().cuInit(0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("has been locked for 5 s by process " + std::to_string(getppid())));
  });
  close(held);
}

TEST(SharedMachine, wild_numbers_in_the_file_do_no_harm) {
  const File file;
  const Settings settings = {{"SPILLWAY_SIM_MACHINE", file.path()}, {"SPILLWAY_SIM_CAPACITY", "100MiB"}};
  in_process(settings, [] { started_driver(); });
  std::fstream raw(file.path(), std::ios::in | std::ios::out | std::ios::binary);
  raw.seekp(16);
  for (int i = 0; i < 4000; ++i) {
    // Entries that name this test itself, which lives, and charge all there is.
    raw.write("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  }
  raw.close();
  in_process(settings, [] {
    const Table& table = started_driver();
    CUdeviceptr memory = 0;
    EXPECT_EQ(table.cuMemAlloc(&memory, 40 * kMiB), CUDA_SUCCESS) << "no such processes live";
    EXPECT_EQ(table.cuMemFree(memory), CUDA_SUCCESS);
  });
}

class Ipc : public testing::TestWithParam<const char*> {};

TEST_P(Ipc, memory_is_shared_and_charged_once) {
  const File file;
  const Settings settings = {{"SPILLWAY_SIM_VALUES", GetParam()},
                             {"SPILLWAY_SIM_MACHINE", file.path()},
                             {"SPILLWAY_SIM_CAPACITY", "100MiB"}};
  const bool compute = std::string(GetParam()) == "compute";
  Pair pair;
  pair.maker(settings, [&](const Table& table) {
    CUdeviceptr other = 0, memory = 0;
    EXPECT_EQ(table.cuMemAlloc(&other, kPage), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemAlloc(&memory, 2 * kPage + 5), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemsetD8(memory, 42, 2 * kPage + 5), CUDA_SUCCESS);
    CUipcMemHandle handle = {};
    EXPECT_EQ(table.cuIpcGetMemHandle(&handle, memory), CUDA_SUCCESS);
    CUdeviceptr self = 0;
    EXPECT_EQ(table.cuIpcOpenMemHandle_v2(&self, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    pair.send(handle);
    pair.receive<char>();
    unsigned char byte = 0;
    EXPECT_EQ(table.cuMemcpyDtoH(&byte, memory + 2 * kPage + 4, 1), CUDA_SUCCESS);
    EXPECT_EQ(byte, compute ? 43 : 0);
    EXPECT_EQ(table.cuMemFree(memory), CUDA_SUCCESS);
    pair.send('x');
    pair.receive<char>();
  });
  pair.user(settings, [&](const Table& table) {
    const auto handle = pair.receive<CUipcMemHandle>();
    const uint64_t before = free_bytes(table);
    CUdeviceptr memory = 0, again = 0, base = 0;
    ASSERT_EQ(table.cuIpcOpenMemHandle_v2(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), CUDA_SUCCESS);
    EXPECT_EQ(free_bytes(table), before);
    EXPECT_EQ(table.cuIpcOpenMemHandle_v2(&again, handle, 0), CUDA_SUCCESS);
    EXPECT_EQ(again, memory) << "opened twice, it is there once";
    size_t size = 0;
    EXPECT_EQ(table.cuMemGetAddressRange(&base, &size, memory + 100), CUDA_SUCCESS);
    EXPECT_EQ(base, memory);
    EXPECT_EQ(size, 2 * kPage + 5);
    std::vector<unsigned char> bytes(2 * kPage + 5);
    EXPECT_EQ(table.cuMemcpyDtoH(bytes.data(), memory, bytes.size()), CUDA_SUCCESS);
    EXPECT_EQ(bytes, std::vector<unsigned char>(bytes.size(), compute ? 42 : 0));
    EXPECT_EQ(table.cuMemsetD8(memory + 2 * kPage + 4, 43, 1), CUDA_SUCCESS);
    EXPECT_EQ(counts(table).violations, 0u);
    EXPECT_EQ(table.cuMemFree(memory), CUDA_ERROR_INVALID_VALUE) << "it is not this program's";
    EXPECT_EQ(counts(table).violations, 1u);
    EXPECT_EQ(table.cuIpcCloseMemHandle(memory), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemsetD8(memory, 1, 1), CUDA_SUCCESS) << "opened twice, closed once";
    EXPECT_EQ(table.cuIpcCloseMemHandle(memory), CUDA_SUCCESS);
    EXPECT_EQ(table.cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemsetD8(memory, 1, 1), CUDA_ERROR_INVALID_VALUE);
    pair.send('x');
    pair.receive<char>();
    EXPECT_EQ(table.cuIpcOpenMemHandle_v2(&memory, handle, 0), CUDA_ERROR_INVALID_HANDLE)
        << "its maker has freed it";
    pair.send('x');
    EXPECT_EQ(text(table.simulator->leaks), "");
  });
  pair.join();
}

TEST_P(Ipc, a_dead_maker_has_nothing_to_open) {
  const Settings settings = {{"SPILLWAY_SIM_VALUES", GetParam()}};
  Pair pair;
  pair.maker(settings, [&](const Table& table) {
    CUdeviceptr memory = 0;
    CUevent event = nullptr;
    CUipcMemHandle memory_handle = {};
    CUipcEventHandle event_handle = {};
    EXPECT_EQ(table.cuMemAlloc(&memory, kPage), CUDA_SUCCESS);
    EXPECT_EQ(table.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    EXPECT_EQ(table.cuIpcGetMemHandle(&memory_handle, memory), CUDA_SUCCESS);
    EXPECT_EQ(table.cuIpcGetEventHandle(&event_handle, event), CUDA_SUCCESS);
    pair.send(memory_handle);
    pair.send(event_handle);
    pause();
  });
  const auto memory_handle = pair.receive<CUipcMemHandle>();
  const auto event_handle = pair.receive<CUipcEventHandle>();
  pair.kill_maker();
  pair.user(settings, [&](const Table& table) {
    CUdeviceptr memory = 0;
    CUevent event = nullptr;
    EXPECT_EQ(table.cuIpcOpenMemHandle_v2(&memory, memory_handle, 0), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(table.cuIpcOpenEventHandle(&event, event_handle), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST_P(Ipc, wild_handles_are_refused) {
  in_process({{"SPILLWAY_SIM_VALUES", GetParam()}}, [] {
    const Table& table = started_driver();
    CUdeviceptr memory = 0;
    CUevent event = nullptr;
    CUipcMemHandle handle = {};
    CUipcEventHandle event_handle = {};
    EXPECT_EQ(table.cuIpcOpenMemHandle_v2(&memory, handle, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuIpcOpenEventHandle(&event, event_handle), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemAlloc(&memory, kPage), CUDA_SUCCESS);
    EXPECT_EQ(table.cuIpcGetMemHandle(&handle, memory), CUDA_SUCCESS);
    unsigned seed = 1;
    for (int i = 0; i < 1000; ++i) {  // one byte of this process's own handle is another
      CUipcMemHandle wild = handle;
      wild.reserved[rand_r(&seed) % sizeof wild] ^= static_cast<char>(1 + rand_r(&seed) % 255);
      CUdeviceptr opened = 0;
      EXPECT_NE(table.cuIpcOpenMemHandle_v2(&opened, wild, 0), CUDA_SUCCESS);
    }
    EXPECT_EQ(table.cuIpcGetMemHandle(&handle, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(counts(table).violations, 0u);
  });
}

// A page that is mapped, and an allocation: whether each has a handle, and what the driver says of it.
void try_handles(const Table& table, CUresult of_mapped, CUresult of_allocation) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle page = 0;
  CUdeviceptr mapped = 0, allocation = 0;
  EXPECT_EQ(table.cuMemCreate(&page, kPage, &properties, 0), CUDA_SUCCESS);
  EXPECT_EQ(table.cuMemAddressReserve(&mapped, kPage, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(table.cuMemMap(mapped, kPage, 0, page, 0), CUDA_SUCCESS);
  EXPECT_EQ(table.cuMemSetAccess(mapped, kPage, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(table.cuMemAlloc(&allocation, kPage), CUDA_SUCCESS);
  for (const auto& [address, expected] : {std::pair{mapped, of_mapped}, {allocation, of_allocation}}) {
    CUipcMemHandle handle = {};
    unsigned capable = 7;
    EXPECT_EQ(table.cuIpcGetMemHandle(&handle, address), expected);
    EXPECT_EQ(table.cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address),
              CUDA_SUCCESS);
    EXPECT_EQ(capable, expected == CUDA_SUCCESS);
  }
}

TEST(LegacyIpc, mapped_memory_has_none) {
  in_process({{"SPILLWAY_SIM_PROFILE", "no-ipc"}},
             [] { try_handles(started_driver(), CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS); });
}

TEST(LegacyIpc, a_machine_may_have_none_at_all) {
  const File file("[driver]\nlegacy_ipc = \"none\"\n");
  in_process({{"SPILLWAY_SIM_CONFIG", file.path()}}, [] {
    const Table& table = started_driver();
    try_handles(table, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
    int supported = 7;
    EXPECT_EQ(table.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(supported, 0);
    CUevent event = nullptr;
    CUipcEventHandle handle = {};
    EXPECT_EQ(table.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    EXPECT_EQ(table.cuIpcGetEventHandle(&handle, event), CUDA_ERROR_NOT_SUPPORTED);
  });
}

TEST_P(Ipc, events_order_processes) {
  const Settings settings = {{"SPILLWAY_SIM_VALUES", GetParam()}};
  Pair pair;
  pair.maker(settings, [&](const Table& table) {
    CUevent event = nullptr, plain = nullptr;
    CUipcEventHandle handle = {};
    EXPECT_EQ(table.cuEventCreate(&plain, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE) << "with timing";
    EXPECT_EQ(table.cuEventCreate(&plain, CU_EVENT_DEFAULT), CUDA_SUCCESS);
    EXPECT_EQ(table.cuIpcGetEventHandle(&handle, plain), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(table.cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    EXPECT_EQ(table.cuEventRecord(event, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(table.cuIpcGetEventHandle(&handle, event), CUDA_SUCCESS);
    pair.send(handle);
    pair.receive<char>();
  });
  pair.user(settings, [&](const Table& table) {
    CUevent event = nullptr;
    EXPECT_EQ(table.cuIpcOpenEventHandle(&event, pair.receive<CUipcEventHandle>()), CUDA_SUCCESS);
    EXPECT_EQ(table.cuStreamWaitEvent(nullptr, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuEventQuery(event), CUDA_SUCCESS);
    EXPECT_EQ(table.cuEventSynchronize(event), CUDA_SUCCESS);
    EXPECT_EQ(table.cuEventDestroy(event), CUDA_SUCCESS);
    pair.send('x');
  });
  pair.join();
}

INSTANTIATE_TEST_SUITE_P(Modes, Ipc, testing::Values("zeros", "compute"));

}  // namespace
}  // namespace spillway::test
