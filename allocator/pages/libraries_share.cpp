#include "allocator/pages/libraries_share.h"

#include "allocator/context.h"

namespace spillway {

void leave_to_libraries(Allocator& allocator, uint64_t bytes) noexcept {
  allocator.context().left_to_libraries.store(bytes);
}

}  // namespace spillway
