// `acode doctor --attack` on the levels that need no engine: red without a protection, red where there is no wall, and never harmful. A
// green card of bubblewrap is in tests/levels/bubblewrap-attacks.test.ts.

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Acode } from '@acode/sandbox';
import type { AcodeOptions, AttackReport, Level, Probe } from '@acode/sandbox';
import { openFurther } from '../../packages/sandbox/src/host/open.ts';
import { attackHost } from '../../packages/sandbox/src/host/attack.ts';
import type { Rehearsal } from '../../packages/sandbox/src/host/attack.ts';
import type { OpenFurther } from '../../packages/sandbox/src/run/host.ts';
import type { Backend, WaitingSandbox, Weakening } from '../../packages/sandbox/src/isolation/backend.ts';
import { Bench } from '../cli/bench.ts';

const skipped = process.getuid?.() === 0 || !existsSync('/usr/bin/bwrap');
const MAX_MS = 60_000;
const NO_ENGINE = '/nonexistent/docker.sock';
// Nothing in it allows commands a weaker level than docker.
const OPTIONS: AcodeOptions = {
  workspace: '/var/tmp',
  engine: { socket: NO_ENGINE },
  config: { sandbox: { bubblewrap: { accept_process_limits: true } } },
};

function scratchLeft(): string[] {
  const own = `acode-doctor-${process.pid}-`;
  return [...readdirSync('/var/tmp'), ...readdirSync(tmpdir())].filter(name => name.startsWith(own));
}

/** The processes that carry the mark of one of these sandboxes. */
function marked(sandboxes: readonly string[]): string[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .filter(pid => {
      try {
        const mark = /(?:^|\0)ACODE_SANDBOX_ID=([^\0]*)/.exec(readFileSync(`/proc/${pid}/environ`, 'latin1'))?.[1];
        return mark !== undefined && sandboxes.includes(mark);
      } catch {
        return false;
      }
    });
}

function row({ probes }: AttackReport, id: string): Probe {
  const found = probes.find(probe => probe.id === id);
  if (!found) throw new Error(`no row ${id}`);
  return found;
}

const told = ({ id, verdict, observed, control }: Probe): string => `${id} ${verdict}: ${observed} | ${control}`;

// What must turn red where a protection is missing from every sandbox: a row that stays green then proves nothing.
const RED: readonly { readonly without: Weakening; readonly red: readonly string[] }[] = [
  { without: 'seccomp', red: ['A4', 'A5', 'A6', 'A7', 'A8', 'A9', 'A10', 'A11', 'A12'] },
  { without: 'protected-paths', red: ['C1', 'C2', 'C3', 'C4'] },
  { without: 'masks', red: ['F3b'] },
  { without: 'read-only-root', red: ['E14'] },
  { without: 'network', red: ['D1', 'D2', 'D12'] },
  { without: 'pids', red: ['E1'] },
  { without: 'memory', red: ['E2'] },
  { without: 'tmpfs-size', red: ['E3', 'E5'] },
  { without: 'open-files', red: ['E8'] },
  { without: 'environment', red: ['F1', 'F2'] },
  { without: 'verification', red: ['B4', 'F20b'] },
];

/** Attacks through hosts that the test opens itself. */
async function rehearsed(
  level: Level,
  rehearsal: Rehearsal,
  open: OpenFurther = ({ workspace, socket }) => openFurther(OPTIONS, workspace, socket),
): Promise<AttackReport> {
  const host = await openFurther(OPTIONS, '/var/tmp', NO_ENGINE);
  try {
    return await attackHost(host, open, { level }, rehearsal);
  } finally {
    await host.close();
  }
}

describe.skipIf(skipped)('the card of bubblewrap turns red', () => {
  it.each(RED)(
    'without $without: $red',
    async ({ without, red }) => {
      const report = await rehearsed('bubblewrap', { against: [without], only: red });
      const failed = new Set(report.probes.filter(({ verdict }) => verdict === 'fail').map(({ id }) => id));
      expect(red.filter(id => !failed.has(id))).toEqual([]);
      expect(report.grade).not.toMatch(/^[AB]/);
    },
    MAX_MS,
  );
});

// What could harm the host that it runs on.
const HARMFUL = [
  'A1',
  'A2',
  'A3',
  'A13',
  'A14',
  'A15',
  'A19',
  'A21',
  'A23',
  'E1',
  'E2',
  'E2b',
  'E3',
  'E4',
  'E5',
  'E14',
];
const HARMFUL_WORDS = /sleep 1 & echo s|\/tmp\/fill|\/dev\/shm|acode-root-probe|acode-twin/;

/** Every sandbox that was made, and every command that was handed to one. */
class Watch {
  readonly commands: string[] = [];
  readonly sandboxes: string[] = [];

  readonly open: OpenFurther = async ({ workspace, socket }) => {
    const host = await openFurther(OPTIONS, workspace, socket);
    return {
      ...host,
      backend: async level => {
        const backend = await host.backend(level);
        return backend && this.#watched(backend);
      },
    };
  };

  #watched(backend: Backend): Backend {
    const prepare: Backend['prepare'] = async (spec, signal) => {
      this.sandboxes.push(spec.identity.sandboxId);
      return this.#seen(await backend.prepare(spec, signal));
    };
    return new Proxy(backend, {
      get: (target, name) => {
        if (name === 'prepare') return prepare;
        if (name === 'weakened')
          return (...given: Parameters<Backend['weakened']>) => this.#watched(target.weakened(...given));
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  }

  #seen(sandbox: WaitingSandbox): WaitingSandbox {
    const execute: WaitingSandbox['execute'] = (handover, io, signal) => {
      this.commands.push(JSON.stringify(handover.command));
      return sandbox.execute(handover, io, signal);
    };
    return new Proxy(sandbox, {
      get: (target, name) => {
        if (name === 'execute') return execute;
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  }
}

describe.skipIf(skipped).each(['ulimit', 'none'] as const)('the attack on level %s', level => {
  const watch = new Watch();
  let report: AttackReport;
  let most = 0;
  let sampling: NodeJS.Timeout;
  beforeAll(async () => {
    sampling = setInterval(() => (most = Math.max(most, marked(watch.sandboxes).length)), 50);
    report = await rehearsed(level, { against: [] }, watch.open);
    clearInterval(sampling);
  }, 2 * MAX_MS);
  afterAll(() => clearInterval(sampling));

  it('says that the level is no boundary, and grades it F', () => {
    expect(report.backend).toMatchObject({ engine: level, level, boundary: false, version: '' });
    expect(report.grade).toBe('F');
    const red = report.probes.filter(({ verdict }) => verdict === 'fail');
    expect(red.length).toBeGreaterThan(report.probes.length / 2);
  });

  it('shows by looking that the host is open', () => {
    for (const id of ['A4', 'A7', 'A9', 'A16', 'A17b', 'B1', 'B9', 'C1', 'C3', 'D1', 'D2', 'D12', 'E10'])
      expect(told(row(report, id))).toContain(`${id} fail: `);
    expect(row(report, 'B9').observed).toContain('outside the workspace was read');
    expect(row(report, 'A7').observed).not.toContain('EPERM');
  });

  it('shows what the level does hold, with a control', () => {
    const held = ['C5', 'C9', 'C16', 'E7', 'E9', 'F1', 'F5', 'F20', ...(level === 'ulimit' ? ['E8', 'F20b'] : [])];
    for (const id of held) expect(told(row(report, id))).toContain(`${id} pass: `);
  });

  it('does not try what could do harm, and counts it as not stopped', () => {
    for (const id of HARMFUL)
      expect(row(report, id)).toMatchObject({
        verdict: 'fail',
        observed: expect.stringContaining('not tried'),
        control: '',
      });
  });

  it('has started nothing of the kind: seen in what was handed over, in processes and in files', () => {
    expect(watch.commands.length).toBeGreaterThan(15);
    expect(watch.commands.filter(command => HARMFUL_WORDS.test(command))).toEqual([]);
    // A fork bomb that is stopped by nothing makes 120.
    expect(most).toBeGreaterThan(0);
    expect(most).toBeLessThan(60);
    for (const place of ['/', '/etc', '/var', '/var/tmp', '/opt', '/srv'])
      expect(existsSync(join(place, 'acode-root-probe')), place).toBe(false);
    for (const path of ['/tmp/acode-twin', '/tmp/fill', '/tmp/probe', '/dev/shm/fill'])
      expect(existsSync(path)).toBe(false);
  });

  it('leaves no process and no scratch directory', () => {
    expect(marked(watch.sandboxes)).toEqual([]);
    expect(scratchLeft()).toEqual([]);
  });
});

describe.skipIf(skipped)('the watch of the test before', () => {
  it('sees the harmful commands where they are run, in a sandbox', async () => {
    const watch = new Watch();
    await rehearsed('bubblewrap', { against: [], only: ['E1', 'E3', 'E14'] }, watch.open);
    for (const word of ['sleep 1 & echo s', '/tmp/fill', '/dev/shm', 'acode-root-probe'])
      expect(watch.commands.filter(command => command.includes(word)).length, word).toBeGreaterThan(0);
  });
});

describe.skipIf(skipped)('the level that is attacked', () => {
  it('is no way round the policy: commands are refused what the attack may use', async () => {
    await using acode = await Acode.open(OPTIONS);
    for (const level of ['bubblewrap', 'ulimit', 'none'] as const)
      await expect(acode.run('true', { policy: { level } })).rejects.toMatchObject({ code: 'ACODE-SBX-012' });
    const words: unknown[] = [{ attacked: 'none' }, { policy: { attacked: 'none' } }];
    for (const request of words)
      // What a program without types would send.
      await expect(acode.run('true', request as object)).rejects.toMatchObject({ code: 'ACODE-SBX-017' });
    const options: unknown = { ...OPTIONS, attacked: 'none' };
    await using other = await Acode.open(options as AcodeOptions);
    await expect(other.run('true')).rejects.toMatchObject({ code: 'ACODE-SBX-008' });
    const config: unknown = { attacked: 'none', sandbox: { attacked: 'none' } };
    await expect(Acode.open({ ...OPTIONS, config: config as object })).rejects.toMatchObject({ code: 'ACODE-SBX-013' });
  });

  it('is refused with what it does not have, and where it cannot be had', async () => {
    await using acode = await Acode.open(OPTIONS);
    await expect(acode.attack({ level: 'none', image: 'x' })).rejects.toMatchObject({ code: 'ACODE-SBX-016' });
    await expect(acode.attack({ level: 'ulimit', runtime: 'runc' })).rejects.toMatchObject({ code: 'ACODE-SBX-016' });
    await expect(acode.attack()).rejects.toMatchObject({ code: 'ACODE-SBX-008' });
    await expect(acode.attack({ level: 'gvisor' })).rejects.toMatchObject({ code: 'ACODE-SBX-008' });
  });

  it('is written down', async () => {
    await using acode = await Acode.open(OPTIONS);
    await acode.attack({ level: 'none', signal: AbortSignal.timeout(300) }).catch(() => undefined);
    const records = await acode.audit.tail({ count: 20 });
    expect(records.map(record => (record.kind === 'event' ? record.detail : null))).toContainEqual({ level: 'none' });
  });
});

describe.skipIf(skipped)('the command', () => {
  it(
    'prints the card of a level in 80 columns, with the warning, and the same as one JSON object',
    async () => {
      await using bench = await Bench.at({ socket: NO_ENGINE });
      const card = await bench.call(['doctor', '--attack', '--level', 'none']);
      const text = card.stdout.toString();
      expect([card.status, text]).toEqual([1, expect.stringMatching(/^Grade F/m)]);
      expect(text).toContain('Level    none (no engine)');
      expect(text).toContain('no security boundary');
      for (const line of text.split('\n')) expect(line.length, line).toBeLessThanOrEqual(80);
      const json: unknown = JSON.parse(
        (await bench.call(['doctor', '--attack', '--level', 'none', '--json'])).stdout.toString(),
      );
      expect(json).toMatchObject({
        schema: 'acode.attack/1',
        backend: { level: 'none', boundary: false },
        image: 'host',
        grade: 'F',
      });
      expect((await bench.call(['doctor', '--level', 'none'])).status).toBe(2);
    },
    2 * MAX_MS,
  );

  it(
    'attacks the level in use where none is named',
    async () => {
      await using bench = await Bench.at({ socket: NO_ENGINE });
      await bench.configure({ level: 'ulimit' });
      const json: unknown = JSON.parse((await bench.call(['doctor', '--attack', '--json'])).stdout.toString());
      expect(json).toMatchObject({ backend: { level: 'ulimit' } });
    },
    MAX_MS,
  );
});
