# Makes raw system calls, each in a process of its own, and prints what came of them as one JSON object: the name of the
# errno, "ok", or the signal that ended the process. Arguments are such that a call that is let through does no harm.
import ctypes, errno, json, mmap, os, platform, signal, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == 'x86_64'
PATH = os.path.join(sys.argv[1], 'made')

# Numbers: x86_64, aarch64. None where the architecture has no such call.
N = {
    'clone': (56, 220), 'unshare': (272, 97), 'setns': (308, 268), 'clone3': (435, 435), 'openat2': (437, 437),
    'mount': (165, 40), 'umount2': (166, 39), 'pivot_root': (155, 41), 'chroot': (161, 51), 'fsopen': (430, 430),
    'open_tree': (428, 428), 'move_mount': (429, 429), 'mount_setattr': (442, 442),
    'bpf': (321, 280), 'perf_event_open': (298, 241), 'userfaultfd': (323, 282),
    'io_uring_setup': (425, 425), 'io_uring_enter': (426, 426), 'io_uring_register': (427, 427),
    'keyctl': (250, 219), 'add_key': (248, 217), 'request_key': (249, 218),
    'open_by_handle_at': (304, 265), 'name_to_handle_at': (303, 264), 'fanotify_init': (300, 262),
    'kexec_load': (246, 104), 'kexec_file_load': (320, 294), 'init_module': (175, 105), 'finit_module': (313, 273),
    'delete_module': (176, 106), 'reboot': (169, 142), 'swapon': (167, 224), 'swapoff': (168, 225), 'syslog': (103, 116),
    'acct': (163, 89), 'quotactl': (179, 60), 'settimeofday': (164, 170), 'clock_settime': (227, 112),
    'sethostname': (170, 161), 'iopl': (172, None), 'ioperm': (173, None), 'modify_ldt': (154, None),
    'pidfd_getfd': (438, 438), 'kcmp': (312, 272), 'process_madvise': (440, 440), 'move_pages': (279, 239),
    'mbind': (237, 235), 'set_mempolicy': (238, 237), 'vmsplice': (278, 75), 'personality': (135, 92),
    'socket': (41, 198), 'socketpair': (53, 199), 'ioctl': (16, 29), 'open': (2, None), 'openat': (257, 56),
    'creat': (85, None), 'chmod': (90, None), 'fchmod': (91, 52), 'fchmodat': (268, 53), 'fchmodat2': (452, 452),
    'mknod': (133, None), 'mknodat': (259, 33), 'getpid': (39, 172), 'memfd_create': (319, 279), 'ptrace': (101, 117),
    'futex': (202, 98), 'rseq': (334, 293), 'pidfd_open': (434, 434), 'close_range': (436, 436), 'faccessat2': (439, 439),
    'landlock_create_ruleset': (444, 444), 'inotify_init1': (294, 26), 'io_setup': (206, 0), 'renameat2': (316, 276),
}
AT_FDCWD = -100


def number(name):
    return N[name][0 if X86 else 1]


def raw(nr, *args):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(nr), *words)
    if result == -1:
        raise OSError(ctypes.get_errno(), '')
    return result


def call(name, *args):
    return lambda: raw(number(name), *args)


def apart(probe):
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            probe()
            word = 'ok'
        except OSError as error:
            word = errno.errorcode.get(error.errno, str(error.errno))
        os.write(into, word.encode())
        os._exit(0)
    os.close(into)
    word = os.read(out, 100).decode()
    os.close(out)
    _, status = os.waitpid(child, 0)
    return word or (signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else 'ended')


def code(*octets):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes(octets))
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if result < 0:
        raise OSError(-result, '')


# socket(AF_VSOCK, SOCK_STREAM, 0) by the numbers of i386: int 0x80, with the answer in eax.
def i386_vsock():
    code(0x53, 0xb8, 0x67, 0x01, 0, 0, 0xbb, 40, 0, 0, 0, 0xb9, 1, 0, 0, 0, 0xba, 0, 0, 0, 0, 0xcd, 0x80, 0x5b, 0xc3)


def i386_getpid():
    code(0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3)


def namespace_clone():
    if raw(number('clone'), 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)
    os.wait()


def fresh():
    if os.path.lexists(PATH):
        os.unlink(PATH)
    return PATH.encode()


def setuid_open(name, *before):
    def probe():
        descriptor = raw(number(name), *before, fresh(), os.O_CREAT | os.O_WRONLY, 0o4755)
        has_setuid(descriptor)
    return probe


def has_setuid(descriptor):
    if not os.fstat(descriptor).st_mode & 0o4000:
        raise OSError(errno.ENODATA, '')


def on_file(use):
    def probe():
        with open(fresh(), 'w') as file:
            use(file.fileno())
            has_setuid(file.fileno())
    return probe


def setuid_tmpfile():
    has_setuid(raw(number('openat'), AT_FDCWD, sys.argv[1].encode(), 0o20200000 | os.O_RDWR if X86 else 0o20040000 | os.O_RDWR, 0o4755))


def node(kind, setuid=0):
    def probe():
        if X86:
            raw(number('mknod'), fresh(), kind | 0o600, 0)
        raw(number('mknodat'), AT_FDCWD, fresh(), kind | 0o600 | setuid, 0)
    return probe


DENIED = {name: call(name, *args) for name, args in {
    'unshare': (0x10000000,), 'setns': (-1, 0), 'mount': (0, 0, 0, 0, 0), 'umount2': (0, 0), 'pivot_root': (0, 0),
    'chroot': (0,), 'fsopen': (0, 0), 'open_tree': (-1, 0, 0), 'move_mount': (-1, 0, -1, 0, 0),
    'mount_setattr': (-1, 0, 0, 0, 0), 'bpf': (0, 0, 0), 'perf_event_open': (0, 0, 0, 0, 0), 'userfaultfd': (0xffff,),
    'io_uring_setup': (0, 0), 'io_uring_enter': (-1, 0, 0, 0, 0, 0), 'io_uring_register': (-1, 0, 0, 0),
    'keyctl': (0, -1, 0, 0, 0), 'add_key': (0, 0, 0, 0, 0), 'request_key': (0, 0, 0, 0),
    'open_by_handle_at': (-1, 0, 0), 'name_to_handle_at': (-1, 0, 0, 0, 0), 'fanotify_init': (0xffffff, 0),
    'kexec_load': (0, 99, 0, -1), 'kexec_file_load': (-1, -1, 0, 0, -1), 'init_module': (0, 0, 0),
    'finit_module': (-1, 0, 0), 'delete_module': (0, 0), 'reboot': (0, 0, 0, 0), 'swapon': (0, 0), 'swapoff': (0,),
    'syslog': (9, 0, 0), 'acct': (1,), 'quotactl': (0x80000100, 0, 0, 0), 'settimeofday': (0, 0),
    'clock_settime': (99, 0), 'sethostname': (0, -1), 'pidfd_getfd': (-1, 0, 0), 'kcmp': (-1, -1, 99, 0, 0),
    'process_madvise': (-1, 0, 0, 0, 0), 'move_pages': (0, 0, 0, 0, 0, 99), 'mbind': (1, 0, 0, 0, 0, 0),
    'set_mempolicy': (99, 0, 0), 'vmsplice': (-1, 0, 0, 0), 'iopl': (0,), 'ioperm': (0, 1, 0), 'modify_ldt': (0, 0, 0),
}.items() if number(name) is not None}
DENIED['clone: new namespace'] = namespace_clone
DENIED['personality: readable is executable'] = call('personality', 0x0400000)
for family in ('KEY:15', 'PACKET:17', 'RDS:21', 'CAN:29', 'TIPC:30', 'BLUETOOTH:31', 'ALG:38', 'VSOCK:40', 'QIPCRTR:42', 'SMC:43', 'XDP:44'):
    name, value = family.split(':')
    DENIED['socket: ' + name] = call('socket', int(value), socket.SOCK_DGRAM if name == 'VSOCK' else socket.SOCK_RAW, 0)
DENIED['socket: VSOCK with a bit above the 32'] = call('socket', 1 << 32 | 40, socket.SOCK_STREAM, 0)
DENIED['socket: SCTP'] = call('socket', socket.AF_INET, socket.SOCK_STREAM, 132)
DENIED['socket: netlink for filters'] = call('socket', socket.AF_NETLINK, socket.SOCK_RAW, 12)
DENIED['socketpair: INET'] = call('socketpair', socket.AF_INET, socket.SOCK_STREAM, 0, 0)
DENIED['ioctl: TIOCSTI'] = call('ioctl', -1, 0x5412, 0)
DENIED['ioctl: TIOCSTI with a bit above the 32'] = call('ioctl', -1, 1 << 32 | 0x5412, 0)
DENIED['ioctl: TIOCLINUX'] = call('ioctl', -1, 0x541c, 0)
DENIED['setuid: fchmod'] = on_file(lambda fd: raw(number('fchmod'), fd, 0o4755))
DENIED['setuid: fchmodat'] = on_file(lambda fd: raw(number('fchmodat'), AT_FDCWD, PATH.encode(), 0o4755))
DENIED['setuid: openat'] = setuid_open('openat', AT_FDCWD)
DENIED['setuid: openat without a name'] = setuid_tmpfile
DENIED['setuid: mknodat'] = node(0o100000, 0o4000)
DENIED['device: block'] = node(0o060000)
DENIED['device: character'] = node(0o020000)
if X86:
    DENIED['setuid: chmod'] = on_file(lambda fd: raw(number('chmod'), PATH.encode(), 0o4755))
    DENIED['setuid: open'] = setuid_open('open')
    DENIED['setuid: creat'] = lambda: has_setuid(raw(number('creat'), fresh(), 0o4755))

ABSENT = {
    'clone3': call('clone3', 0, 0), 'openat2': call('openat2', -1, 0, 0, 0),
}

KILLED = {'i386: socket VSOCK': i386_vsock, 'i386: getpid': i386_getpid, 'x32: getpid': lambda: raw(0x40000000 | 39)} if X86 else {}


def threads():
    import threading
    seen = []
    many = [threading.Thread(target=seen.append, args=(1,)) for _ in range(8)]
    [thread.start() for thread in many]
    [thread.join() for thread in many]
    assert len(seen) == 8


def locked():
    import fcntl
    with open(fresh(), 'w') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.lockf(file, fcntl.LOCK_EX)


def attributes():
    with open(fresh(), 'w') as file:
        os.setxattr(file.fileno(), 'user.acode', b'1')
        assert os.getxattr(PATH, 'user.acode') == b'1'


def modes():
    with open(fresh(), 'w') as file:
        for mode in (0o755, 0o1777, 0o2755, 0o600):
            os.chmod(PATH, mode)
            os.fchmod(file.fileno(), mode)
            raw(number('fchmodat'), AT_FDCWD, PATH.encode(), mode)


def events():
    import select
    with select.epoll() as epoll:
        out, into = os.pipe()
        epoll.register(out, select.EPOLLIN)
        os.write(into, b'x')
        assert epoll.poll(1)


def shared():
    from multiprocessing import shared_memory
    block = shared_memory.SharedMemory(create=True, size=4096)
    block.close()
    block.unlink()


def traced():
    child = os.fork()
    if child == 0:
        raw(number('ptrace'), 0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(7)
    os.waitpid(child, 0)
    raw(number('ptrace'), 7, child, 0, 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def terminal():
    import pty, termios
    primary, secondary = pty.openpty()
    termios.tcgetattr(secondary)
    os.write(primary, b'x\n')
    assert os.read(secondary, 2) == b'x\n'


def connected(family, address):
    def probe():
        with socket.socket(family, socket.SOCK_STREAM) as server, socket.socket(family, socket.SOCK_STREAM) as client:
            server.bind(address)
            server.listen()
            client.connect(server.getsockname())
            server.accept()[0].sendall(b'x')
            assert client.recv(1) == b'x'
    return probe


def routes():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.sendto(struct.pack('IHHIIBxxxI', 20, 18, 0x301, 1, 0, 0, 0), (0, 0))
        assert len(link.recv(65536)) > 16


def just_in_time():
    code(*((0xb8, 42, 0, 0, 0, 0xc3) if X86 else (0x40, 0x05, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6)))


def run(*argv):
    import subprocess
    return lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


ALLOWED = {
    'threads': threads, 'fork and exec': run('true'), 'locks': locked, 'extended attributes': attributes,
    'chmod without setuid': modes, 'epoll': events, 'shared memory': shared, 'ptrace of a child': traced,
    'a terminal of its own': terminal, 'code made at run time': just_in_time, 'routes over netlink': routes,
    'socket: unix': connected(socket.AF_UNIX, '\0acode'), 'socket: inet': connected(socket.AF_INET, ('127.0.0.1', 0)),
    'socket: inet6': lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close(),
    'socketpair': lambda: socket.socketpair(), 'memfd': lambda: os.memfd_create('x'),
    'a pipe with a name': lambda: os.mkfifo(fresh()), 'a socket with a name': node(0o140000),
    'a file by mknod': node(0o100000), 'a file without a name': lambda: os.open(sys.argv[1], os.O_TMPFILE | os.O_RDWR, 0o600),
    'inotify': call('inotify_init1', 0), 'personality: asking': call('personality', 0xffffffff),
    'personality: addresses that are not random': call('personality', 0x40000),
    'pidfd': lambda: os.pidfd_open(os.getpid()), 'close_range': call('close_range', 1000, 1001, 0),
    'directories': lambda: os.rmdir((fresh(), os.mkdir(PATH))[0]), 'timers': lambda: signal.setitimer(signal.ITIMER_REAL, 0),
}

print(json.dumps({
    group: {name: apart(probe) for name, probe in probes.items()}
    for group, probes in {'denied': DENIED, 'absent': ABSENT, 'killed': KILLED, 'allowed': ALLOWED}.items()
}))
