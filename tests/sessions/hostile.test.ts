// Programs that work against the shells that wait beside them, and what they cost the one who holds the sandbox.

import { rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { AcodeError } from '@acode/sandbox';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openHost } from '../conformance/host.ts';
import type { ConformanceHost } from '../conformance/host.ts';
import { withoutEngines } from '../support/engines.ts';
import { until } from '../support/waiting.ts';
import { places } from './places.ts';

// Stops every shell that waits for a command, says in its place that it has done what it was told, also with the very words that it
// was told in, and writes down that it lives.
const STOPPER = `#!/bin/sh
while :; do
  for p in /proc/[0-9]*; do
    p=\${p#/proc/}
    [ "$p" = "$$" ] && continue
    case $(tr '\\0' ' ' <"/proc/$p/cmdline" 2>/dev/null) in
      *'printf'*'read -r _acode_l'*)
        [ "$p" = "$PPID" ] && continue
        kill -STOP "$p" && echo done >"/proc/$p/fd/1"
        case " $seen " in *" $p "*) continue;; esac
        seen="$seen $p"
        (read -r line <"/proc/$p/fd/0"; echo "$line" >"/proc/$p/fd/1") &;;
    esac
  done 2>/dev/null
  : >heartbeat
done
`;

const pause = (ms: number) => new Promise(resolve => void setTimeout(resolve, ms));

describe.skipIf(withoutEngines).each(places)('on $name', place => {
  let host: ConformanceHost;
  beforeAll(async () => {
    host = await openHost(place);
  });
  afterAll(() => host[Symbol.asyncDispose]());

  it('a command that answers for the shells that would end it is ended all the same', async () => {
    writeFileSync(join(host.workspace, 'stopper'), STOPPER, { mode: 0o755 });
    const heartbeat = join(host.workspace, 'heartbeat');
    const beatAt = (): number => statSync(heartbeat, { throwIfNoEntry: false })?.mtimeMs ?? 0;
    const sandbox = await host.acode.create();
    const stop = new AbortController();
    const running = sandbox.commands.run(['/workspace/stopper'], { signal: stop.signal });
    running.catch(() => undefined);
    // The control: it lives, and goes on.
    await until(() => beatAt() > 0);
    const first = beatAt();
    await until(() => beatAt() > first);
    stop.abort();
    await expect(running).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    await pause(1000);
    const last = beatAt();
    await pause(3000);
    expect(beatAt()).toBe(last);
    await sandbox.kill();
  });

  // Its time, the grace, the look whether it has ended and the end of the sandbox take ten seconds; unless it is killed with
  // its sandbox, it has a minute more.
  it('a command that answers for the shells has no longer than its time limit', { timeout: 60_000 }, async () => {
    writeFileSync(join(host.workspace, 'stopper'), STOPPER, { mode: 0o755 });
    const heartbeat = join(host.workspace, 'heartbeat');
    rmSync(heartbeat, { force: true });
    const sandbox = await host.acode.create();
    const running = sandbox.commands.run(['/workspace/stopper'], { timeoutMs: 4000 });
    const outcome = await running.catch((error: unknown) => error);
    // On a busy machine its time may be over before it has stopped the shell that ends it, which then does.
    const atLimit = outcome instanceof AcodeError ? { ended: outcome.code } : outcome;
    expect([{ ended: 'ACODE-SBX-025' }, expect.objectContaining({ timedOut: true })]).toContainEqual(atLimit);
    const last = statSync(heartbeat).mtimeMs;
    await pause(2000);
    expect(statSync(heartbeat).mtimeMs).toBe(last);
    await sandbox.kill();
  });

  it('a command that ends its sandbox hides nothing by that', async () => {
    const command = 'echo printed; sleep 0.3; echo hi > .envrc; kill -9 -1; sleep 60';
    const hidden = { stdout: 'printed\n', riskyChanges: [{ path: '.envrc' }] };
    // Whether it ended before its sandbox did, or with it, is a matter of moments.
    const resultOf = (running: Promise<unknown>): Promise<unknown> =>
      running.catch((error: unknown) =>
        error instanceof AcodeError && error.is('ACODE-SBX-025') ? error.context.result : error,
      );
    const sandbox = await host.acode.create();
    expect(await resultOf(sandbox.commands.run(command))).toMatchObject(hidden);
    rmSync(join(host.workspace, '.envrc'));
    const artifacts = [{ from: '/out/x', to: 'x' }];
    expect(await resultOf(host.acode.run(command, { artifacts }))).toMatchObject(hidden);
    rmSync(join(host.workspace, '.envrc'));
  });

  it('what commands printed is let go of when nobody has their results any more', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const held = async (): Promise<number> => {
      for (let again = 0; again < 4; again += 1) {
        collect();
        await pause(50);
      }
      return process.memoryUsage().arrayBuffers;
    };
    await using sandbox = await host.acode.create();
    const before = await held();
    for (let at = 0; at < 12; at += 1) {
      const { stdout } = await sandbox.commands.run('head -c 8000000 /dev/zero');
      expect(stdout).toHaveLength(8_000_000);
    }
    expect((await held()) - before).toBeLessThan(40_000_000);
  });

  it('a terminal that is given up before it begins leaves nothing inside', async () => {
    await using sandbox = await host.acode.create();
    for (let ms = 0; ms <= 90; ms += 9) {
      const signal = AbortSignal.timeout(ms);
      const opened = sandbox.commands.terminal(['sh', '-c', 'trap "" HUP TERM; sleep 778'], { signal });
      await expect(opened.then(handle => handle.wait())).rejects.toMatchObject({ code: 'ACODE-SBX-014' });
    }
    await pause(1000);
    const { stdout } = await sandbox.commands.run(['ps', '-o', 'args']);
    expect(stdout.split('\n').filter(line => line.includes('sleep 778'))).toEqual([]);
  });
});
