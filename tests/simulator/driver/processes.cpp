// Fork, threads, pages between processes, and the report at the end of a process.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;
using testing::AllOf;
using testing::HasSubstr;

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemGenericAllocationHandle shareable_page(const Table& table) {
  CUmemAllocationProp prop = device_page();
  prop.requestedHandleTypes = kDescriptor;
  CUmemGenericAllocationHandle page = 0;
  EXPECT_EQ(table.cuMemCreate(&page, kPage, &prop, 0), CUDA_SUCCESS);
  return page;
}

CUdeviceptr mapped(const Table& table, CUmemGenericAllocationHandle page) {
  CUdeviceptr address = 0;
  const CUmemAccessDesc access = read_write();
  EXPECT_EQ(table.cuMemAddressReserve(&address, kPage, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(table.cuMemMap(address, kPage, 0, page, 0), CUDA_SUCCESS);
  EXPECT_EQ(table.cuMemSetAccess(address, kPage, &access, 1), CUDA_SUCCESS);
  return address;
}

int exported(const Table& table, CUmemGenericAllocationHandle page) {
  int descriptor = -1;
  EXPECT_EQ(table.cuMemExportToShareableHandle(&descriptor, page, kDescriptor, 0), CUDA_SUCCESS);
  return descriptor;
}

CUresult import(const Table& table, int descriptor, CUmemGenericAllocationHandle* page) {
  return table.cuMemImportFromShareableHandle(
      page, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)), kDescriptor);
}

unsigned char first_byte(const Table& table, CUdeviceptr address) {
  unsigned char byte = 0xEE;
  EXPECT_EQ(table.cuMemcpyDtoH(&byte, address, 1), CUDA_SUCCESS);
  return byte;
}

TEST(Processes, the_child_of_a_fork_is_refused) {
  in_process({}, [] {
    const Table& table = started_driver();
    const pid_t child = fork();
    if (child == 0) {
      int count = 0;
      CUdeviceptr address = 0;
      const bool refused = table.cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                           table.cuMemAlloc(&address, 1) == CUDA_ERROR_NOT_INITIALIZED &&
                           table.cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
      _exit(refused ? 0 : 1);
    }
    int status = 1, count = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(table.cuDeviceGetCount(&count), CUDA_SUCCESS) << "the parent goes on";
  });
}

TEST(Processes, a_fork_before_cuInit_does_no_harm) {
  in_process({}, [] {
    const Table& table = loaded_driver();
    const pid_t child = fork();
    if (child == 0) _exit(table.cuInit(0) == CUDA_SUCCESS ? 0 : 1);
    int status = 1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

TEST(Processes, a_page_passes_through_a_descriptor_within_the_process) {
  for (const char* values : {"zeros", "compute"})
    in_process({{"SPILLWAY_SIM_VALUES", values}}, [&] {
      const Table& table = started_driver();
      const auto page = shareable_page(table);
      const int descriptor = exported(table, page);
      CUmemGenericAllocationHandle again = 0;
      EXPECT_EQ(import(table, descriptor, &again), CUDA_SUCCESS);
      EXPECT_EQ(counts(table).live_pages_bytes, kPage) << "it is the same page";
      EXPECT_EQ(table.cuMemRelease(page), CUDA_SUCCESS);
      EXPECT_EQ(counts(table).live_pages_bytes, kPage);
      EXPECT_EQ(table.cuMemRelease(again), CUDA_SUCCESS);
      EXPECT_EQ(counts(table).live_pages_bytes, 0u);
      EXPECT_EQ(import(table, descriptor, &again), CUDA_ERROR_INVALID_VALUE) << "the page is gone";
      EXPECT_EQ(import(table, 0, &again), CUDA_ERROR_INVALID_VALUE) << "no page at all";
      EXPECT_EQ(import(table, -1, &again), CUDA_ERROR_INVALID_VALUE);
      EXPECT_EQ(counts(table).violations, 0u);
      close(descriptor);
    });
}

TEST(Processes, a_page_must_ask_for_descriptors_when_it_is_made) {
  in_process({}, [] {
    const Table& table = started_driver();
    const CUmemAllocationProp prop = device_page();
    CUmemGenericAllocationHandle page = 0;
    int descriptor = -1;
    EXPECT_EQ(table.cuMemCreate(&page, kPage, &prop, 0), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemExportToShareableHandle(&descriptor, page, kDescriptor, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(table.cuMemExportToShareableHandle(&descriptor, page, CU_MEM_HANDLE_TYPE_FABRIC, 0),
              CUDA_ERROR_NOT_SUPPORTED);
  });
}

void send_descriptor(int socket, int descriptor) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
  iovec data = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  EXPECT_EQ(sendmsg(socket, &message, 0), 1);
}

int receive_descriptor(int socket) {
  char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
  iovec data = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  EXPECT_EQ(recvmsg(socket, &message, 0), 1);
  int descriptor = -1;
  if (CMSG_FIRSTHDR(&message))
    std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
  return descriptor;
}

TEST(Processes, two_processes_share_the_bytes_of_a_page) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Settings compute = {{"SPILLWAY_SIM_VALUES", "compute"}};
  const pid_t maker = fork();
  if (maker == 0) {
    setenv("SPILLWAY_SIM_VALUES", "compute", 1);
    const Table& table = started_driver();
    const auto first = shareable_page(table), page = shareable_page(table);
    const CUdeviceptr address = mapped(table, page);
    EXPECT_EQ(table.cuMemsetD8(address, 42, kPage), CUDA_SUCCESS);
    send_descriptor(ends[0], exported(table, page));
    char answer = 0;
    EXPECT_EQ(recv(ends[0], &answer, 1, 0), 1);
    EXPECT_EQ(first_byte(table, address), 43) << "what the other process wrote";
    EXPECT_EQ(table.cuMemRelease(first), CUDA_SUCCESS);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  in_process(compute, [&] {
    const Table& table = started_driver();
    CUmemGenericAllocationHandle page = 0;
    ASSERT_EQ(import(table, receive_descriptor(ends[1]), &page), CUDA_SUCCESS);
    EXPECT_EQ(counts(table).live_pages_bytes, 0u) << "the other process is charged";
    const CUdeviceptr address = mapped(table, page);
    EXPECT_EQ(first_byte(table, address), 42);
    EXPECT_EQ(table.cuMemsetD8(address, 43, 1), CUDA_SUCCESS);
    EXPECT_EQ(send(ends[1], "x", 1, 0), 1);
  });
  int status = 1;
  EXPECT_EQ(waitpid(maker, &status, 0), maker);
  EXPECT_EQ(status, 0);
}

TEST(Processes, threads_use_the_driver_at_the_same_time) {
  in_process({{"SPILLWAY_SIM_VALUES", "compute"}, {"SPILLWAY_SIM_CAPACITY", "1GiB"}}, [] {
    const Table& table = started_driver();
    CUcontext context = nullptr;
    EXPECT_EQ(table.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        EXPECT_EQ(table.cuCtxSetCurrent(context), CUDA_SUCCESS);
        CUstream stream = nullptr;
        EXPECT_EQ(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        for (int i = 0; i < 100; ++i) {
          CUdeviceptr memory = 0;
          std::vector<unsigned char> host(1000, 1);
          ASSERT_EQ(table.cuMemAlloc(&memory, 4096), CUDA_SUCCESS);
          EXPECT_EQ(table.cuMemsetD8Async(memory, static_cast<unsigned char>(t), 4096, stream), CUDA_SUCCESS);
          EXPECT_EQ(table.cuMemcpyDtoHAsync(host.data(), memory, 1000, stream), CUDA_SUCCESS);
          EXPECT_EQ(table.cuStreamSynchronize(stream), CUDA_SUCCESS);
          EXPECT_EQ(host, std::vector<unsigned char>(1000, static_cast<unsigned char>(t)));
          EXPECT_EQ(table.cuMemFree(memory), CUDA_SUCCESS);
        }
        EXPECT_EQ(table.cuStreamDestroy(stream), CUDA_SUCCESS);
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(counts(table).violations, 0u);
    EXPECT_EQ(text(table.simulator->leaks), "");
  });
}

}  // namespace
}  // namespace spillway::test
