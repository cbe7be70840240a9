// A library that takes its time while exit takes libraries down: others' threads run on meanwhile.
#include <unistd.h>

__attribute__((destructor)) static void take_time(void) {
  usleep(700000);
}
