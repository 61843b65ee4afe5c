// Group A: ways out of the sandbox into the kernel and the host.

import { readFileSync } from 'node:fs';
import { release, version } from 'node:os';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { withEngine, withoutEngines } from '../support/engines.ts';
import { Arena } from './arena.ts';
import { attack } from './attack.ts';
import type { Finding } from './attack.ts';
import { probeAsUser, probeSandbox, probeUnprotected } from './probes.ts';
import type { Answers } from './probes.ts';
import { TOOLS, targetsOf } from './targets.ts';
import { noteSandbox } from './warm.ts';
import { runWeakened } from './weakened.ts';

const soon = () => AbortSignal.timeout(60_000);

describe.skipIf(withoutEngines).each(targetsOf('escape'))('escape, on $name', target => {
  let arena: Arena;
  let inside: Answers;
  let without: Answers;
  let warm: boolean;
  const gvisor = target.runtime === 'runsc';

  beforeAll(async () => {
    arena = await Arena.open(target);
    const [probed, weakened] = await Promise.all([probeSandbox(arena), probeUnprotected(target.engine)]);
    ({ answers: inside, warm } = probed);
    without = weakened;
  });
  afterAll(() => arena[Symbol.asyncDispose]());

  const shown = (answers: Answers, names: readonly string[]) => {
    // Both rows that the probes share and their controls come by here.
    noteSandbox({ warm }, null);
    return names.map(name => `${name}: ${answers[name]?.[1].split('\n')[0] ?? 'not tried'}`).join(', ');
  };

  /**
   * Each probe must be refused inside, with one of these errors under our own filter; gVisor’s kernel has its own errors.
   * The control must get past that refusal: by success, or by an error the kernel gives only after the permission.
   */
  const stopped = (names: readonly string[], errors: readonly string[] = ['EPERM']): Finding => {
    for (const name of names) {
      expect([name, inside[name]?.[0]]).not.toEqual([name, 'done']);
      expect([name, inside[name]?.[0]]).not.toEqual([name, 'broken']);
      if (!gvisor) expect([name, errors]).toEqual([name, expect.arrayContaining([inside[name]?.[1]])]);
      expect([name, without[name]?.[0], without[name]?.[1]]).not.toEqual([name, inside[name]?.[0], inside[name]?.[1]]);
    }
    return { observed: shown(inside, names), control: shown(without, names) };
  };
  const worked = (...names: readonly string[]): void => {
    for (const name of names) expect([name, inside[name]?.[0]]).toEqual([name, 'done']);
  };

  const SOCKETS = ['family unix', 'family inet', 'family inet6', 'family netlink'];
  const FILTERED = ['EPERM', 'ENOSYS'];
  // Row, what is shown, the probes, the errors under our own filter, and the probes that must still work.
  const table: readonly (readonly [string, string, readonly string[], (readonly string[])?, (readonly string[])?])[] = [
    ['A1', 'kernel settings cannot be written', ['core_pattern'], ['EACCES', 'EROFS', 'EPERM']],
    ['A2', 'no control group can be made or written', ['cgroup', 'release_agent'], ['EROFS', 'EACCES', 'EPERM']],
    ['A3', 'what the kernel runs on events cannot be set', ['uevent_helper'], ['EROFS', 'EACCES']],
    ['A5', 'the kernel’s keyrings are out of reach', ['add_key', 'keyctl'], FILTERED],
    ['A6', 'page faults cannot be handled outside the kernel', ['userfaultfd'], FILTERED],
    ['A7', 'no ring can be set up', ['io_uring'], FILTERED],
    ['A8', 'no socket, while ordinary ones can be made', ['vsock'], ['EPERM'], SOCKETS],
    ['A9', 'the 32-bit call ends the program', ['vsock-i386'], ['SIGSYS']],
    ['A11', 'neither program nor counter gets into the kernel', ['bpf', 'perf_event_open']],
    [
      'A12',
      'mounts and namespaces stay as they are',
      ['mount', 'umount2', 'fsopen', 'open_tree', 'move_mount', 'pivot_root', 'setns'],
      FILTERED,
    ],
    ['A13', 'none can be made', ['mknod']],
    ['A14', 'no file by its handle', ['open_by_handle_at', 'open_by_handle_at (forged)']],
    ['A22', 'empty or absent', ['/proc/keys', '/proc/timer_list', '/sys/firmware'], ['ENODATA', 'ENOENT', 'EACCES']],
    [
      'A23',
      'there is no terminal to type into',
      ['TIOCSTI', 'TIOCSTI on standard streams'],
      ['ENXIO', 'ENOTTY', 'EPERM'],
    ],
  ];
  for (const [id, what, names, errors, working = []] of table)
    attack(target, id, what, async () => {
      worked(...working);
      return stopped(names, errors);
    });

  attack(target, 'A4', 'none can be made', async () => {
    const names = ['unshare(NEWUSER)', 'clone(NEWUSER)', 'clone3(NEWUSER)'];
    if (!gvisor) return stopped(names, FILTERED);
    // gVisor makes one in its own kernel, which is what the host’s is protected by.
    expect(inside['kernel']?.[1]).not.toContain(release());
    expect(inside['kernel']?.[1]).not.toContain(version());
    return { observed: `in gVisor’s own kernel (${inside['kernel']?.[1]})`, control: shown(without, names) };
  });

  attack(target, 'A10', 'no socket of a family that no program here needs', async () => {
    worked(...SOCKETS);
    const families = Object.keys(inside).filter(name => /^family \d+$/.test(name));
    expect(families.length).toBeGreaterThan(15);
    // Families the kernel lacks are refused by it as well: the filter must have spoken first.
    if (gvisor)
      return {
        ...stopped(['family 17', 'family 44']),
        observed: shown(inside, ['family 17', 'family 38', 'family 44']),
      };
    return stopped(families);
  });

  attack(target, 'A15', 'the kernel cannot be changed or restarted', async () => {
    // Nothing may be loaded or restarted in the control either, so its arguments cannot work. What it can show is that the call
    // gets past the filter: the kernel itself answers, and with another error than the filter.
    const names = ['init_module', 'finit_module', 'delete_module', 'kexec_load', 'reboot'];
    const { observed, control } = stopped(names, FILTERED);
    return {
      observed,
      control: `answered by the kernel, not by the filter; nothing is loaded there either: ${control}`,
    };
  });

  attack(target, 'A17', 'neither a system call nor a setuid program gives root', async () => {
    const { stdout } = await arena.sh('grep -E "NoNewPrivs|CapBnd" /proc/self/status; id -u');
    if (!gvisor) expect(stdout).toMatch(/NoNewPrivs:\s+1/);
    // What a setuid program could gain at most: nothing.
    expect(stdout).toMatch(/CapBnd:\s+0{16}/);
    expect(stdout.trim().split('\n').at(-1)).toBe(String(process.getuid?.()));
    // The control for the setuid program is an ordinary user who may gain privileges.
    const gains = await probeAsUser(target.engine, 'setuid program');
    expect(gains['setuid program']).toEqual(['done', 'effective uid 0']);
    return stopped(['setuid(0)', 'setgid(0)', 'setuid program']);
  });

  attack(target, 'A19', 'a process that the engine adds cannot be written to', async () => {
    // Opens the program file of every process it meets and, when that has ended, tries to write to it.
    const hunt = readFileSync(new URL('fixtures/overwrite.py', import.meta.url), 'utf8');
    await using hunter = await arena.spawn(['python3', '-c', hunt, '2'], { policy: { image: TOOLS } });
    let text = '';
    const [mine = ''] = await arena.running();
    await withEngine(target.engine, async engine => {
      for (let round = 0; round < 4; round += 1) {
        const exec = await engine.exec.create(mine, { argv: ['/bin/true'] }, { signal: soon() });
        const stream = await engine.exec.start(exec, { signal: soon() });
        for await (const _ of stream) void _;
      }
    });
    for await (const chunk of hunter.stdout) text += Buffer.from(chunk).toString();
    await hunter.result;
    const found = JSON.parse(text) as { met: number; written: string[] };
    expect(found.met).toBeGreaterThan(0);
    expect(found.written).toEqual([]);
    // The same hunt takes a program that belongs to the hunter.
    const control = await runWeakened(target.engine, { image: TOOLS, command: ['python3', '-c', hunt, '1', 'bait'] });
    const taken = JSON.parse(control.stdout) as { written: string[] };
    expect(taken.written).toContain('/tmp/bait');
    return {
      observed: `${found.met} program files met, none writable`,
      control: `${taken.written.length} overwritten`,
    };
  });

  attack(target, 'A21', 'cannot be read', async () => {
    if (!gvisor) return stopped(['syslog']);
    // gVisor has a log of its own making, with nothing of the host in it.
    expect(inside['syslog']?.[1]).toMatch(/gVisor/);
    expect(without['syslog']?.[1]).not.toMatch(/gVisor/);
    return { observed: 'gVisor’s own log, nothing of the host', control: 'the host’s log was read' };
  });
});
