// Physical pages: charged against their device from creation until they are released as often as they were
// handed out *and* mapped nowhere. In computing mode a page's bytes are an extent of its device's memory
// file; an extent is never used twice, so new pages read as zeros.
//
// Thread-safety: none of its own; used under the simulator's lock. Ownership: PhysicalMemory owns the pages.
// Errors: CUresult as cuMemCreate's. Units: bytes.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "simulator/driver/memory/account.h"
#include "simulator/driver/process/referee.h"

namespace spillway::simulator {

// A memory file in which extents are handed out once, one after the other.
class BackingFile {
 public:
  explicit BackingFile(int device) : device_(device) {}
  BackingFile(const BackingFile&) = delete;
  BackingFile& operator=(const BackingFile&) = delete;

  int descriptor();                           // opened at the first use; -1: the system refused
  int opened() const { return descriptor_; }  // -1: not yet
  uint64_t take(uint64_t bytes);
  void give(uint64_t offset, uint64_t bytes);  // hands the memory back to the system

 private:
  int device_;
  int descriptor_ = -1;
  uint64_t next_ = 0;
};

struct Device;

// What a page counts as, where it stands for a library's own memory.
struct PageLabel {
  std::string label;  // "": none, and the page counts as its size
  uint64_t bytes = 0;
};
// Of the calling thread's next page.
PageLabel& next_page_label();

struct Page {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = {};
  uint64_t bytes = 0;
  Device* device = nullptr;  // null: host memory
  int descriptor = -1;       // computing mode: the file and the place in it
  uint64_t offset = 0;
  unsigned references = 0;  // handles that the program holds
  unsigned mappings = 0;
  bool charged = true;    // false: imported from another process, which is charged
  bool exported = false;  // somebody else may hold the bytes
  bool pooled = false;    // its pool keeps the charge when it goes
  bool named = false;     // a legacy handle of it went out: it is worth nothing once the page is gone
  Site site = nullptr;
  Taker taker = Taker::kOther;
  PageLabel label;
};

class PhysicalMemory {
 public:
  explicit PhysicalMemory(bool compute, bool poison) : compute_(compute), poison_(poison), host_(-1) {}

  // A page with one reference. `device` null: host memory. Out of memory when the device has no room.
  // `prepaid`: so much of it a pool has charged already; 0 afterwards if the page has taken that over.
  CUresult create(const CUmemAllocationProp& properties, Device* device, uint64_t bytes, Site site,
                  Page** out, uint64_t* prepaid = nullptr);
  // A page whose bytes another process made.
  Page* adopt(const CUmemAllocationProp& properties, Device* device, uint64_t bytes, int descriptor,
              uint64_t offset);
  Page* find(CUmemGenericAllocationHandle handle);
  // The page whose bytes are at `offset` of `device`'s file.
  Page* find_extent(const Device* device, uint64_t offset);
  void drop_if_unused(Page* page);

  BackingFile& file(Device* device);
  const std::map<CUmemGenericAllocationHandle, std::unique_ptr<Page>>& pages() const { return pages_; }
  uint64_t live_bytes() const { return live_bytes_; }
  uint64_t peak_bytes() const { return peak_bytes_; }
  void reset_peak() { peak_bytes_ = live_bytes_; }

 private:
  bool charge(Page& page, uint64_t* prepaid);
  void discharge(const Page& page);
  Page* add(std::unique_ptr<Page> page);
  CUresult back(Page& page);  // gives the page its place in the memory file

  bool compute_, poison_;
  BackingFile host_;
  std::map<CUmemGenericAllocationHandle, std::unique_ptr<Page>> pages_;
  CUmemGenericAllocationHandle next_handle_ = 0x1000;
  uint64_t live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace spillway::simulator
