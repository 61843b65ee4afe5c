// A command that a server runs is the command that `acode run` runs: the same bytes, the same words, the same status.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Ended, Given } from '../cli/bench.ts';
import { everything } from '../support/targets.ts';
import { ServedBench, places } from './served-bench.ts';

// What differs from one run to the next, whoever runs it.
const VOLATILE =
  /"(?:sandboxId|containerId|correlationId)":"[^"]*"|"(?:durationMs|auditSequence|queueMs|obtainMs|runMs|cpuMs|throttledMs|peakMemoryBytes)":[\d.e-]+|"warm":(?:true|false)|correlation id: \S+/g;

function comparable({ status, stdout, stderr }: Ended): object {
  return {
    status,
    stdout: stdout.toString().replaceAll(VOLATILE, '…'),
    stderr: stderr.replaceAll(VOLATILE, '…').replaceAll(/acode-[0-9a-f]{8}-\S+/g, '…'),
  };
}

const CALLS: readonly (readonly [what: string, argv: readonly string[], status: number, given?: Given])[] = [
  ['prints on both streams', ['run', 'echo out; echo err >&2'], 0],
  ['fails', ['run', '--', 'sh', '-c', 'exit 7'], 7],
  ['is called by its long name', ['sandbox', 'exec', '--', 'echo', 'hi'], 0],
  ['cannot be found', ['run', '--', 'no-such-program'], 127],
  ['is a line that cannot be found', ['run', 'no-such-program'], 127],
  ['takes too long', ['run', '--timeout', '0.5', '--', 'sleep', '20'], 124],
  ['answers in JSON', ['run', '--json', 'echo out; echo err >&2; exit 3'], 3],
  ['reads', ['run', '--', 'cat'], 0, { stdin: Buffer.from('one\ntwo\n') }],
  ['reads nothing though there is something', ['run', '--', 'true'], 0, { stdin: 'open' }],
  ['has an environment and a directory', ['run', '--env', 'A=b', '--workdir', 'sub', 'echo $A; pwd'], 0],
  ['is refused by the policy', ['run', '--user', '0:0', '--', 'true'], 125],
  ['is refused by the policy, in JSON', ['run', '--json', '--network', 'bridge', '--', 'true'], 125],
  ['asks for too little', ['run', '--memory', '1', '--', 'true'], 125],
  ['is called in a wrong way', ['run', '--bogus', '--', 'true'], 2],
  ['is called in two ways', ['run', 'echo', 'hi'], 2],
  ['is no command', ['run', '--json'], 2],
  ['has a configuration of its own', ['run', '--config', 'none.yml', '--', 'true'], 125],
  ['has a log level that is none', ['run', '--', 'true'], 2, { env: { ACODE_LOG_LEVEL: 'loud' } }],
];

// All of it on an engine only in the long test suite: what is compared is the command line’s, and not the level’s.
const callsOn = (name: string): typeof CALLS => (name === 'bubblewrap' || everything ? CALLS : CALLS.slice(0, 8));

describe.each(places)('a command that a server runs, on $name,', place => {
  const calls = callsOn(place.name).map(([what, argv, status, given = {}]) => ({ what, argv, status, given }));
  let served: ServedBench;

  beforeAll(async () => {
    served = await ServedBench.at(place);
  });

  afterAll(async () => {
    await served[Symbol.asyncDispose]();
  });

  it('is said to take what waits there, and without a server that one could', async () => {
    const [through, alone] = [await served.call(['explain', 'true']), await served.alone(['explain', 'true'])];
    expect(through.stdout.toString()).toMatch(/Warm +no: none in this process; `acode serve` runs for this workspace/);
    expect(alone.stdout.toString()).toMatch(/Warm +no: none in this process; if `acode serve` runs/);
  });

  it.each(calls)('$what as without one', async ({ argv, status, given }) => {
    const through = await served.call(argv, given);
    const alone = await served.alone(argv, given);
    expect(comparable(through)).toEqual(comparable(alone));
    expect(through.status).toBe(status);
  });

  it('begins in a directory of the workspace when it is called there', async () => {
    const cwd = `${served.bench.workspace}/sub`;
    const [through, alone] = [await served.call(['run', 'pwd'], { cwd }), await served.alone(['run', 'pwd'], { cwd })];
    expect(through.stdout.toString()).toMatch(/\/sub\n$/);
    expect(through.stdout).toEqual(alone.stdout);
  });

  it('prints 5 MB to the last byte', async () => {
    const line = 'i=0; while [ $i -lt 80 ]; do head -c 65536 /dev/zero | tr "\\0" "$((i % 10))"; i=$((i+1)); done';
    const { stdout, status } = await served.call(['run', '--max-output', '16', line]);
    expect(status).toBe(0);
    const expected = Buffer.concat(Array.from({ length: 80 }, (_, at) => Buffer.alloc(65_536, String(at % 10))));
    expect(stdout.equals(expected)).toBe(true);
  });

  it('reads 3 MB to the last byte', async () => {
    const stdin = Buffer.from(Array.from({ length: 3 * 1024 ** 2 }, (_, at) => at % 251));
    const { stdout } = await served.call(['run', '--', 'cat'], { stdin });
    expect(stdout.equals(stdin)).toBe(true);
  });

  it('ends like one whose reader had enough', async () => {
    const read: NonNullable<Given['read']> = ({ stdout }) =>
      new Promise(resolve => {
        stdout?.once('data', (chunk: Buffer) => {
          stdout.destroy();
          resolve(chunk);
        });
      });
    const given = { read };
    expect((await served.call(['run', '--', 'yes'], given)).status).toBe(141);
    expect((await served.alone(['run', '--', 'yes'], given)).status).toBe(141);
  });

  it('has a pre-started sandbox, and without a server it has none', async () => {
    await served.untilWarm();
    const { stdout } = await served.alone(['run', '--json', '--', 'true']);
    expect(JSON.parse(stdout.toString())).toMatchObject({ warm: false });
  });

  it('is on record', async () => {
    await served.call(['run', '--', 'echo', 'a mark to be found']);
    const tail = await served.bench.call(['audit', 'tail', '--lines', '20']);
    expect(tail.stdout.toString()).toContain('a mark to be found');
    expect((await served.bench.call(['audit', 'verify'])).status).toBe(0);
  });

  it('is its client’s own among twenty at once', async () => {
    const all = await Promise.all(
      Array.from({ length: 20 }, async (_, at) => served.call(['run', `echo client ${at}; exit ${at}`])),
    );
    expect(all.map(({ status, stdout }) => [status, stdout.toString()])).toEqual(
      all.map((_, at) => [at, `client ${at}\n`]),
    );
  });
});
