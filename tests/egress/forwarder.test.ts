// The forwarder in sandboxes of real engines: no way out but through the relay, and none at all without it.

import { chmodSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { EgressPlan } from '../../packages/sandbox/src/contract/egress.ts';
import type { Listener } from '../../packages/sandbox/src/egress/relay/control.ts';
import { listen } from '../../packages/sandbox/src/egress/relay/relay.ts';
import type { Attachment } from '../../packages/sandbox/src/isolation/docker/resources/owned.ts';
import { everyEngine, mainEngine, withoutEngines } from '../support/engines.ts';
import { BackendHost } from '../network/backend.ts';

const ALLOW = { kind: 'allow', entries: [], rules: [] } as const;

const plan = (host: string): EgressPlan => ({
  generation: 1,
  rules: [],
  limits: { connections: 64, headerBytes: 1024, connectMs: 1000, idleMs: 1000 },
  names: [{ host, address: '127.8.0.1', ports: [80, 443] }],
});

const said = (listener: Listener, stream: Duplex): void => {
  stream.on('error', () => undefined);
  stream.end(`${typeof listener === 'string' ? listener : `${listener.host}:${listener.port}`}\n`);
  stream.resume();
};

/** What a script prints in a sandbox with this one name. */
async function relayed(host: BackendHost, name: string, script: string): Promise<string> {
  const spec = await host.spec({ network: ALLOW });
  const relay = await listen({ kind: 'socket', directory: await host.egress.directory(spec) }, plan(name), said);
  try {
    return (await host.run(script, spec)).output;
  } finally {
    await relay.close();
  }
}

/** Replaces the forwarder in the state directory by another program. */
function replaceForwarder(state: string): void {
  const egress = join(state, 'egress');
  const [name = ''] = readdirSync(egress).filter(entry => entry.startsWith('forwarder-'));
  const path = join(egress, name);
  writeFileSync(`${path}.new`, Buffer.concat([readFileSync(path), Buffer.from('more')]));
  chmodSync(`${path}.new`, 0o555);
  renameSync(`${path}.new`, path);
}

const tried = (...places: string[]): string =>
  places.map(place => `nc -w 2 ${place} </dev/null 2>/dev/null || echo no`).join(';');

describe.skipIf(withoutEngines).each(everyEngine)('on $name, a sandbox with an allow-list', engine => {
  it('reaches names of its list through the relay, and no packet leaves by another way', async () => {
    await using host = await BackendHost.open(engine);
    const script = [
      tried('one.test 443', 'one.test 80', '127.0.0.1 3128', '127.0.0.1 1080'),
      tried('one.test 22', 'other.test 443', '93.184.216.34 443', '172.17.0.1 80', '169.254.169.254 80'),
      'nslookup -type=txt secret.data.other.test 127.0.0.1 >/dev/null 2>&1 || echo unknown',
      'tail -n +3 /proc/net/dev | cut -d: -f1',
      'grep -c acode-state /proc/net/unix /proc/self/mountinfo',
      'touch /.acode/relay/x /etc/hosts 2>/dev/null || echo read-only',
    ].join(';');
    const output = await relayed(host, 'one.test', script);
    expect(output.split('\n').map(line => line.trim())).toEqual([
      ...['one.test:443', 'one.test:80', 'proxy', 'socks'],
      ...['no', 'no', 'no', 'no', 'no', 'unknown', 'lo'],
      // The kernel shows every sandbox where its mounts come from; the name of the socket is not among that.
      ...['/proc/net/unix:0', expect.stringMatching(/^\/proc\/self\/mountinfo:\d$/) as string, 'read-only', ''],
    ]);
  });
});

describe.skipIf(withoutEngines)(`on ${mainEngine.name}, a sandbox with an allow-list`, () => {
  it('has the names of its own list while another has its own, and no network when its forwarder is killed', async () => {
    await using host = await BackendHost.open(mainEngine);
    const both = tried('one.test 80', 'two.test 80');
    const kill = `${tried('one.test 80')}; kill -9 $(pidof forwarder); ${tried('one.test 80', '127.0.0.1 3128', '93.184.216.34 443')}`;
    const [first, second, killed] = await Promise.all([
      relayed(host, 'one.test', both),
      relayed(host, 'two.test', both),
      relayed(host, 'one.test', kill),
    ]);
    expect(first).toBe('one.test:80\nno\n');
    expect(second).toBe('no\ntwo.test:80\n');
    expect(killed).toBe('one.test:80\nno\nno\nno\n');
  });

  it('is not started where nobody listens outside, and says why', async () => {
    await using host = await BackendHost.open(mainEngine);
    const ending = await host.run('echo ran', { network: ALLOW });
    expect(ending).toMatchObject({ output: '', exitCode: 125, neverStarted: 'network' });
  });

  it('is refused when the forwarder on disk was replaced, before it is mounted or in that moment', async () => {
    let swaps = false;
    const between: Attachment = {
      acquire: async () => {
        if (swaps) replaceForwarder(host.state);
        return {};
      },
      verify: () => [],
      release: () => undefined,
      close: async () => [],
    };
    await using host = await BackendHost.open(mainEngine, [between]);
    expect(await relayed(host, 'one.test', tried('one.test 80'))).toBe('one.test:80\n');
    swaps = true;
    const refused = { code: 'ACODE-SBX-010', context: { violation: 'MountMismatch' } };
    await expect(relayed(host, 'one.test', 'true')).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining('/.acode/forwarder is not what was checked') as string,
    });
    await expect(relayed(host, 'one.test', 'true')).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining('is not the file that this version') as string,
    });
  });
});
