// In a test program that is said to have one thread (ONE_THREAD of spillway_test), starting another ends it.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept {
  std::fputs("This test starts a thread: take ONE_THREAD from its spillway_test, so that TSan sees it too.\n",
             stderr);
  std::abort();
}
