// Threads that serve until the process ends.
#pragma once
#include <pthread.h>
#include <signal.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace spillway {

// Does `work` on a thread that nobody waits for, and that takes none of the program's signals. False: no
// thread can be made, and `*why_not`, if given, says why.
template <class Work>
bool start_service_thread(Work work, std::string* why_not = nullptr) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread(std::move(work)).detach();
  } catch (const std::system_error& error) {
    if (why_not != nullptr) *why_not = error.what();
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace spillway
