#include "trainer/ranks/whole/row_gather.h"

#include <algorithm>
#include <numeric>

namespace spillway::trainer {

at::Tensor gather_rows(Ranks& ranks, const at::Tensor& buffer, const at::Tensor& mine,
                       const std::vector<int64_t>& bytes) {
  const at::NoGradGuard no_grad;
  const int64_t wanted = ranks.leads() ? std::accumulate(bytes.begin(), bytes.end(), int64_t{0}) : 0;
  const at::Tensor all = at::empty({wanted}, at::device(at::kCPU).dtype(at::kByte));
  const int64_t most = buffer.numel() / ranks.size() / kPartBytesAlignedTo * kPartBytesAlignedTo;
  const int64_t longest = *std::max_element(bytes.begin(), bytes.end());
  for (int64_t begin = 0; begin < longest; begin += most) {
    const int64_t each = std::min(most, aligned_part(longest - begin));
    const auto in_round = [&](uint32_t rank) { return std::clamp<int64_t>(bytes[rank] - begin, 0, each); };
    const auto part = [&](uint32_t rank) { return buffer.narrow(0, each * rank, each); };
    if (const int64_t count = in_round(ranks.rank()); count > 0)
      part(ranks.rank()).narrow(0, 0, count).copy_(mine.view({-1}).view(at::kByte).narrow(0, begin, count));
    ranks.all_gather(buffer.narrow(0, 0, each * ranks.size()));
    if (!ranks.leads()) continue;
    int64_t before = 0;
    for (uint32_t rank = 0; rank < ranks.size(); before += bytes[rank++])
      if (const int64_t count = in_round(rank); count > 0)
        all.narrow(0, before + begin, count).copy_(part(rank).narrow(0, 0, count));
  }
  return all;
}

}  // namespace spillway::trainer
