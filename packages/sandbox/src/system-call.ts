/** What a seccomp program has to know about a processor. */
export interface Architecture {
  /** Its number in `linux/audit.h`. */
  audit: number;
  /** Whether numbers with bit 30 set mean system calls too (the x32 ABI). */
  hasX32: boolean;
  calls: Readonly<Record<FilteredCall | RefusedCall, number>> & Partial<Record<LegacyCall, number>>;
}

/** Calls that are refused whatever their arguments are: a door to the kernel, or to other processes. */
export const refusedCalls = [
  "acct",
  "add_key",
  "adjtimex",
  "bpf",
  "chroot",
  "clock_adjtime",
  "clock_settime",
  "delete_module",
  "fanotify_init",
  "finit_module",
  "fsconfig",
  "fsmount",
  "fsopen",
  "fspick",
  "get_mempolicy",
  "init_module",
  "io_uring_enter",
  "io_uring_register",
  "io_uring_setup",
  "kcmp",
  "kexec_file_load",
  "kexec_load",
  "keyctl",
  "lookup_dcookie",
  "mbind",
  "memfd_secret",
  "migrate_pages",
  "mount",
  "mount_setattr",
  "move_mount",
  "move_pages",
  "name_to_handle_at",
  "open_by_handle_at",
  "open_tree",
  "open_tree_attr",
  "perf_event_open",
  "pidfd_getfd",
  "pivot_root",
  "process_madvise",
  "process_mrelease",
  "process_vm_readv",
  "process_vm_writev",
  "ptrace",
  "quotactl",
  "quotactl_fd",
  "reboot",
  "request_key",
  "set_mempolicy",
  "setns",
  "settimeofday",
  "swapoff",
  "swapon",
  "syslog",
  "umount2",
  "unshare",
  "userfaultfd",
] as const;
export type RefusedCall = (typeof refusedCalls)[number];

/** The same, where the processor has them. */
export const legacyCalls = ["ioperm", "iopl", "modify_ldt", "uselib"] as const;
export type LegacyCall = (typeof legacyCalls)[number];

/** Calls that depend on their arguments, or on what else bounds the program. */
export type FilteredCall =
  | "clone"
  | "clone3"
  | "ioctl"
  | "memfd_create"
  | "mmap"
  | "mq_open"
  | "msgget"
  | "personality"
  | "semget"
  | "shmget"
  | "socket"
  | "socketpair";

// Numbers since Linux 5.1 are the same everywhere.
const recent = {
  clone3: 435,
  fsconfig: 431,
  fsmount: 432,
  fsopen: 430,
  fspick: 433,
  io_uring_enter: 426,
  io_uring_register: 427,
  io_uring_setup: 425,
  memfd_secret: 447,
  mount_setattr: 442,
  move_mount: 429,
  open_tree: 428,
  open_tree_attr: 467,
  pidfd_getfd: 438,
  process_madvise: 440,
  process_mrelease: 448,
  quotactl_fd: 443,
};

const x64: Architecture = {
  audit: 0xc000003e,
  hasX32: true,
  calls: {
    ...recent,
    acct: 163,
    add_key: 248,
    adjtimex: 159,
    bpf: 321,
    chroot: 161,
    clock_adjtime: 305,
    clock_settime: 227,
    clone: 56,
    delete_module: 176,
    fanotify_init: 300,
    finit_module: 313,
    get_mempolicy: 239,
    init_module: 175,
    ioctl: 16,
    ioperm: 173,
    iopl: 172,
    kcmp: 312,
    kexec_file_load: 320,
    kexec_load: 246,
    keyctl: 250,
    lookup_dcookie: 212,
    mbind: 237,
    memfd_create: 319,
    migrate_pages: 256,
    mmap: 9,
    modify_ldt: 154,
    mount: 165,
    move_pages: 279,
    mq_open: 240,
    msgget: 68,
    name_to_handle_at: 303,
    open_by_handle_at: 304,
    perf_event_open: 298,
    personality: 135,
    pivot_root: 155,
    process_vm_readv: 310,
    process_vm_writev: 311,
    ptrace: 101,
    quotactl: 179,
    reboot: 169,
    request_key: 249,
    semget: 64,
    set_mempolicy: 238,
    setns: 308,
    settimeofday: 164,
    shmget: 29,
    socket: 41,
    socketpair: 53,
    swapoff: 168,
    swapon: 167,
    syslog: 103,
    umount2: 166,
    unshare: 272,
    uselib: 134,
    userfaultfd: 323,
  },
};

const arm64: Architecture = {
  audit: 0xc00000b7,
  hasX32: false,
  calls: {
    ...recent,
    acct: 89,
    add_key: 217,
    adjtimex: 171,
    bpf: 280,
    chroot: 51,
    clock_adjtime: 266,
    clock_settime: 112,
    clone: 220,
    delete_module: 106,
    fanotify_init: 262,
    finit_module: 273,
    get_mempolicy: 236,
    init_module: 105,
    ioctl: 29,
    kcmp: 272,
    kexec_file_load: 294,
    kexec_load: 104,
    keyctl: 219,
    lookup_dcookie: 18,
    mbind: 235,
    memfd_create: 279,
    migrate_pages: 238,
    mmap: 222,
    mount: 40,
    move_pages: 239,
    mq_open: 180,
    msgget: 186,
    name_to_handle_at: 264,
    open_by_handle_at: 265,
    perf_event_open: 241,
    personality: 92,
    pivot_root: 41,
    process_vm_readv: 270,
    process_vm_writev: 271,
    ptrace: 117,
    quotactl: 60,
    reboot: 142,
    request_key: 218,
    semget: 190,
    set_mempolicy: 237,
    setns: 268,
    settimeofday: 170,
    shmget: 194,
    socket: 198,
    socketpair: 199,
    swapoff: 225,
    swapon: 224,
    syslog: 116,
    umount2: 39,
    unshare: 97,
    userfaultfd: 282,
  },
};

/** Undefined for a processor whose numbers are not known: nothing can be kept in there. */
export function architectureOf(name: string): Architecture | undefined {
  return { x64, arm64 }[name];
}
