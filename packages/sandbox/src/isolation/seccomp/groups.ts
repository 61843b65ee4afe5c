// The system calls a sandbox may make whatever their arguments, in groups with the reason for each.
//
// Written as an allow-list from what interpreters, compilers, package managers and test runners do. What is not here
// and not in conditions.ts is refused: that is the whole point, so a name is added only with a reason.

/** A group of calls that are allowed for one reason. */
export interface Group {
  readonly name: string;
  readonly reason: string;
  readonly calls: readonly string[];
  /** Calls that only the older interface of x86_64 has; other architectures never had them. */
  readonly x86_64?: readonly string[];
}

/** Everything that is allowed without a look at its arguments. */
export const GROUPS: readonly Group[] = [
  {
    name: 'reading and writing',
    reason: 'Descriptors are how every program does its work; which files they lead to was decided by the mounts.',
    calls: [
      ...'read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2'.split(' '),
      ...'close close_range dup dup3 fcntl lseek flock pipe2 splice tee sendfile'.split(' '),
      ...'copy_file_range fallocate ftruncate truncate fadvise64 readahead'.split(' '),
      ...'fsync fdatasync sync syncfs sync_file_range'.split(' '),
    ],
    x86_64: ['dup2', 'pipe'],
  },
  {
    name: 'files and directories',
    reason: 'Names, attributes and owners of files. None of these can set the setuid bit or make a device.',
    calls: [
      ...'statx newfstatat fstat statfs fstatfs faccessat faccessat2 readlinkat getdents64'.split(' '),
      ...'mkdirat unlinkat linkat symlinkat renameat renameat2 utimensat'.split(' '),
      ...'fchown fchownat umask getcwd chdir fchdir'.split(' '),
      ...'getxattr lgetxattr fgetxattr setxattr lsetxattr fsetxattr'.split(' '),
      ...'listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr'.split(' '),
    ],
    x86_64: [
      ...'stat lstat access readlink getdents mkdir rmdir unlink link symlink rename'.split(' '),
      ...'utime utimes futimesat chown lchown'.split(' '),
    ],
  },
  {
    name: 'memory',
    reason: 'Heaps, shared memory, and pages that are written and then executed: just-in-time compilers need them.',
    calls: [
      ...'brk mmap munmap mremap mprotect madvise msync mincore memfd_create mseal'.split(' '),
      ...'mlock mlock2 mlockall munlock munlockall'.split(' '),
      ...'pkey_alloc pkey_free pkey_mprotect membarrier'.split(' '),
    ],
    x86_64: ['map_shadow_stack'],
  },
  {
    name: 'processes and threads',
    reason: 'Starting, waiting for and ending processes. `clone` has a condition: no new namespaces.',
    calls: [
      ...'execve execveat exit exit_group wait4 waitid prctl set_tid_address'.split(' '),
      ...'getpid getppid gettid getpgid setpgid getsid setsid pidfd_open pidfd_send_signal'.split(' '),
      ...'futex futex_waitv futex_wait futex_wake futex_requeue'.split(' '),
      ...'set_robust_list get_robust_list rseq restart_syscall'.split(' '),
    ],
    x86_64: ['fork', 'vfork', 'getpgrp', 'arch_prctl'],
  },
  {
    name: 'signals',
    reason: 'They reach only processes of the same sandbox: no others are visible.',
    calls: [
      ...'rt_sigaction rt_sigprocmask rt_sigpending rt_sigsuspend rt_sigtimedwait rt_sigreturn'.split(' '),
      ...'rt_sigqueueinfo rt_tgsigqueueinfo sigaltstack kill tkill tgkill signalfd4'.split(' '),
    ],
    x86_64: ['pause', 'signalfd'],
  },
  {
    name: 'time',
    reason: 'Reading clocks, sleeping, timers. Setting a clock is not among them.',
    calls: [
      ...'clock_gettime clock_getres clock_nanosleep gettimeofday nanosleep times'.split(' '),
      ...'timer_create timer_settime timer_gettime timer_getoverrun timer_delete'.split(' '),
      ...'getitimer setitimer timerfd_create timerfd_settime timerfd_gettime'.split(' '),
    ],
    x86_64: ['time', 'alarm'],
  },
  {
    name: 'waiting for events',
    reason: 'Event loops and file watchers.',
    calls: [
      ...'epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 ppoll pselect6 eventfd2'.split(' '),
      ...'inotify_init1 inotify_add_watch inotify_rm_watch'.split(' '),
    ],
    x86_64: ['epoll_create', 'epoll_wait', 'poll', 'select', 'eventfd', 'inotify_init'],
  },
  {
    name: 'connections',
    reason: 'What is done with a socket once there is one; `socket` and `socketpair` have conditions.',
    calls: [
      ...'bind listen accept accept4 connect shutdown getsockname getpeername'.split(' '),
      ...'getsockopt setsockopt sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg'.split(' '),
    ],
  },
  {
    name: 'messages between processes',
    reason: 'System V and POSIX queues, semaphores and memory: databases and multiprocessing. The sandbox has its own.',
    calls: [
      ...'shmget shmat shmdt shmctl semget semop semtimedop semctl'.split(' '),
      ...'msgget msgsnd msgrcv msgctl'.split(' '),
      ...'mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr'.split(' '),
    ],
  },
  {
    name: 'identity',
    reason: 'Asking who one is, and dropping privileges. Without capabilities nothing can be gained by any of these.',
    calls: [
      ...'getuid geteuid getgid getegid getresuid getresgid getgroups capget capset'.split(' '),
      ...'setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups'.split(' '),
    ],
  },
  {
    name: 'limits and scheduling',
    reason: 'Reading and lowering one’s own limits and priority. Control groups hold the sandbox whatever is set here.',
    calls: [
      ...'getrlimit setrlimit prlimit64 getrusage getpriority setpriority ioprio_get ioprio_set'.split(' '),
      ...'sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_setparam'.split(' '),
      ...'sched_getscheduler sched_setscheduler sched_getattr sched_setattr'.split(' '),
      ...'sched_get_priority_max sched_get_priority_min sched_rr_get_interval getcpu'.split(' '),
    ],
  },
  {
    name: 'about the system',
    reason: 'Harmless facts, and random numbers.',
    calls: ['uname', 'sysinfo', 'getrandom'],
  },
  {
    name: 'debugging inside',
    reason:
      'Debuggers, tracers and leak checkers look into processes of the same sandbox and the same uid; there are no ' +
      'others to be seen, and since Linux 4.8 a traced call passes this filter after the tracer has changed it.',
    calls: ['ptrace', 'process_vm_readv', 'process_vm_writev'],
  },
  {
    name: 'restricting oneself',
    reason: 'Programs that lock themselves in can only lose rights by it.',
    calls: ['seccomp', 'landlock_create_ruleset', 'landlock_add_rule', 'landlock_restrict_self'],
  },
];

/**
 * Calls that answer “no such call” rather than “not permitted”, because libraries try them first and fall back only then.
 * `clone3` and `openat2` keep their flags and modes in memory, where no filter can see them.
 */
export const UNIMPLEMENTED: readonly string[] = [
  ...'clone3 openat2 cachestat statmount listmount memfd_secret'.split(' '),
  ...'lsm_get_self_attr lsm_set_self_attr lsm_list_modules'.split(' '),
  // The kernel has one number of these for the whole host: a sandbox could take them all. Databases do without.
  ...'io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents'.split(' '),
];

/**
 * Calls that answer “not supported” in a sandbox whose disk use is watched: one of them can take gigabytes before anybody looks.
 * `posix_fallocate` of the C library writes zeros then, which takes its time.
 */
export const UNSUPPORTED_WITH_LIMIT: readonly string[] = ['fallocate'];
