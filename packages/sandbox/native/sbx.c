/*
 * sbx: keeps a program in without namespaces and without privileges.
 *
 *   sbx -l ABI [-s FILTER] [-u UID] [-g CGROUP.PROCS]... [-b RESOURCE=BOUND]... [-r PATH]... [-w PATH]... -- COMMAND...
 *
 * -l  refuse to start where Landlock is older than this
 * -s  a seccomp program in the kernel's binary form
 * -u  become this user (and the group of the same number)
 * -g  enter a control group
 * -b  a resource limit: core, cpu, data, fsize, nofile, nproc
 * -r  readable and executable, if it exists
 * -w  writable as well
 *
 * The first process stays outside as the supervisor: everything started inside becomes its child in
 * the end, however it was detached, and is killed when the command ends, when the supervisor gets
 * SIGTERM, and when its own parent dies. Descriptors above 3 are closed. Exit codes: the command's,
 * 128 and its signal, 64 for wrong arguments, 70 for an older Landlock, 71 when anything else fails.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_PATHS 4096
#define MAX_INSTRUCTIONS 4096

/* The kernel's own header may be older than the kernel. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
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

struct options {
  long least_abi;
  const char *filter;
  long user;
  const char *readable[MAX_PATHS];
  int readable_count;
  const char *writable[MAX_PATHS];
  int writable_count;
  char **command;
};

static void fail(const char *what, const char *detail) {
  fprintf(stderr, "sbx: %s %s: %s\n", what, detail, strerror(errno));
  _exit(71);
}

static void misused(const char *what) {
  fprintf(stderr, "sbx: %s\n", what);
  _exit(64);
}

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

static void set_bound(char *text) {
  static const struct { const char *name; int resource; } known[] = {
    { "core", RLIMIT_CORE }, { "cpu", RLIMIT_CPU }, { "data", RLIMIT_DATA },
    { "fsize", RLIMIT_FSIZE }, { "nofile", RLIMIT_NOFILE }, { "nproc", RLIMIT_NPROC },
  };
  char *equals = strchr(text, '=');
  if (equals == NULL) misused("a bound without a value");
  *equals = 0;
  rlim_t value = (rlim_t)number(equals + 1);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(text, known[i].name) != 0) continue;
    struct rlimit now, bound = { value, value };
    if (getrlimit(known[i].resource, &now) != 0) fail("limit", text);
    /* What is lower already stays. */
    if (now.rlim_max < value) bound.rlim_cur = bound.rlim_max = now.rlim_max;
    if (setrlimit(known[i].resource, &bound) != 0) fail("limit", text);
    return;
  }
  misused("an unknown bound");
}

static const char *keep(const char *path, const char **list, int *count) {
  if (*count == MAX_PATHS) misused("too many paths");
  return list[(*count)++] = path;
}

static struct options parse(int count, char **words) {
  static struct options options = { .user = -1 };
  int at = 1;
  for (; at < count && strcmp(words[at], "--") != 0; at += 2) {
    if (words[at][0] != '-' || words[at][1] == 0 || words[at][2] != 0 || at + 1 >= count) misused("wrong arguments");
    char *value = words[at + 1];
    switch (words[at][1]) {
      case 'l': options.least_abi = number(value); break;
      case 's': options.filter = value; break;
      case 'u': options.user = number(value); break;
      case 'g': enter_group(value); break;
      case 'b': set_bound(value); break;
      case 'r': keep(value, options.readable, &options.readable_count); break;
      case 'w': keep(value, options.writable, &options.writable_count); break;
      default: misused("wrong arguments");
    }
  }
  if (at + 1 >= count) misused("no command");
  options.command = words + at + 1;
  return options;
}

static FILE *open_children(void) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  return fopen(path, "re");
}

static void kill_children(void) {
  FILE *file = open_children();
  int child;
  while (file != NULL && fscanf(file, "%d", &child) == 1) kill(child, SIGKILL);
  if (file != NULL) fclose(file);
}

/* Whoever loses its parent while this goes on becomes a child here and is found by the next round. */
static void end_all(void) {
  for (;;) {
    pid_t ended;
    kill_children();
    while ((ended = waitpid(-1, NULL, WNOHANG)) > 0) continue;
    if (ended < 0 && errno == ECHILD) return;
    usleep(500);
  }
}

static void supervise(pid_t command) {
  sigset_t expected;
  /* Whoever reads the other ends is to see what the command closes. */
  for (int descriptor = 0; descriptor <= 3; descriptor++) close(descriptor);
  sigemptyset(&expected);
  sigaddset(&expected, SIGTERM);
  sigaddset(&expected, SIGCHLD);
  for (;;) {
    int status, signal_number;
    pid_t ended;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
      if (ended != command) continue;
      end_all();
      _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    if (sigwait(&expected, &signal_number) == 0 && signal_number == SIGTERM) {
      end_all();
      _exit(128 + SIGKILL);
    }
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

static int make_rules(const struct options *options) {
  long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
  if (abi < options->least_abi) {
    fprintf(stderr, "sbx: Landlock %ld, where %ld is needed\n", abi < 0 ? 0 : abi, options->least_abi);
    _exit(70);
  }
  uint64_t all = all_file_rights(abi);
  struct ruleset handled = { all, abi >= 4 ? ALL_TCP : 0, abi >= 6 ? ALL_SCOPES : 0 };
  size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
  int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, size, 0);
  if (rules < 0) fail("rules", "");
  for (int i = 0; i < options->readable_count; i++) allow(rules, options->readable[i], EXECUTE | READ_FILE | READ_DIRECTORY);
  uint64_t own = all & ~(uint64_t)(MAKE_CHARACTER_DEVICE | MAKE_BLOCK_DEVICE | IOCTL_DEVICE);
  for (int i = 0; i < options->writable_count; i++) allow(rules, options->writable[i], own);
  return rules;
}

static struct sock_fprog read_filter(const char *path) {
  static struct sock_filter instructions[MAX_INSTRUCTIONS];
  struct sock_fprog program = { 0, instructions };
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t bytes = file < 0 ? -1 : read(file, instructions, sizeof instructions);
  if (bytes <= 0) fail("filter", path);
  close(file);
  program.len = (unsigned short)((size_t)bytes / sizeof *instructions);
  return program;
}

static void become(long user) {
  if (setgroups(0, NULL) != 0 || setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0) fail("user", "");
}

static void run_inside(const struct options *options) {
  if (setsid() < 0) fail("session", "");
  int rules = make_rules(options);
  struct sock_fprog program = { 0, NULL };
  if (options->filter != NULL) program = read_filter(options->filter);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("process", "");
  if (syscall(SYS_landlock_restrict_self, rules, 0) != 0) fail("restriction", "");
  close(rules);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (options->filter != NULL && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) fail("filter", options->filter);
  execvp(options->command[0], options->command);
  fail("command", options->command[0]);
}

int main(int count, char **words) {
  syscall(SYS_close_range, 4u, ~0u, 0u);
  struct options options = parse(count, words);
  /* Before any child can end: what is blocked waits for the supervisor. */
  sigset_t expected;
  sigemptyset(&expected);
  sigaddset(&expected, SIGTERM);
  sigaddset(&expected, SIGCHLD);
  sigprocmask(SIG_BLOCK, &expected, NULL);
  pid_t parent = getppid();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail("supervisor", "");
  if (options.user >= 0) become(options.user);
  /* After the change of user, which would clear it. */
  if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) fail("supervisor", "");
  if (getppid() != parent) _exit(71);
  FILE *children = open_children();
  if (children == NULL) fail("supervisor", "/proc without lists of children");
  fclose(children);
  pid_t command = fork();
  if (command < 0) fail("fork", "");
  if (command == 0) run_inside(&options);
  close(3);
  supervise(command);
}
