// `acode doctor --attack` on real engines: the card, cancellation, and a red card where a protection is missing. A green card with every
// control is in tests/attacks/probes.test.ts.

import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { describe, expect, it } from 'vitest';
import { Acode } from '@acode/sandbox';
import type { AcodeOptions, AttackReport, Probe } from '@acode/sandbox';
import { openFurther } from '../../packages/sandbox/src/host/open.ts';
import { attackHost } from '../../packages/sandbox/src/host/attack.ts';
import { probingProgram } from '../../packages/sandbox/src/host/doctor/program.ts';
import { gradeOf } from '../../packages/sandbox/src/host/doctor/report.ts';
import type { Weakening } from '../../packages/sandbox/src/isolation/backend.ts';
import { Bench } from '../cli/bench.ts';
import { images, mainEngine, withEngine, withoutEngines } from '../support/engines.ts';
import type { TestEngine } from '../support/engines.ts';

const MAX_MS = 150_000;

function optionsFor(engine: TestEngine, image = images.busybox): AcodeOptions {
  return { engine: { socket: engine.socket }, config: { sandbox: { images: { default: image } } } };
}

function failures({ probes }: AttackReport): string[] {
  return probes
    .filter(({ verdict }) => verdict === 'fail')
    .map(({ id, observed, control }) => `${id}: ${observed} | ${control}`);
}

function scratchLeft(): string[] {
  return readdirSync('/var/tmp').filter(name => name.startsWith(`acode-doctor-${process.pid}-`));
}

async function networksLeft(engine: TestEngine): Promise<number> {
  return withEngine(engine, async ({ networks }) => {
    const found = await networks.list({ labels: ['acode.managed=true'], signal: AbortSignal.timeout(60_000) });
    return found.filter(({ Name }) => Name.startsWith('acode-doctor-')).length;
  });
}

describe.skipIf(withoutEngines)('the attack', () => {
  it(
    'prints a card that fits 80 columns, the same as one JSON object, and says what an image without a shell cannot run',
    async () => {
      await using bench = await Bench.at(mainEngine);
      const words = ['doctor', '--attack', '--image', images.noshell];
      const card = await bench.call(words);
      const text = card.stdout.toString();
      expect([card.status, text]).toEqual([0, expect.stringMatching(/^Grade B/m)]);
      for (const line of text.split('\n')) expect(line.length, line).toBeLessThanOrEqual(80);
      expect(text).toMatch(/^✔ B1 +\S.*\n +control: /m);
      const { stdout } = await bench.call([...words, '--json']);
      const report = JSON.parse(stdout.toString()) as AttackReport;
      expect(report).toMatchObject({ schema: 'acode.attack/1', image: images.noshell, grade: 'B' });
      expect(failures(report)).toEqual([]);
      const verdicts = new Map(report.probes.map(({ id, verdict, observed }) => [id, `${verdict}: ${observed}`]));
      expect(verdicts.get('A7')).toMatch(/^not-applicable: .*no shell/);
      expect(verdicts.get('B1')).toMatch(/^pass/);
    },
    2 * MAX_MS,
  );

  it('starts from an image that is there where the default one is not, and says so', async () => {
    const config = { sandbox: { images: { default: 'ubuntu:0.0', node: images.busybox } } };
    const options: AcodeOptions = { engine: { socket: mainEngine.socket }, config };
    const host = await openFurther(options, tmpdir(), mainEngine.socket);
    try {
      const open: Parameters<typeof attackHost>[1] = asked => openFurther(options, asked.workspace, asked.socket);
      expect(await attackHost(host, open, {}, { against: [], only: ['F1'] })).toMatchObject({
        image: images.busybox,
        imageReason: 'ubuntu:0.0 is not on this engine',
        probes: expect.arrayContaining([expect.objectContaining({ id: 'F1', verdict: 'pass' })]),
      });
    } finally {
      await host.close();
    }
  });

  it(
    'ends early and leaves nothing when it is cancelled',
    async () => {
      const stop = new AbortController();
      await using acode = await Acode.open(optionsFor(mainEngine));
      const attack = acode.attack({ signal: stop.signal, onProgress: () => setTimeout(() => stop.abort(), 1500) });
      await expect(attack).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
      await acode.close();
      expect(scratchLeft()).toEqual([]);
      expect(await networksLeft(mainEngine)).toBe(0);
    },
    MAX_MS,
  );
});

// What must turn red where a protection is missing from every sandbox: a probe that stays green then proves nothing.
const RED: readonly { readonly without: Weakening; readonly red: readonly string[] }[] = [
  { without: 'seccomp', red: ['A4', 'A5', 'A6', 'A7', 'A8', 'A9', 'A10', 'A11', 'A12'] },
  { without: 'protected-paths', red: ['C1', 'C2', 'C3', 'C4'] },
  { without: 'masks', red: ['F3b'] },
  { without: 'no-new-privileges', red: ['A17b'] },
  { without: 'read-only-root', red: ['E14'] },
  { without: 'network', red: ['D1', 'D3', 'D5', 'D12'] },
  { without: 'pids', red: ['E1'] },
  { without: 'memory', red: ['E2', 'E2b'] },
  { without: 'tmpfs-size', red: ['E3', 'E4', 'E5'] },
  { without: 'open-files', red: ['E8'] },
  { without: 'environment', red: ['F1', 'F2'] },
  { without: 'verification', red: ['B4', 'B4b', 'F20b'] },
];

describe.skipIf(withoutEngines)('the card turns red', () => {
  it.each(RED)(
    'without $without: $red',
    async ({ without, red }) => {
      const options = optionsFor(mainEngine);
      const workspace = '/var/tmp';
      const host = await openFurther(options, workspace, mainEngine.socket);
      try {
        const open: Parameters<typeof attackHost>[1] = asked => openFurther(options, asked.workspace, asked.socket);
        const report = await attackHost(host, open, {}, { against: [without], only: red });
        const failed = new Set(report.probes.filter(({ verdict }) => verdict === 'fail').map(({ id }) => id));
        expect(red.filter(id => !failed.has(id))).toEqual([]);
        expect(report.grade).not.toMatch(/^[AB]/);
      } finally {
        await host.close();
      }
    },
    2 * MAX_MS,
  );
});

describe('the grade', () => {
  const probes = (count: number, ...failed: string[]): Probe[] =>
    [
      ...Array.from({ length: count }, (_, index) => [`A${index + 1}`, 'pass'] as const),
      ...failed.map(id => [id, 'fail'] as const),
    ].map(([id, verdict]) => ({ id, title: '', verdict, observed: '', control: '' }));

  it.each([
    [probes(60), 'A+'],
    [probes(10), 'B'],
    [probes(60, 'A9'), 'F'],
    [probes(60, 'B1'), 'F'],
    [probes(60, 'C1'), 'D'],
    [probes(60, 'F1'), 'D'],
    [probes(60, 'D3b'), 'C'],
    [probes(60, 'E1'), 'C'],
    [[...probes(60), ...probes(10).map(probe => ({ ...probe, verdict: 'not-applicable' as const }))], 'A'],
  ])('follows the documented rule (%#)', (list, grade) => {
    expect(gradeOf(list)).toBe(grade);
  });
});

it('writes a program for both processors', () => {
  for (const processor of ['x86_64', 'aarch64'] as const) {
    const program = probingProgram(processor, [{ call: 'getpid', args: [] }]);
    expect(program.subarray(0, 4).toString('latin1')).toBe('\u007fELF');
    expect(program.readUInt16LE(18)).toBe(processor === 'x86_64' ? 62 : 183);
  }
});
