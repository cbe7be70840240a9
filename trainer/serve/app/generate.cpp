#include "trainer/serve/app/generate.h"

#include <chrono>
#include <cstdio>
#include <deque>
#include <fstream>
#include <iostream>

#include "trainer/app/results.h"
#include "trainer/serve/api/completion_response.h"
#include "trainer/serve/api/jobs.h"

namespace spillway::trainer::serve {
namespace {

struct Line {
  std::string refusal;  // JSON; "": it was taken
  std::optional<CompletionRequest> request;
  Answer answer;
  std::vector<Choice> choices;
};

void submit(const ModelCard& card, Engine* engine, Line* line) {
  line->answer = answer_to(*line->request, card);
  for (size_t i = 0; i < line->request->sequences(); ++i) line->choices.emplace_back(*line->request, card, i);
  for (size_t i = 0; i < line->choices.size(); ++i) {
    Job job = job_of(*line->request, card, i);
    Choice* choice = &line->choices[i];
    job.on_token = [choice](const TokenEvent& event) { return choice->add(event); };
    job.on_end = [choice](Finish finish) { choice->end(finish); };
    engine->submit(std::move(job));
  }
}

}  // namespace

int generate(const std::string& path, const ModelCard& card, Engine* engine) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& in = path == "-" ? std::cin : file;
  if (!in) return std::fprintf(stderr, "spillway-serve: %s cannot be read\n", path.c_str()), kExitUsage;
  std::deque<Line> lines;  // they stay where they are: the engine's jobs point to them
  for (std::string text; std::getline(in, text);) {
    if (text.empty()) continue;
    Line& line = lines.emplace_back();
    ApiError error;
    line.request = parse_completion(text, card, &error);
    if (line.request)
      submit(card, engine, &line);
    else
      line.refusal = to_json(error);
  }
  const auto begin = std::chrono::steady_clock::now();
  engine->run();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  int code = kExitDone;
  for (const Line& line : lines) {
    std::printf("%s\n",
                line.request ? whole_answer(line.answer, line.choices).c_str() : line.refusal.c_str());
    if (!line.request) code = kExitUsage;
    for (const Choice& choice : line.choices)
      if (choice.finish() != Finish::kStop && choice.finish() != Finish::kLength)
        code = choice.finish() == Finish::kNoMemory ? kExitOutOfMemory : kExitError;
  }
  const EngineStats stats = engine->stats();
  std::fprintf(stderr, "%.2f s, %.0f tokens a second\n", seconds, double(stats.tokens) / seconds);
  std::fprintf(stderr, "%llu tokens in %llu steps, %llu pre-emptions, %llu steps without memory\n",
               static_cast<unsigned long long>(stats.tokens), static_cast<unsigned long long>(stats.steps),
               static_cast<unsigned long long>(stats.preemptions),
               static_cast<unsigned long long>(stats.out_of_memory));
  return code;
}

}  // namespace spillway::trainer::serve
