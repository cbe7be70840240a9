// `python` for the tests: runs a program in a fork of an interpreter that has PyTorch imported already
// (server.py).
//
// It stands in for its process: the program gets its arguments, environment, folder and open files; signals
// are passed on, and its exit status becomes this one's. What cannot be served so is run by the real
// interpreter, as are all programs under SPILLWAY_TEST_COLD=1: those whose process identity, start, end or
// allocator counts.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

enum { kDescriptors = 200 };

static void fail(const char* path) {
  fprintf(stderr, "python of the tests: %s: %s\n", path, strerror(errno));
  _exit(127);
}

static char own_path[PATH_MAX];
// The virtual environment whose packages and interpreter these are: ../lib is a link to its.
static char environment[PATH_MAX];

static void find_environment(void) {
  char lib[PATH_MAX + 16];
  if (realpath("/proc/self/exe", own_path) == NULL) fail("/proc/self/exe");
  snprintf(lib, sizeof lib, "%.*s/../lib", (int)(strrchr(own_path, '/') - own_path), own_path);
  if (realpath(lib, environment) == NULL) fail(lib);
  *strrchr(environment, '/') = '\0';
}

// A file of the environment. The next call overwrites what this one returned.
static const char* in_environment(const char* name) {
  static char path[PATH_MAX + 16];
  snprintf(path, sizeof path, "%s/%s", environment, name);
  return path;
}

// SPILLWAY_TEST_PYTHON=/path/to/python: every program runs with that one and its PyTorch
// (tools/torch-matrix).
static void give_way(char** words) {
  const char* other = getenv("SPILLWAY_TEST_PYTHON");
  char path[PATH_MAX];
  if (other == NULL || *other == '\0') return;
  if (realpath(other, path) != NULL && strcmp(path, own_path) == 0) return;
  words[0] = (char*)other;
  execv(other, words);
  fail(other);
}

static int begins(const char* text, const char* with) {
  return strncmp(text, with, strlen(with)) == 0;
}

// Of the interpreter's, those that server.py knows.
static int is_option(const char* word) {
  return word != NULL && (strcmp(word, "-B") == 0 || strcmp(word, "-u") == 0);
}

// For tools/test --times: a line "KIND PROGRAM".
static void note_start(const char* kind, char** words) {
  const char* path = getenv("SPILLWAY_TEST_STARTS");
  const int file = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  do ++words;
  while (is_option(*words));
  if (*words != NULL && strcmp(*words, "-m") == 0 && words[1] != NULL) ++words;
  const char* program = *words == NULL ? "-" : *words;
  const char* slash = strrchr(program, '/');
  if (dprintf(file, "%s %.80s\n", kind, slash == NULL ? program : slash + 1) < 0) perror(path);
  close(file);
}

static void run_really(char** words) {
  // The name stays this program's: Python derives sys.executable and its packages' folder from it.
  const char* python = in_environment("bin/python");
  execv(python, words);
  fail(python);
}

// Python starts this one beside a program's own processes. It imports nothing.
static int is_resource_tracker(const char* code) {
  return begins(code, "from multiprocessing.resource_tracker ");
}

static int is_program(char** words) {
  do ++words;
  while (is_option(*words));
  if (*words == NULL) return 0;
  if (strcmp(*words, "-c") == 0 || strcmp(*words, "-m") == 0)
    return words[1] != NULL && !is_resource_tracker(words[1]);
  return **words != '-' && access(*words, R_OK) == 0;
}

// A fork's parent is the server: TorchInductor's compile worker ends where it is not who is named.
static int names_its_parent(char** words) {
  for (; *words != NULL; ++words)
    if (begins(*words, "--parent=")) return 1;
  return 0;
}

// Only PyTorch's programs start slowly, and in the tests those run on the simulator.
static int can_be_forked(char** words) {
  const char* cold = getenv("SPILLWAY_TEST_COLD");
  const char* preload = getenv("LD_PRELOAD");
  if (cold != NULL && *cold != '\0') return 0;
  if (preload == NULL || strstr(preload, "/sim/libcudart.so") == NULL) return 0;
  return is_program(words) && !names_its_parent(words);
}

// What an interpreter and the libraries that it has loaded have read before the program begins.
static int counts_at_start(const char* variable) {
  static const char* const kBeginnings[] = {"LD_",   "PYTHON", "OMP_",           "MKL_",
                                            "KMP_",  "GOMP_",  "TORCH",          "PYTORCH",
                                            "CUDA_", "TRITON", "SPILLWAY_MODE=", "SPILLWAY_DRIVER="};
  if (begins(variable, "PYTHONPATH=") || begins(variable, "PYTHONUNBUFFERED=")) return 0;
  // torchrun's, which differ from run to run and from rank to rank: read when the ranks meet. Folders of
  // compiled kernels: read when something is compiled.
  if (begins(variable, "TORCHELASTIC_") || begins(variable, "TORCHINDUCTOR_CACHE_DIR=") ||
      begins(variable, "TRITON_CACHE_DIR="))
    return 0;
  // Of its allocators' settings PyTorch reads the backend when it is loaded, and the rest at the first
  // allocation.
  if (begins(variable, "PYTORCH_") && strstr(variable, "ALLOC_CONF=") != NULL)
    return strstr(variable, "backend") != NULL;
  for (size_t i = 0; i < sizeof kBeginnings / sizeof *kBeginnings; ++i)
    if (begins(variable, kBeginnings[i])) return 1;
  return 0;
}

static uint64_t mix(uint64_t hash, const void* bytes, size_t count) {  // FNV-1a
  for (size_t i = 0; i < count; ++i) hash = (hash ^ ((const unsigned char*)bytes)[i]) * 0x100000001b3u;
  return hash;
}

static uint64_t mix_file(uint64_t hash, const char* path) {
  struct stat status;
  if (stat(path, &status) != 0) return hash;
  hash = mix(hash, &status.st_ino, sizeof status.st_ino);
  return mix(hash, &status.st_mtim, sizeof status.st_mtim);
}

static uint64_t mix_preloaded(uint64_t hash) {
  char* paths = strdup(getenv("LD_PRELOAD"));
  char* rest = paths;
  for (char* path = strtok_r(paths, " :", &rest); path != NULL; path = strtok_r(NULL, " :", &rest))
    hash = mix_file(hash, path);
  free(paths);
  return hash;
}

// Programs with the same key can be forked from one interpreter.
static uint64_t key_of_process(void) {
  uint64_t sum = 0;  // the variables' order does not matter
  for (char** at = environ; *at != NULL; ++at)
    if (counts_at_start(*at)) sum += mix(0xcbf29ce484222325u, *at, strlen(*at));
  uint64_t hash = mix_file(mix_preloaded(sum), SPILLWAY_ZYGOTE_SERVER);
  hash = mix_file(hash, SPILLWAY_ZYGOTE_LIBRARY);
  hash = mix(hash, environment, strlen(environment));
  hash = mix_file(hash, in_environment("pyvenv.cfg"));  // the folder may have been made anew
  const int addresses = personality(0xffffffff);
  hash = mix(hash, &addresses, sizeof addresses);
  for (int limit = 0; limit < RLIM_NLIMITS; ++limit) {
    struct rlimit value = {0, 0};
    getrlimit((__rlimit_resource_t)limit, &value);
    hash = mix(hash, &value.rlim_cur, sizeof value.rlim_cur);
  }
  return hash;
}

static int make_folder(char* out, size_t room) {
  snprintf(out, room, "/tmp/spillway-test-python-%u", (unsigned)geteuid());
  struct stat status;
  return (mkdir(out, 0700) == 0 || errno == EEXIST) && lstat(out, &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == geteuid() && (status.st_mode & 077) == 0;
}

static int reach(const char* path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (server >= 0 && connect(server, (struct sockaddr*)&address, sizeof address) == 0) return server;
  if (server >= 0) close(server);
  return -1;
}

static void redirect(int descriptor, const char* path, int flags) {
  const int file = open(path, flags, 0600);
  if (file < 0) return;
  dup2(file, descriptor);
  if (file != descriptor) close(file);
}

static void preload_first(const char* path) {
  const char* others = getenv("LD_PRELOAD");
  const size_t room = strlen(path) + strlen(others) + 2;
  char* all = malloc(room);
  if (all == NULL) abort();
  snprintf(all, room, "%s:%s", path, others);
  setenv("LD_PRELOAD", all, 1);
  free(all);
}

// The server, in a session of its own: it outlives this process, and keeps nothing of it open.
static void become_server(const char* socket_path, const char* log_path, int ready) {
  setsid();
  if (fork() != 0) _exit(0);
  if (dup2(ready, 3) < 0) _exit(1);
  closefrom(4);
  redirect(0, "/dev/null", O_RDONLY);
  redirect(1, log_path, O_WRONLY | O_CREAT | O_TRUNC);
  dup2(1, 2);
  if (chdir("/") != 0) _exit(1);
  unsetenv("PYTHONPATH");
  unsetenv("PYTHONUNBUFFERED");
  preload_first(SPILLWAY_ZYGOTE_LIBRARY);
  char* words[] = {own_path, (char*)SPILLWAY_ZYGOTE_SERVER, (char*)socket_path, NULL};
  run_really(words);
}

// Starts a server and waits until it listens. False: it ended instead; its log says why.
static int start_server(const char* socket_path, const char* log_path) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return 0;
  const pid_t starter = fork();
  if (starter == 0) become_server(socket_path, log_path, ready[1]);
  close(ready[1]);
  char listens = 0;
  if (starter > 0) {
    waitpid(starter, NULL, 0);
    while (read(ready[0], &listens, 1) < 0 && errno == EINTR) {
    }
  }
  close(ready[0]);
  return listens == 'y';
}

static int connect_to_server(void) {
  char folder[64], path[108], lock_path[108], log_path[108];
  if (!make_folder(folder, sizeof folder)) return -1;
  const unsigned long long key = key_of_process();
  snprintf(path, sizeof path, "%s/%016llx", folder, key);
  snprintf(lock_path, sizeof lock_path, "%s/%016llx.lock", folder, key);
  snprintf(log_path, sizeof log_path, "%s/%016llx.log", folder, key);
  int server = reach(path);
  if (server >= 0) return server;
  const int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return -1;
  flock(lock, LOCK_EX);
  server = reach(path);  // another client may have started one meanwhile
  if (server < 0 && start_server(path, log_path)) server = reach(path);
  close(lock);
  return server;
}

// --- the request

typedef struct {
  char* bytes;
  size_t count, room;
} Text;

static void add(Text* text, const void* bytes, size_t count) {
  if (text->count + count > text->room) {
    text->room = 2 * (text->count + count);
    text->bytes = realloc(text->bytes, text->room);
    if (text->bytes == NULL) abort();
  }
  memcpy(text->bytes + text->count, bytes, count);
  text->count += count;
}

static void add_words(Text* text, char** words) {
  uint32_t count = 0;
  while (words[count] != NULL) ++count;
  add(text, &count, sizeof count);
  for (uint32_t i = 0; i < count; ++i) add(text, words[i], strlen(words[i]) + 1);
}

static int open_descriptors(int* out, int except) {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  for (struct dirent* entry = folder ? readdir(folder) : NULL; entry != NULL; entry = readdir(folder)) {
    const int descriptor = atoi(entry->d_name);
    if (entry->d_name[0] == '.' || descriptor == dirfd(folder) || descriptor == except) continue;
    if ((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0) continue;
    if (count == kDescriptors) {
      count = -1;
      break;
    }
    out[count++] = descriptor;
  }
  if (folder != NULL) closedir(folder);
  return count;
}

static int send_all(int server, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t sent = send(server, bytes, count, MSG_NOSIGNAL);
    if (sent <= 0) return 0;
    bytes += sent;
    count -= (size_t)sent;
  }
  return 1;
}

// The request's length goes with the descriptors.
static int send_request(int server, const Text* request, const int* descriptors, int count) {
  uint32_t length = (uint32_t)request->count;
  struct iovec part = {&length, sizeof length};
  char control[CMSG_SPACE(sizeof(int) * kDescriptors)] = {0};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control};
  message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
  memcpy(CMSG_DATA(header), descriptors, sizeof(int) * (size_t)count);
  return sendmsg(server, &message, MSG_NOSIGNAL) == (ssize_t)sizeof length &&
         send_all(server, request->bytes, request->count);
}

static int ask(int server, char** words) {
  int descriptors[kDescriptors];
  const int count = open_descriptors(descriptors, server);
  if (count <= 0) return 0;
  Text request = {NULL, 0, 0};
  const mode_t mask = umask(0);
  umask(mask);
  const uint32_t numbers[2] = {mask, (uint32_t)count};
  add(&request, numbers, sizeof numbers);
  add(&request, descriptors, sizeof(int) * (size_t)count);
  char* folder = getcwd(NULL, 0);
  if (folder == NULL) return 0;
  add(&request, folder, strlen(folder) + 1);
  add_words(&request, words);
  add_words(&request, environ);
  const int sent = send_request(server, &request, descriptors, count);
  // Who reads from the program's pipes must see them end with it. Files may be known by this process's
  // number.
  for (int i = 0; sent && i < count; ++i) {
    struct stat status;
    if (fstat(descriptors[i], &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)))
      close(descriptors[i]);
  }
  return sent;
}

// --- what follows

static const int kPassedOn[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT};
static volatile pid_t program = 0;
static volatile sig_atomic_t early[NSIG];  // those that came before the program was known

static void pass_on(int number) {
  if (program > 0)
    kill(program, number);
  else
    early[number] = 1;
}

static void pass_signals_to(pid_t number) {
  program = number;
  for (size_t i = 0; i < sizeof kPassedOn / sizeof *kPassedOn; ++i)
    if (early[kPassedOn[i]]) kill(number, kPassedOn[i]);
}

static int receive(int server, int32_t* out) {
  char* at = (char*)out;
  size_t left = sizeof *out;
  while (left > 0) {
    const ssize_t got = read(server, at, left);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    at += got;
    left -= (size_t)got;
  }
  return 1;
}

static void end_as(int status) {
  if (WIFSIGNALED(status)) {
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    kill(getpid(), WTERMSIG(status));
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

int main(int count, char** words) {
  (void)count;
  find_environment();
  give_way(words);
  // Importing PyTorch takes three times as long where its bytecode is not kept in the environment.
  unsetenv("PYTHONDONTWRITEBYTECODE");
  const int server = can_be_forked(words) ? connect_to_server() : -1;
  note_start(server < 0 ? "started" : "forked", words);
  if (server < 0) run_really(words);
  struct sigaction action = {.sa_handler = pass_on};
  for (size_t i = 0; i < sizeof kPassedOn / sizeof *kPassedOn; ++i) sigaction(kPassedOn[i], &action, NULL);
  if (!ask(server, words)) run_really(words);
  int32_t number = 0;
  if (receive(server, &number)) {
    pass_signals_to(number);
    if (receive(server, &number)) end_as(number);
  }
  _exit(70);  // the server died
}
