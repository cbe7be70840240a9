#include "trainer/ranks/agreement/step_agreement.h"

#include <array>
#include <stdexcept>

namespace spillway::trainer {
namespace {

// What another rank has written is read back by the same version of this program.
template <typename Value>
Value sound(std::optional<Value> value, const std::string& text) {
  if (!value) throw std::logic_error("no word of a rank, and no decision: " + text);
  return std::move(*value);
}

}  // namespace

StepAgreement::StepAgreement(Ranks& ranks, uint32_t layers, const SharedWork& work, bool confirms,
                             std::function<void(bool)> drain)
    : ranks_(ranks), layers_(layers), work_(work), confirms_(confirms), drain_(std::move(drain)) {}

void StepAgreement::begin(uint64_t step) {
  step_ = step;
  loss_.reset();
  squares_.reset();
  is_confirmed_ = is_asked_ = false;
}

double StepAgreement::add_up(double mine, bool asks) {
  std::array<double, 3> numbers{mine, asks ? 1.0 : 0.0, notice_ ? notice_() : 0.0};
  ranks_.add_up(numbers);
  if (numbers[1] > 0) is_asked_ = true;
  notices_ = numbers[2];
  return numbers[0];
}

double StepAgreement::loss(double mine) {
  if (!loss_) loss_ = ranks_.sum(mine);
  return *loss_;
}

double StepAgreement::squares(double mine) {
  if (!squares_) squares_ = add_up(mine, false);
  return *squares_;
}

void StepAgreement::confirm() {
  if (!confirms_ || is_asked_ || is_confirmed_) return;
  add_up(0, false);
  is_confirmed_ = true;
}

double StepAgreement::evaluation(double mine) {
  return add_up(mine, false);
}

void StepAgreement::ask_to_undo(bool evaluating) {
  ranks_.works("a step that is undone", step_);
  if (evaluating) {
    drain_(true);
    add_up(0, true);
    return;
  }
  if (!squares_) {
    drain_(false);
    loss(0);
    squares_ = add_up(0, true);
  } else if (confirms_ && !is_confirmed_ && !is_asked_) {
    add_up(0, true);
  }
  if (!is_asked_) throw std::logic_error("out of memory behind the ranks' vote on a step");
}

Decision StepAgreement::decide(const Word& mine, uint32_t attempts) {
  const auto of_all = [&](const std::vector<std::string>& texts) {
    std::vector<Word> words;
    words.reserve(texts.size());
    for (const std::string& text : texts) words.push_back(sound(word_of(text, layers_), text));
    return to_text(trainer::decide(words, attempts));
  };
  const std::string text = ranks_.decide(to_text(mine), of_all);
  return sound(decision_of(text, layers_), text);
}

}  // namespace spillway::trainer
