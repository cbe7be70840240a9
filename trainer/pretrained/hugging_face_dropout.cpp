#include "base/printed.h"
#include "trainer/pretrained/hugging_face_config.h"
#include "trainer/pretrained/json_keys.h"

namespace spillway::trainer {
namespace {

constexpr double kUsual = 0.1;  // transformers' default of a GPT-2 and a T5

std::string is(const char* key, double rate) {
  return "'" + std::string(key) + "' is " + printed("%g", rate);
}

FileDropout of_gpt2(JsonKeys* keys) {
  double embeddings = kUsual, residual = kUsual, attention = kUsual;
  keys->number("embd_pdrop", &embeddings, 0, 1);
  keys->number("resid_pdrop", &residual, 0, 1);
  keys->number("attn_pdrop", &attention, 0, 1);
  FileDropout dropout{.rate = residual, .fault = "", .left_out = ""};
  if (embeddings != residual || (attention != 0 && attention != residual))
    dropout.fault = is("embd_pdrop", embeddings) + ", " + is("resid_pdrop", residual) + " and " +
                    is("attn_pdrop", attention);
  else if (attention > 0)
    dropout.left_out = is("attn_pdrop", attention) + ": attention is trained without dropout here";
  return dropout;
}

FileDropout of_llama(JsonKeys* keys) {
  double attention = 0;
  keys->number("attention_dropout", &attention, 0, 1);
  return {.rate = 0, .fault = attention > 0 ? is("attention_dropout", attention) : "", .left_out = ""};
}

FileDropout of_t5(JsonKeys* keys) {
  double rate = kUsual;
  keys->number("dropout_rate", &rate, 0, 1);
  const std::string left_out = rate > 0
                                   ? is("dropout_rate", rate) +
                                         ": attention, and the hidden layer of MLPs, are trained without "
                                         "dropout here"
                                   : "";
  return {.rate = rate, .fault = "", .left_out = left_out};
}

}  // namespace

std::optional<FileDropout> read_hugging_face_dropout(const std::string& path, std::string* error) {
  const auto object = read_json_object(path, error);
  if (!object) return std::nullopt;
  JsonKeys keys(*object);
  std::string type;
  keys.text("model_type", &type);
  FileDropout dropout = type == "gpt2" ? of_gpt2(&keys) : type == "t5" ? of_t5(&keys) : of_llama(&keys);
  if (!keys.failed()) return dropout;
  *error = path + ": " + keys.error();
  return std::nullopt;
}

}  // namespace spillway::trainer
