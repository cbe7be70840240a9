// safetensors: what is written is read back; whatever else is read, is refused with a reason and without a
// fault.
#include "trainer/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "tests/trainer/scratch_folder.h"

namespace spillway::trainer {
// What was asked of the file system, by the files' names; and whether it fails to bring bytes to the disk.
std::vector<std::string> asked_of_files;
bool disk_fails = false;

std::string name_of(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}
}  // namespace spillway::trainer

// In place of the C library's, for this whole program.
extern "C" int fsync(int file) {
  using namespace spillway::trainer;
  struct stat now{};
  ::fstat(file, &now);
  const std::string name = name_of(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file)));
  asked_of_files.push_back(
      "sync " + (S_ISDIR(now.st_mode) ? "the folder" : name + " of " + std::to_string(now.st_size)));
  if (disk_fails) return errno = EIO, -1;
  return static_cast<int>(::syscall(SYS_fsync, file));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  using namespace spillway::trainer;
  asked_of_files.push_back("rename " + name_of(from) + " " + name_of(to));
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

namespace spillway::trainer::safetensors {
namespace {

using testing::HasSubstr;

std::string file_bytes(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + header + std::string(data_bytes, '\x2a');
}

std::unique_ptr<File> parsed(const std::string& bytes, std::string* error) {
  return File::parse({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, error);
}

Item item(const std::string& name, std::vector<int64_t> shape, float value) {
  return {name, "F32", std::move(shape), [value](std::span<std::byte> bytes) {
            for (size_t i = 0; i < bytes.size(); i += sizeof value)
              std::memcpy(&bytes[i], &value, sizeof value);
          }};
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const ScratchFolder scratch;
  std::string error;
  ASSERT_TRUE(write(scratch.file("x"), {item("b", {2, 3}, 1.5f), item("a", {4}, -2), item("none", {0, 7}, 0)},
                    {{"step", "7"}, {"text", "quote \" and \n line"}}, &error))
      << error;
  const auto file = File::open(scratch.file("x"), &error);
  ASSERT_TRUE(file) << error;
  EXPECT_EQ(file->metadata().at("text"), "quote \" and \n line");
  ASSERT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->tensors().at("b").shape, (std::vector<int64_t>{2, 3}));
  float first;
  std::memcpy(&first, file->tensors().at("a").data.data(), sizeof first);
  EXPECT_EQ(first, -2);
  EXPECT_EQ(file->tensors().at("none").data.size(), 0u);
  EXPECT_FALSE(std::filesystem::exists(scratch.file("x.tmp")));
}

TEST(Safetensors, AFailedWriteLeavesTheOldFile) {
  const ScratchFolder scratch;
  std::string error;
  ASSERT_TRUE(write(scratch.file("x"), {item("a", {4}, 1)}, {}, &error));
  const std::string before = ScratchFolder::read(scratch.file("x"));
  Item broken = item("a", {4}, 2);
  broken.fill = [](std::span<std::byte>) { throw std::runtime_error("the device is gone"); };
  EXPECT_THROW(write(scratch.file("x"), {item("b", {1 << 20}, 2), broken}, {}, &error), std::runtime_error);
  EXPECT_EQ(ScratchFolder::read(scratch.file("x")), before);
  EXPECT_FALSE(std::filesystem::exists(scratch.file("x.tmp"))) << "the half-written file is removed";
  EXPECT_FALSE(write(scratch.file("no/such/folder/x"), {}, {}, &error));
  EXPECT_THAT(error, HasSubstr("cannot write"));
}

TEST(Safetensors, AFileHasItsNameOnlyWhenTheDiskHasIt) {
  const ScratchFolder scratch;
  std::string error;
  asked_of_files.clear();
  ASSERT_TRUE(write(scratch.file("x"), {item("a", {4}, 1)}, {}, &error)) << error;
  const std::string bytes = std::to_string(std::filesystem::file_size(scratch.file("x")));
  EXPECT_THAT(asked_of_files,
              testing::ElementsAre("sync x.tmp of " + bytes, "rename x.tmp x", "sync the folder"));
  const std::string before = ScratchFolder::read(scratch.file("x"));
  disk_fails = true;
  EXPECT_FALSE(write(scratch.file("x"), {item("a", {4}, 2)}, {}, &error));
  disk_fails = false;
  EXPECT_THAT(error, HasSubstr("Input/output error"));
  EXPECT_EQ(ScratchFolder::read(scratch.file("x")), before);
}

struct BadFile {
  std::string bytes, says;
};

TEST(Safetensors, RefusesWhatDoesNotHoldTogether) {
  const std::string entry = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)";
  const BadFile cases[] = {
      {"", "too short"},
      {"1234567", "too short"},
      {std::string(8, '\xff'), "header's length"},
      {file_bytes("{}", 0).substr(0, 9), "header's length"},
      {file_bytes("[]", 0), "no JSON object"},
      {file_bytes("{", 0), "no JSON object"},
      {file_bytes("{}", 4), "behind the last tensor"},
      {file_bytes(entry + "[0,8]}}", 7), "leave the file"},
      {file_bytes(entry + "[0,4]}}", 4), "does not fit"},
      {file_bytes(entry + "[8,0]}}", 8), "leave the file"},
      {file_bytes(entry + "[-8,0]}}", 8), "leave the file"},
      {file_bytes(entry + "[0,8.0]}}", 8), "leave the file"},
      {file_bytes(entry + "[4,12]}}", 12), "gap at byte 0"},
      {file_bytes(entry + "[0]}}", 8), "two numbers"},
      {file_bytes(entry + "[0,8],\"x\":1}}", 8), "nothing else"},
      {file_bytes(R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8), "unknown dtype"},
      {file_bytes(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), "shape must be a list"},
      {file_bytes(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0),
       "does not fit"},
      {file_bytes(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
           1),
       "stands twice"},
      {file_bytes(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           3),
       "overlap"},
      {file_bytes(R"({"__metadata__":{"a":1}})", 0), "must be text"},
      {file_bytes(R"({"__metadata__":[]})", 0), "must be an object"},
  };
  for (const BadFile& bad : cases) {
    std::string error;
    EXPECT_FALSE(parsed(bad.bytes, &error)) << bad.bytes;
    EXPECT_THAT(error, HasSubstr(bad.says)) << bad.bytes;
  }
}

TEST(Safetensors, DamagedFilesNeverReadOutOfBounds) {
  const ScratchFolder scratch;
  std::string error;
  ASSERT_TRUE(
      write(scratch.file("x"), {item("b", {2, 3}, 1.5f), item("a", {4}, -2)}, {{"step", "7"}}, &error));
  const std::string sound = ScratchFolder::read(scratch.file("x"));
  std::mt19937_64 random(5);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = sound.substr(0, random() % 4 ? sound.size() : random() % sound.size());
    for (uint64_t edits = random() % 4; edits > 0 && !bytes.empty(); --edits)
      bytes[random() % bytes.size()] = char(random());
    bytes.shrink_to_fit();
    const auto file = parsed(bytes, &error);
    refused += !file;
    if (!file) continue;
    for (const auto& [name, tensor] : file->tensors()) {
      ASSERT_GE(reinterpret_cast<const char*>(tensor.data.data()), bytes.data());
      ASSERT_LE(reinterpret_cast<const char*>(tensor.data.data() + tensor.data.size()),
                bytes.data() + bytes.size());
    }
  }
  EXPECT_GT(refused, 5000);
  std::string deep = file_bytes(std::string(1 << 20, '['), 0);
  EXPECT_FALSE(parsed(deep, &error)) << "nesting does not overflow the stack";
}

}  // namespace
}  // namespace spillway::trainer::safetensors
