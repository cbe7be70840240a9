#include "base/svg.h"

#include "base/printed.h"
#include "base/xml.h"

namespace spillway {
namespace {

// Okabe and Ito's colours, which people who see few colours tell apart, two others between them, and greys.
constexpr const char* kFills[SvgPicture::kColours] = {"#0072b2", "#56b4e9", "#009e73", "#e69f00",
                                                      "#d55e00", "#cc79a7", "#f0e442", "#882255",
                                                      "#44aa99", "#999999", "#666666", "#bbbbbb"};
constexpr const char* kPens[] = {"grid", "ink", "muted", "limit", "mark"};

// The colours of the reports' page (tools/spillway/page/web/style.css).
constexpr const char* kStyle =
    "<style>\n"
    ".ground{fill:#ffffff}text{fill:#1c1f24}text.muted{fill:#5b626d}\n"
    ".pen{fill:none;stroke-linejoin:round}.grid{stroke:#c9cdd3}.ink{stroke:#1c1f24}.pen.muted{stroke:#5b626d}"
    "\n"
    ".limit{stroke:#b3261e;stroke-dasharray:7 4}.mark{stroke:#b3007d;stroke-dasharray:2 3}\n"
    "@media (prefers-color-scheme:dark){\n"
    ".ground{fill:#16191d}text{fill:#e9ebee}text.muted{fill:#a6adb8}\n"
    ".grid{stroke:#474d57}.ink{stroke:#e9ebee}.pen.muted{stroke:#a6adb8}.limit{stroke:#ff8f85}\n"
    ".mark{stroke:#ff7fd4}}\n"
    "</style>\n";

std::string list_of(const std::vector<SvgPoint>& points) {
  std::string list;
  for (const SvgPoint& point : points)
    list += printed("%s%.1f,%.1f", list.empty() ? "" : " ", point.x, point.y);
  return list;
}

}  // namespace

SvgPicture::SvgPicture(double width, double height)
    : out_(printed("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                   "font-family=\"sans-serif\" font-size=\"13\">\n",
                   width, height) +
           kStyle + "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n") {}

void SvgPicture::end(const char* element, const std::string& title) {
  if (title.empty())
    out_ += "/>\n";
  else
    out_ += "><title>" + xml(title) + "</title></" + element + ">\n";
}

void SvgPicture::rectangle(double x, double y, double width, double height, size_t colour,
                           const std::string& title) {
  out_ += printed("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"", x, y, width,
                  height, kFills[colour % kColours]);
  end("rect", title);
}

void SvgPicture::area(const std::vector<SvgPoint>& outline, size_t colour, const std::string& title) {
  out_ += printed("<polygon fill=\"%s\" points=\"", kFills[colour % kColours]) + list_of(outline) + "\"";
  end("polygon", title);
}

void SvgPicture::line(const std::vector<SvgPoint>& points, Pen pen, double width, const std::string& title) {
  out_ += printed("<polyline class=\"pen %s\" stroke-width=\"%.1f\" points=\"",
                  kPens[static_cast<size_t>(pen)], width) +
          list_of(points) + "\"";
  end("polyline", title);
}

void SvgPicture::dot(double x, double y, double radius, size_t colour, const std::string& title) {
  out_ += printed("<circle fill=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"", kFills[colour % kColours], x, y,
                  radius);
  end("circle", title);
}

void SvgPicture::text(double x, double y, const std::string& words, Words style) {
  constexpr const char* kAnchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  out_ += printed("<text x=\"%.1f\" y=\"%.1f\"%s%s%s>", x, y, kAnchors[static_cast<size_t>(style.anchor)],
                  style.bold ? " font-weight=\"bold\"" : "", style.muted ? " class=\"muted\"" : "");
  out_ += xml(words) + "</text>\n";
}

}  // namespace spillway
