/*
 * sbx: keeps a program in without namespaces and without privileges, and supervises it.
 *
 *   sbx [-l ABI] [-s FILTER] [-q FILTER] [-u UID] [-g CGROUP.PROCS]... [-b RESOURCE=BOUND]...
 *       [-r PATH]... [-w PATH]... [-m MB] [-n TASKS] [-k SOCKETS] [-f FILES] [-d MB] [-o LAST] -- COMMAND...
 *
 * -l  confine by Landlock; refuse to start where it is older than this
 * -s  a seccomp program in the kernel's binary form: what the command may call
 * -q  another one: what the supervisor is asked about
 * -u  become this user (and the group of the same number)
 * -g  enter a control group
 * -b  a resource limit: as, core, cpu, data, fsize, memlock, msgqueue, nofile, nproc, sigpending
 * -r  readable and executable, if it exists
 * -w  writable as well; the last one is the working directory
 * -m  memory of all processes together: they are killed beyond it
 * -n  processes and threads at a time
 * -k  sockets and pipes at a time
 * -f  names in the working directory
 * -d  size of the working directory: all are killed beyond it
 * -o  keep the descriptors up to this one; 3 otherwise
 *
 * The first process stays outside as the supervisor. Everything started inside becomes its child in the
 * end, however it was detached, and is killed when the command ends, when the supervisor gets SIGTERM,
 * and when its own parent dies. What must not happen even once is held by the kernel, which stops the
 * caller until the supervisor has answered: a busy machine makes the caller wait. What is watched is
 * looked at every few milliseconds.
 *
 * Exit codes: the command's, 128 and its signal, 64 for wrong arguments, 70 for an older Landlock, 71
 * when anything else fails. When all were killed for memory it ends by SIGUSR1, for the size of the
 * directory by SIGUSR2: what no command can imitate.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#define MAX_PATHS 4096
#define MAX_INSTRUCTIONS 4096
#define MAX_PROCESSES 65536

/* The kernel's own header may be older than the kernel. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

struct ruleset {
  uint64_t files;
  uint64_t network;
  uint64_t scopes;
};

struct path_rule {
  uint64_t rights;
  int32_t directory;
} __attribute__((packed));

enum { EXECUTE = 1 << 0, WRITE_FILE = 1 << 1, READ_FILE = 1 << 2, READ_DIRECTORY = 1 << 3 };
enum { MAKE_CHARACTER_DEVICE = 1 << 6, MAKE_BLOCK_DEVICE = 1 << 11, REFER = 1 << 13, TRUNCATE = 1 << 14, IOCTL_DEVICE = 1 << 15 };
enum { ALL_TCP = 3, ALL_SCOPES = 3 };
enum { LEAST_LOOK_US = 2000, BUSY_LOOK_US = 4000, IDLE_LOOK_US = 15000, DISK_LOOK_US = 20000, COUNT_MAPPINGS_EVERY = 8, MAPPING_BYTES = 256, LARGE_TABLES_KB = 1024 };
enum { SETTLE_US = 1000, SHORT_TURN_NS = 100000 };

struct bound {
  int resource;
  rlim_t value;
};

static struct options {
  long least_abi;
  const char *filter;
  const char *questions;
  long user;
  struct bound bounds[16];
  int bound_count;
  const char *readable[MAX_PATHS];
  int readable_count;
  const char *writable[MAX_PATHS];
  int writable_count;
  long memory_kb;
  long tasks;
  long sockets;
  long files;
  long disk_blocks;
  unsigned last_descriptor;
  char **command;
} options = { .user = -1, .least_abi = -1, .last_descriptor = 3 };

static void fail(const char *what, const char *detail) {
  fprintf(stderr, "sbx: %s %s: %s\n", what, detail, strerror(errno));
  _exit(71);
}

static void misused(const char *what) {
  fprintf(stderr, "sbx: %s\n", what);
  _exit(64);
}

/* ---- Arguments ---- */

static long number(const char *text) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno != 0 || *text == 0 || *end != 0 || value < 0) misused("not a number");
  return value;
}

static void enter_group(const char *path) {
  int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0 || write(file, "0", 1) != 1) fail("control group", path);
  close(file);
}

static void keep_bound(char *text) {
  static const struct { const char *name; int resource; } known[] = {
    { "as", RLIMIT_AS }, { "core", RLIMIT_CORE }, { "cpu", RLIMIT_CPU }, { "data", RLIMIT_DATA },
    { "fsize", RLIMIT_FSIZE }, { "memlock", RLIMIT_MEMLOCK }, { "msgqueue", RLIMIT_MSGQUEUE },
    { "nofile", RLIMIT_NOFILE }, { "nproc", RLIMIT_NPROC }, { "sigpending", RLIMIT_SIGPENDING },
  };
  char *equals = strchr(text, '=');
  if (equals == NULL) misused("a bound without a value");
  *equals = 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(text, known[i].name) != 0) continue;
    if (options.bound_count == (int)(sizeof options.bounds / sizeof *options.bounds)) misused("too many bounds");
    options.bounds[options.bound_count++] = (struct bound){ known[i].resource, (rlim_t)number(equals + 1) };
    return;
  }
  misused("an unknown bound");
}

static void keep(const char *path, const char **list, int *count) {
  if (*count == MAX_PATHS) misused("too many paths");
  list[(*count)++] = path;
}

static void parse(int count, char **words) {
  int at = 1;
  for (; at < count && strcmp(words[at], "--") != 0; at += 2) {
    if (words[at][0] != '-' || words[at][1] == 0 || words[at][2] != 0 || at + 1 >= count) misused("wrong arguments");
    char *value = words[at + 1];
    switch (words[at][1]) {
      case 'l': options.least_abi = number(value); break;
      case 's': options.filter = value; break;
      case 'q': options.questions = value; break;
      case 'u': options.user = number(value); break;
      case 'g': enter_group(value); break;
      case 'b': keep_bound(value); break;
      case 'r': keep(value, options.readable, &options.readable_count); break;
      case 'w': keep(value, options.writable, &options.writable_count); break;
      case 'm': options.memory_kb = number(value) * 1024; break;
      case 'n': options.tasks = number(value); break;
      case 'k': options.sockets = number(value); break;
      case 'f': options.files = number(value); break;
      case 'd': options.disk_blocks = number(value) * 2048; break;
      case 'o': options.last_descriptor = (unsigned)number(value); break;
      default: misused("wrong arguments");
    }
  }
  if (at + 1 >= count) misused("no command");
  options.command = words + at + 1;
}

/* ---- The command: confined, and started ---- */

static void set_bounds(void) {
  for (int i = 0; i < options.bound_count; i++) {
    struct bound wanted = options.bounds[i];
    struct rlimit now, bound = { wanted.value, wanted.value };
    if (getrlimit(wanted.resource, &now) != 0) fail("limit", "");
    /* What is lower already stays. */
    if (now.rlim_max < wanted.value) bound.rlim_cur = bound.rlim_max = now.rlim_max;
    if (setrlimit(wanted.resource, &bound) != 0) fail("limit", "");
  }
}

static uint64_t all_file_rights(long abi) {
  uint64_t rights = REFER - 1;
  if (abi >= 2) rights |= REFER;
  if (abi >= 3) rights |= TRUNCATE;
  if (abi >= 5) rights |= IOCTL_DEVICE;
  return rights;
}

static void allow(int rules, const char *path, uint64_t rights) {
  struct stat facts;
  int file = open(path, O_PATH | O_CLOEXEC);
  if (file < 0 || fstat(file, &facts) != 0) {
    if (rights & WRITE_FILE) fail("path", path);
    return; /* not every system has every directory */
  }
  if (!S_ISDIR(facts.st_mode)) rights &= EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;
  struct path_rule rule = { rights, file };
  if (syscall(SYS_landlock_add_rule, rules, 1, &rule, 0) != 0) fail("rule", path);
  close(file);
}

static int make_rules(void) {
  long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
  if (abi < options.least_abi) {
    fprintf(stderr, "sbx: Landlock %ld, where %ld is needed\n", abi < 0 ? 0 : abi, options.least_abi);
    _exit(70);
  }
  uint64_t all = all_file_rights(abi);
  struct ruleset handled = { all, abi >= 4 ? ALL_TCP : 0, abi >= 6 ? ALL_SCOPES : 0 };
  size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
  int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, size, 0);
  if (rules < 0) fail("rules", "");
  for (int i = 0; i < options.readable_count; i++) allow(rules, options.readable[i], EXECUTE | READ_FILE | READ_DIRECTORY);
  uint64_t own = all & ~(uint64_t)(MAKE_CHARACTER_DEVICE | MAKE_BLOCK_DEVICE | IOCTL_DEVICE);
  for (int i = 0; i < options.writable_count; i++) allow(rules, options.writable[i], own);
  return rules;
}

static struct sock_fprog read_filter(const char *path, struct sock_filter *instructions) {
  struct sock_fprog program = { 0, instructions };
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t bytes = file < 0 ? -1 : read(file, instructions, MAX_INSTRUCTIONS * sizeof *instructions);
  if (bytes <= 0) fail("filter", path);
  close(file);
  program.len = (unsigned short)((size_t)bytes / sizeof *instructions);
  return program;
}

/* Gives the descriptor on which the supervisor is asked away. */
static void send_descriptor(int channel, int descriptor) {
  char byte = 0, control[CMSG_SPACE(sizeof descriptor)] = { 0 };
  struct iovec part = { &byte, 1 };
  struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptor);
  memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  if (sendmsg(channel, &message, 0) != 1) fail("supervisor", "");
}

/* -1 when the command ended before it was confined. */
static int receive_descriptor(int channel) {
  char byte, control[CMSG_SPACE(sizeof(int))];
  struct iovec part = { &byte, 1 };
  struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
  int descriptor = -1;
  if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header != NULL && header->cmsg_type == SCM_RIGHTS) memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

static void install_questions(struct sock_fprog *program, int channel) {
  unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
  long listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, program);
  if (listener < 0) { /* a kernel before 5.19 */
    listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, program);
  }
  if (listener < 0) fail("filter", options.questions);
  send_descriptor(channel, (int)listener);
  close((int)listener);
}

static void become(long user) {
  if (setgroups(0, NULL) != 0 || setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0) fail("user", "");
}

static void run_inside(int channel) {
  static struct sock_filter allowed[MAX_INSTRUCTIONS], asked[MAX_INSTRUCTIONS];
  struct sock_fprog filter = { 0, NULL }, questions = { 0, NULL };
  if (setsid() < 0) fail("session", "");
  if (options.filter != NULL) filter = read_filter(options.filter, allowed);
  if (options.questions != NULL) questions = read_filter(options.questions, asked);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("process", "");
  if (options.least_abi >= 0) {
    int rules = make_rules();
    if (syscall(SYS_landlock_restrict_self, rules, 0) != 0) fail("restriction", "");
    close(rules);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  set_bounds();
  if (options.questions != NULL) install_questions(&questions, channel);
  close(channel);
  if (options.filter != NULL && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0) fail("filter", options.filter);
  execvp(options.command[0], options.command);
  fail("command", options.command[0]);
}

/* ---- What runs inside ---- */

static pid_t found[MAX_PROCESSES];
static int found_count;

static void find_children(pid_t parent) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
  DIR *threads = opendir(path);
  if (threads == NULL) return;
  for (struct dirent *thread; (thread = readdir(threads)) != NULL;) {
    if (thread->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)parent, thread->d_name);
    FILE *file = fopen(path, "re");
    int child;
    while (file != NULL && found_count < MAX_PROCESSES && fscanf(file, "%d", &child) == 1) found[found_count++] = child;
    if (file != NULL) fclose(file);
  }
  closedir(threads);
}

/* All processes inside. One that changes its parent at this moment may be missing, until the next time. */
static void find_all(void) {
  found_count = 0;
  find_children(getpid());
  for (int at = 0; at < found_count; at++) find_children(found[at]);
}

static long field(const char *text, const char *name) {
  const char *at = strstr(text, name);
  return at == NULL ? 0 : strtol(at + strlen(name), NULL, 10);
}

static int read_facts(pid_t process, const char *file, char *text, size_t size) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)process, file);
  int facts = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t bytes = facts < 0 ? -1 : read(facts, text, size - 1);
  if (facts >= 0) close(facts);
  text[bytes < 0 ? 0 : bytes] = 0;
  return bytes > 0;
}

static long count_tasks(void) {
  char text[4096];
  long tasks = 0;
  find_all();
  for (int i = 0; i < found_count; i++) {
    if (read_facts(found[i], "status", text, sizeof text)) tasks += field(text, "\nThreads:");
  }
  return tasks;
}

static int compare_numbers(const void *left, const void *right) {
  long a = *(const long *)left, b = *(const long *)right;
  return a < b ? -1 : a > b;
}

/* Different sockets and pipes that processes inside hold; stops counting beyond `most`. */
static long count_sockets(long most) {
  static long seen[1 << 16];
  long count = 0;
  find_all();
  for (int i = 0; i < found_count; i++) {
    char path[64], target[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)found[i]);
    DIR *descriptors = opendir(path);
    if (descriptors == NULL) continue;
    for (struct dirent *entry; (entry = readdir(descriptors)) != NULL && count < (1 << 16);) {
      ssize_t length = readlinkat(dirfd(descriptors), entry->d_name, target, sizeof target - 1);
      target[length < 0 ? 0 : length] = 0;
      if (strncmp(target, "socket:[", 8) == 0) seen[count++] = strtol(target + 8, NULL, 10);
      if (strncmp(target, "pipe:[", 6) == 0) seen[count++] = strtol(target + 6, NULL, 10);
    }
    closedir(descriptors);
  }
  qsort(seen, (size_t)count, sizeof *seen, compare_numbers);
  long different = 0;
  for (long i = 0; i < count && different <= most; i++) different += i == 0 || seen[i] != seen[i - 1];
  return different;
}

static long count_mappings(pid_t process) {
  static char text[1 << 16];
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/maps", (int)process);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  long lines = 0;
  for (ssize_t bytes; file >= 0 && (bytes = read(file, text, sizeof text)) > 0;) {
    for (char *at = text; (at = memchr(at, '\n', (size_t)(text + bytes - at))) != NULL; at++) lines++;
  }
  if (file >= 0) close(file);
  return lines;
}

static long mappings_kb;

static long pages_of(const char *status) {
  return field(status, "\nRssAnon:") + field(status, "\nRssShmem:") + field(status, "\nVmSwap:");
}

struct memory {
  long least_kb; /* Page tables of all, and the pages of the largest process. */
  int is_running; /* Some process is at work. */
  long most_kb;  /* The pages of all: those that processes share after a fork count for each. */
};

/* What is resident, in page tables and swapped out. */
static struct memory count_memory(int round) {
  char text[4096];
  long tables_kb = 0, pages_kb = 0, largest_kb = 0;
  int is_running = 0;
  find_all();
  if (round % COUNT_MAPPINGS_EVERY == 0) {
    mappings_kb = 0;
    for (int i = 0; i < found_count; i++) mappings_kb += count_mappings(found[i]) * MAPPING_BYTES / 1024;
  }
  for (int i = 0; i < found_count; i++) {
    if (!read_facts(found[i], "status", text, sizeof text)) continue;
    const char *state = strstr(text, "\nState:\t");
    is_running |= state != NULL && state[8] != 'S';
    long kb = pages_of(text);
    tables_kb += field(text, "\nVmPTE:");
    pages_kb += kb;
    if (kb > largest_kb) largest_kb = kb;
  }
  return (struct memory){ mappings_kb + tables_kb + largest_kb, is_running, mappings_kb + tables_kb + pages_kb };
}

/*
 * The same, each page once. The kernel walks through the page tables for it: those of a process that
 * has many would take longer than it needs to get many more, so that its pages all count.
 */
static long count_memory_exactly_kb(void) {
  char text[4096];
  long kb = mappings_kb;
  for (int i = 0; i < found_count && kb <= options.memory_kb; i++) {
    if (!read_facts(found[i], "status", text, sizeof text)) continue;
    long tables_kb = field(text, "\nVmPTE:"), pages_kb = pages_of(text);
    if (tables_kb < LARGE_TABLES_KB && read_facts(found[i], "smaps_rollup", text, sizeof text)) {
      pages_kb = field(text, "\nPss_Anon:") + field(text, "\nPss_Shmem:") + field(text, "\nSwapPss:");
    }
    kb += tables_kb + pages_kb;
  }
  return kb;
}

/* Names in the working directory, and the blocks they take; -1 when they cannot be counted. */
static long count_files(long *blocks) {
  char *roots[] = { (char *)options.writable[options.writable_count - 1], NULL };
  FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_XDEV, NULL);
  long names = 0;
  *blocks = 0;
  if (tree == NULL) return -1;
  for (FTSENT *entry; (entry = fts_read(tree)) != NULL;) {
    if (entry->fts_info == FTS_DP) continue;
    if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR) {
      names = -1;
      break;
    }
    names++;
    if (entry->fts_info != FTS_NS) *blocks += entry->fts_statp->st_blocks;
  }
  fts_close(tree);
  return names;
}

/* ---- Ending it ---- */

static void kill_found(void) {
  find_all();
  for (int i = 0; i < found_count; i++) kill(found[i], SIGKILL);
}

/* A process that loses its parent meanwhile becomes a child here and is found by the next round. */
static void end_all(void) {
  for (;;) {
    pid_t ended;
    kill_found();
    while ((ended = waitpid(-1, NULL, WNOHANG)) > 0) continue;
    if (ended < 0 && errno == ECHILD) return;
    usleep(500);
  }
}

static void end_by(int signal_number) {
  sigset_t none;
  end_all();
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
  _exit(71);
}

static void end_with(int code) {
  end_all();
  _exit(code);
}

/* ---- Answering ---- */

static int listener = -1;
static char **seen_paths;
static int seen_count;

static int is_below(const char *path, const char *root) {
  size_t length = strlen(root);
  if (length > 1 && root[length - 1] == '/') length--;
  return strncmp(path, root, length) == 0 && (path[length] == 0 || path[length] == '/' || length == 1);
}

static void remember(const char *path) {
  char *real = realpath(path, NULL);
  seen_paths[seen_count++] = strdup(path);
  if (real != NULL) seen_paths[seen_count++] = real;
}

/* The paths that the command may look at: what it may open, by every name. */
static void remember_paths(void) {
  seen_paths = calloc(2 * (size_t)(options.readable_count + options.writable_count), sizeof *seen_paths);
  if (seen_paths == NULL) fail("memory", "");
  for (int i = 0; i < options.readable_count; i++) remember(options.readable[i]);
  for (int i = 0; i < options.writable_count; i++) remember(options.writable[i]);
}

static int is_visible(const char *path) {
  for (int i = 0; i < seen_count; i++) {
    /* What lies above shows no more than that it is there. */
    if (is_below(path, seen_paths[i]) || is_below(seen_paths[i], path)) return 1;
  }
  return 0;
}

static int is_own(const char *path) {
  static char *own;
  if (own == NULL) own = realpath(options.writable[options.writable_count - 1], NULL);
  return own != NULL && is_below(path, own);
}

/* The memory of the caller, or -1. Asking whether the question still stands shows that it is not another's. */
static int open_memory(const struct seccomp_notif *question) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/mem", (int)question->pid);
  int memory = open(path, O_RDWR | O_CLOEXEC);
  if (memory < 0) return -1;
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &question->id) == 0) return memory;
  close(memory);
  return -1;
}

static int read_path(int memory, uint64_t address, char *path) {
  size_t at = 0;
  while (at < PATH_MAX) {
    size_t room = 4096 - (address + at) % 4096;
    if (room > PATH_MAX - at) room = PATH_MAX - at;
    ssize_t bytes = pread(memory, path + at, room, (off_t)(address + at));
    if (bytes <= 0) return -EFAULT;
    if (memchr(path + at, 0, (size_t)bytes) != NULL) return 0;
    at += (size_t)bytes;
  }
  return -ENAMETOOLONG;
}

static int write_memory(int memory, uint64_t address, const void *bytes, size_t size) {
  return pwrite(memory, bytes, size, (off_t)address) == (ssize_t)size ? 0 : -EFAULT;
}

static int real_path(int file, char *path) {
  char link[32];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length < 0 ? 0 : length] = 0;
  return length < 0 ? -errno : 0;
}

static int open_callers(pid_t caller, int descriptor) {
  char path[64];
  if (descriptor == AT_FDCWD) snprintf(path, sizeof path, "/proc/%d/cwd", (int)caller);
  else snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)caller, descriptor);
  int file = open(path, O_PATH | O_CLOEXEC);
  return file >= 0 ? file : errno == ENOENT ? -EBADF : -errno;
}

/*
 * What the caller means, as a descriptor of a path, or an error as a negative number. The text of the
 * path was copied before: what the caller does to it meanwhile changes nothing.
 */
static int open_meant(pid_t caller, int directory, const char *path, int follow) {
  int base = path[0] == '/' ? AT_FDCWD : open_callers(caller, directory);
  if (base < 0 && base != AT_FDCWD) return base;
  struct open_how how = { .flags = (uint64_t)(O_PATH | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW)), .resolve = RESOLVE_NO_MAGICLINKS };
  int file = (int)syscall(SYS_openat2, base, path, &how, sizeof how);
  int error = errno;
  if (base >= 0) close(base);
  if (file < 0) return error == ELOOP || error == ENOTDIR || error == ENAMETOOLONG ? -error : -ENOENT;
  char real[PATH_MAX];
  error = real_path(file, real);
  if (error == 0 && is_visible(real)) return file;
  close(file);
  return -ENOENT;
}

struct call {
  const struct seccomp_notif *question;
  int memory;
  int nofollow;
  int empty;
};

static uint64_t argument(const struct call *call, int index) {
  return call->question->data.args[index];
}

/* The file of a call that names it by directory and path, or by descriptor where it may. */
static int open_named(const struct call *call, int directory, uint64_t path_address) {
  char path[PATH_MAX];
  pid_t caller = (pid_t)call->question->pid;
  int error = path_address == 0 && call->empty ? 0 : read_path(call->memory, path_address, path);
  if (error != 0) return error;
  if (path_address == 0) path[0] = 0;
  if (path[0] == 0 && !call->empty) return -ENOENT;
  /* A descriptor was checked when it was opened; a directory that was only entered was not. */
  if (path[0] == 0 && directory != AT_FDCWD) return open_callers(caller, directory);
  if (path[0] == 0) strcpy(path, ".");
  return open_meant(caller, directory, path, !call->nofollow);
}

static long answer_stat(const struct call *call, int directory, uint64_t path, uint64_t buffer) {
  struct stat facts;
  int file = open_named(call, directory, path);
  if (file < 0) return file;
  long result = syscall(SYS_newfstatat, file, "", &facts, AT_EMPTY_PATH) != 0 ? -errno : write_memory(call->memory, buffer, &facts, sizeof facts);
  close(file);
  return result;
}

static long answer_statx(const struct call *call) {
  char facts[256];
  int file = open_named(call, (int)argument(call, 0), argument(call, 1));
  if (file < 0) return file;
  long result = syscall(SYS_statx, file, "", AT_EMPTY_PATH, (unsigned)argument(call, 3), facts) != 0 ? -errno : write_memory(call->memory, argument(call, 4), facts, sizeof facts);
  close(file);
  return result;
}

static long answer_statfs(const struct call *call) {
  struct statfs facts;
  int file = open_named(call, AT_FDCWD, argument(call, 0));
  if (file < 0) return file;
  long result = fstatfs(file, &facts) != 0 ? -errno : write_memory(call->memory, argument(call, 1), &facts, sizeof facts);
  close(file);
  return result;
}

static long answer_access(const struct call *call, int directory, uint64_t path, int mode) {
  char link[32];
  int file = open_named(call, directory, path);
  if (file < 0) return file;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  long result = syscall(SYS_faccessat, AT_FDCWD, link, mode) != 0 && errno != ELOOP ? -errno : 0;
  close(file);
  return result;
}

static long answer_readlink(struct call *call, int directory, uint64_t path, uint64_t buffer, int64_t size) {
  char target[PATH_MAX], text[PATH_MAX];
  ssize_t length;
  if (size <= 0) return -EINVAL;
  int error = read_path(call->memory, path, text);
  if (error != 0) return error;
  if (strcmp(text, "/proc/self/exe") == 0) {
    snprintf(text, sizeof text, "/proc/%d/exe", (int)call->question->pid);
    length = readlink(text, target, sizeof target);
  } else {
    call->nofollow = call->empty = 1;
    int file = open_named(call, directory, path);
    if (file < 0) return file;
    length = readlinkat(file, "", target, sizeof target);
    if (length < 0 && errno == ENOENT) errno = EINVAL; /* it is no link */
    close(file);
  }
  if (length < 0) return -errno;
  if (length > size) length = (ssize_t)size;
  error = write_memory(call->memory, buffer, target, (size_t)length);
  return error != 0 ? error : length;
}

/* A file that may be changed: in the working directory. */
static int open_own(const struct call *call, int directory, uint64_t path) {
  char real[PATH_MAX];
  int file = open_named(call, directory, path);
  if (file < 0) return file;
  int error = real_path(file, real);
  if (error == 0 && is_own(real)) return file;
  close(file);
  return -EPERM;
}

static long answer_chmod(const struct call *call, int directory, uint64_t path, unsigned mode) {
  char link[32];
  int file = open_own(call, directory, path);
  if (file < 0) return file;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  /* No other user may become this user by a program that is left here. */
  long result = chmod(link, mode & 01777) != 0 ? (errno == ELOOP ? -EOPNOTSUPP : -errno) : 0;
  close(file);
  return result;
}

static long answer_times(const struct call *call, int directory, uint64_t path, const struct timespec *times) {
  char link[32];
  int file = open_own(call, directory, path);
  if (file < 0) return file;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  long result = utimensat(AT_FDCWD, link, times, 0) != 0 ? (errno == ELOOP ? 0 : -errno) : 0;
  close(file);
  return result;
}

static int read_times(const struct call *call, uint64_t address, void *times, size_t size) {
  return pread(call->memory, times, size, (off_t)address) == (ssize_t)size ? 0 : -EFAULT;
}

static long answer_timespecs(struct call *call) {
  struct timespec times[2];
  call->empty = argument(call, 1) == 0 || call->empty;
  if (argument(call, 2) == 0) return answer_times(call, (int)argument(call, 0), argument(call, 1), NULL);
  int error = read_times(call, argument(call, 2), times, sizeof times);
  return error != 0 ? error : answer_times(call, (int)argument(call, 0), argument(call, 1), times);
}

#ifdef SYS_stat
static long answer_timevals(struct call *call, int directory, uint64_t path, uint64_t address) {
  struct timeval given[2];
  if (address == 0) return answer_times(call, directory, path, NULL);
  int error = read_times(call, address, given, sizeof given);
  if (error != 0) return error;
  struct timespec times[2] = { { given[0].tv_sec, given[0].tv_usec * 1000 }, { given[1].tv_sec, given[1].tv_usec * 1000 } };
  return answer_times(call, directory, path, times);
}

static long answer_utime(struct call *call) {
  struct utimbuf given;
  if (argument(call, 1) == 0) return answer_times(call, AT_FDCWD, argument(call, 0), NULL);
  int error = read_times(call, argument(call, 1), &given, sizeof given);
  if (error != 0) return error;
  struct timespec times[2] = { { given.actime, 0 }, { given.modtime, 0 } };
  return answer_times(call, AT_FDCWD, argument(call, 0), times);
}
#endif

/* The answer to a question about a file. A result below 0 is an error. */
static long answer_about_file(struct call *call) {
  int first = (int)argument(call, 0);
  switch (call->question->data.nr) {
#ifdef SYS_stat
    case SYS_stat: return answer_stat(call, AT_FDCWD, argument(call, 0), argument(call, 1));
    case SYS_lstat: call->nofollow = 1; return answer_stat(call, AT_FDCWD, argument(call, 0), argument(call, 1));
    case SYS_access: return answer_access(call, AT_FDCWD, argument(call, 0), (int)argument(call, 1));
    case SYS_readlink: return answer_readlink(call, AT_FDCWD, argument(call, 0), argument(call, 1), (int64_t)(int)argument(call, 2));
    case SYS_chmod: return answer_chmod(call, AT_FDCWD, argument(call, 0), (unsigned)argument(call, 1));
    case SYS_utime: return answer_utime(call);
    case SYS_utimes: return answer_timevals(call, AT_FDCWD, argument(call, 0), argument(call, 1));
    case SYS_futimesat: call->empty = argument(call, 1) == 0; return answer_timevals(call, first, argument(call, 1), argument(call, 2));
#endif
    case SYS_statfs: return answer_statfs(call);
    case SYS_readlinkat: return answer_readlink(call, first, argument(call, 1), argument(call, 2), (int64_t)(int)argument(call, 3));
    case SYS_faccessat: return answer_access(call, first, argument(call, 1), (int)argument(call, 2));
    case SYS_fchmodat: return answer_chmod(call, first, argument(call, 1), (unsigned)argument(call, 2));
    case SYS_fchmod: call->empty = 1; return answer_chmod(call, first, 0, (unsigned)argument(call, 1));
  }
  /* Those with flags, of which these two matter. */
  int flags = (int)argument(call, call->question->data.nr == SYS_statx ? 2 : 3);
  call->nofollow = (flags & AT_SYMLINK_NOFOLLOW) != 0;
  call->empty = (flags & AT_EMPTY_PATH) != 0;
  switch (call->question->data.nr) {
    case SYS_newfstatat: return answer_stat(call, first, argument(call, 1), argument(call, 2));
    case SYS_statx: return answer_statx(call);
    case SYS_faccessat2: return answer_access(call, first, argument(call, 1), (int)argument(call, 2));
    case SYS_fchmodat2: return answer_chmod(call, first, argument(call, 1), (unsigned)argument(call, 2));
    case SYS_utimensat: return answer_timespecs(call);
    default: return -ENOSYS;
  }
}

/* Something that is granted until a count, which is only made when the bound could be reached, refuses it. */
struct count {
  long known;
  struct timespec last;
};

static double seconds_since(const struct timespec *then) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)(now.tv_sec - then->tv_sec) + (double)(now.tv_nsec - then->tv_nsec) / 1e9;
}

static int grant(struct count *count, long added, long most, long (*recount)(void)) {
  if (count->known + added > most) {
    /* What was granted a moment ago is not to be seen yet. */
    if (seconds_since(&count->last) < SETTLE_US / 1e6) usleep(SETTLE_US);
    long counted = recount();
    count->known = counted < 0 ? most : counted;
    if (count->known + added > most) return 0;
  }
  count->known += added;
  clock_gettime(CLOCK_MONOTONIC, &count->last);
  return 1;
}

static long recount_sockets(void) {
  return count_sockets(options.sockets);
}

static long recount_files(void) {
  long blocks;
  return count_files(&blocks);
}

static struct count task_count, socket_count, file_count;

static void answer(void) {
  struct seccomp_notif question = { 0 };
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &question) != 0) return; /* the caller has ended */
  struct seccomp_notif_resp response = { .id = question.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
  int refusal = 0;
  switch (question.data.nr) {
    case SYS_clone:
#ifdef SYS_fork
    case SYS_fork:
    case SYS_vfork:
#endif
      if (options.tasks > 0 && !grant(&task_count, 1, options.tasks, count_tasks)) refusal = -EAGAIN;
      break;
    case SYS_socketpair:
      if (options.sockets > 0 && !grant(&socket_count, 2, options.sockets, recount_sockets)) refusal = -EMFILE;
      break;
#ifdef SYS_pipe
    case SYS_pipe:
#endif
    case SYS_pipe2:
    case SYS_socket:
    case SYS_accept:
#ifdef SYS_accept4
    case SYS_accept4:
#endif
      if (options.sockets > 0 && !grant(&socket_count, 1, options.sockets, recount_sockets)) refusal = -EMFILE;
      break;
#ifdef SYS_open
    case SYS_open:
    case SYS_creat:
    case SYS_mkdir:
    case SYS_mknod:
    case SYS_symlink:
    case SYS_link:
#endif
    case SYS_openat:
    case SYS_mkdirat:
    case SYS_mknodat:
    case SYS_symlinkat:
    case SYS_linkat:
      if (options.files > 0 && !grant(&file_count, 1, options.files, recount_files)) refusal = -ENOSPC;
      break;
    default: {
      struct call call = { .question = &question, .memory = open_memory(&question) };
      long result = call.memory < 0 ? -EPERM : answer_about_file(&call);
      if (call.memory >= 0) close(call.memory);
      response.flags = 0;
      response.error = result < 0 ? (int)result : 0;
      response.val = result < 0 ? 0 : result;
    }
  }
  if (refusal != 0) {
    response.flags = 0;
    response.error = refusal;
  }
  ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response); /* fails when the caller has ended */
}

/* ---- Watching ---- */

/* Looks whether more is used than may be; the time until the next look, in microseconds. */
static long look(void) {
  static int round;
  static long last_kb;
  static struct timespec last_disk;
  struct timespec begun;
  long pause = IDLE_LOOK_US;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  if (options.memory_kb > 0) {
    struct memory memory = count_memory(round++);
    if (memory.least_kb > options.memory_kb) end_by(SIGUSR1);
    if (memory.most_kb > options.memory_kb && count_memory_exactly_kb() > options.memory_kb) end_by(SIGUSR1);
    if (memory.is_running) pause = BUSY_LOOK_US;
    if (memory.most_kb > last_kb + 1024) pause = LEAST_LOOK_US; /* it grows */
    last_kb = memory.most_kb;
  }
  if (options.disk_blocks > 0 && seconds_since(&last_disk) * 1e6 >= DISK_LOOK_US) {
    long blocks;
    clock_gettime(CLOCK_MONOTONIC, &last_disk);
    count_files(&blocks);
    if (blocks > options.disk_blocks) end_by(SIGUSR2);
  }
  long taken = (long)(seconds_since(&begun) * 1e6) * 4; /* a fifth of a processor at most */
  return taken > pause ? taken : pause;
}

static void reap(pid_t command) {
  int status;
  pid_t ended;
  while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
    if (ended == command) end_with(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
}

static void supervise(pid_t command, int signals, int is_watched) {
  struct timespec last_look = { 0 };
  long pause = 0;
  for (;;) {
    struct pollfd sources[] = { { signals, POLLIN, 0 }, { listener, POLLIN, 0 } };
    long left = is_watched ? pause - (long)(seconds_since(&last_look) * 1e6) : 1000000;
    struct timespec wait = { 0, left < 0 ? 0 : left * 1000 };
    if (left >= 1000000) wait = (struct timespec){ 1, 0 };
    if (ppoll(sources, 2, is_watched ? &wait : NULL, NULL) < 0 && errno != EINTR) fail("supervisor", "");
    if (sources[0].revents != 0) {
      struct signalfd_siginfo signal;
      if (read(signals, &signal, sizeof signal) == sizeof signal && signal.ssi_signo == SIGTERM) end_with(128 + SIGKILL);
      reap(command);
    }
    if (sources[1].revents & POLLIN) answer();
    else if (sources[1].revents != 0) { /* nothing is left that could ask */
      close(listener);
      listener = -1;
    }
    if (is_watched && seconds_since(&last_look) * 1e6 >= pause) {
      pause = look();
      clock_gettime(CLOCK_MONOTONIC, &last_look);
    }
  }
}

/* Above the descriptors that belong to the command. */
static int out_of_the_way(int descriptor) {
  int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, 32);
  close(descriptor);
  return moved;
}

static int open_signals(void) {
  sigset_t expected;
  sigemptyset(&expected);
  sigaddset(&expected, SIGTERM);
  sigaddset(&expected, SIGCHLD);
  sigprocmask(SIG_BLOCK, &expected, NULL);
  return out_of_the_way(signalfd(-1, &expected, SFD_CLOEXEC | SFD_NONBLOCK));
}

/* Asks for short turns, so that a busy machine gives them soon; a kernel before 6.12 gives ordinary ones. */
static void take_short_turns(void) {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } wanted = { .size = 48, .flags = 0x08, .nice = getpriority(PRIO_PROCESS, 0), .runtime = SHORT_TURN_NS }; /* keeps the policy */
  syscall(SYS_sched_setattr, 0, &wanted, 0);
}

static void require_lists_of_children(void) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  if (access(path, R_OK) != 0) fail("supervisor", "/proc without lists of children");
}

int main(int count, char **words) {
  int channel[2];
  parse(count, words);
  syscall(SYS_close_range, options.last_descriptor + 1, ~0u, 0u);
  /* Before any child can end: what is blocked waits for the supervisor. */
  int signals = open_signals();
  pid_t parent = getppid();
  if (signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail("supervisor", "");
  if (options.user >= 0) become(options.user);
  /* After the change of user, which would clear it. */
  if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) fail("supervisor", "");
  if (getppid() != parent) _exit(71);
  require_lists_of_children();
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) != 0) fail("supervisor", "");
  for (int end = 0; end < 2; end++) channel[end] = out_of_the_way(channel[end]);
  pid_t command = fork();
  if (command < 0) fail("fork", "");
  if (command == 0) {
    close(channel[0]);
    run_inside(channel[1]);
  }
  close(channel[1]);
  /* A reader of the other ends is to see what the command closes. */
  for (unsigned descriptor = 0; descriptor <= options.last_descriptor; descriptor++) close((int)descriptor);
  take_short_turns();
  if (options.questions != NULL) {
    remember_paths();
    listener = receive_descriptor(channel[0]);
  }
  close(channel[0]);
  supervise(command, signals, options.memory_kb > 0 || options.disk_blocks > 0);
}
