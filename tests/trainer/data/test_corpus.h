// The text of a test, opened for a model.
#pragma once
#include <gtest/gtest.h>

#include <utility>

#include "tests/trainer/scratch_folder.h"
#include "trainer/data/examples.h"

namespace spillway::trainer {

inline Corpus test_corpus(const ScratchFolder& scratch, const Architecture& model) {
  std::string error;
  auto corpus = Corpus::open(scratch.corpus(), 0.1, Examples::window_tokens(model), &error);
  EXPECT_TRUE(corpus) << error;
  return std::move(corpus).value_or(Corpus());
}

}  // namespace spillway::trainer
