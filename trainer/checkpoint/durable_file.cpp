#include "trainer/checkpoint/durable_file.h"

#include <filesystem>

namespace spillway::trainer {
namespace {

int sync_folder(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  return error;
}

}  // namespace

int write_durably(const std::string& path, const std::function<int(DraftFile&)>& fill) {
  DraftFile file(path + ".tmp");
  int error = file.error();
  if (error == 0) error = fill(file);
  if (error == 0) error = file.sync();
  if (error == 0) error = file.keep_as(path);
  if (error == 0) error = sync_folder(path);
  return error;
}

}  // namespace spillway::trainer
