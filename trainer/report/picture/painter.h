// Draws the report's picture: the memory of each device over the steps, as estimated and as measured, the
// moves of the plan, and the loss.
//
// Thread-safety: one thread. Ownership: borrows the report. Errors: none. Units: bytes; pixels.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/svg.h"
#include "trainer/report/picture/plot.h"
#include "trainer/report/report.h"

namespace spillway::trainer {

// The first line of a text, cut where it is too long for the picture.
std::string first_line(const std::string& text);

class Painter {
 public:
  explicit Painter(const RunReport& report);
  std::string paint();

 private:
  using Pen = SvgPicture::Pen;
  using Anchor = SvgPicture::Anchor;
  // Of neighbouring points under one plan.
  struct Span {
    double begin = 0, end = 0;
    size_t plan = 0;
  };

  // The whole.
  size_t devices() const;
  double height() const;
  // What the estimates have on devices, in their order.
  std::vector<std::string> kinds() const;
  Plot plot(double top, double height) const;
  void axes(const Plot& here, const std::string& title, double unit);

  // The memory of a device.
  std::vector<Span> spans() const;
  uint64_t estimated(size_t plan, size_t device, const std::string& kind) const;
  uint64_t limit_of(size_t device) const;
  // Of all that is drawn; a limit that is far above it is not.
  uint64_t most_of(size_t device) const;
  void memory(size_t device, double top);
  void areas(const Plot& here, size_t device);
  void measured(const Plot& here, size_t device);
  // Numbered as in the legend; what is too near shares a mark.
  void marks(const Plot& here);

  // The loss.
  void loss(double top);
  void draw_losses(const Plot& here);

  // Below both.
  void legend(double top);
  void told(double y);

  const RunReport& report_;
  const RunHistory& history_;
  const std::vector<StepPoint>& points_;
  SvgPicture picture_;
};

}  // namespace spillway::trainer
