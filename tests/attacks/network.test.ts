// Group D: reaching something over a network that the sandbox was not given. Every canary is a container of the test’s own.

import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { policyFrom } from '@acode/sandbox';
import type { RunRequest } from '@acode/sandbox';
import { withoutEngines } from '../support/engines.ts';
import { Arena } from './arena.ts';
import { attack } from './attack.ts';
import { TestNetwork, gatewayOf } from './networks.ts';
import { refusal } from './refusal.ts';
import { TOOLS, targetsOf } from './targets.ts';
import { WeakenedContainer, runWeakened } from './weakened.ts';

// Serves a greeting on a port of every address, and on an abstract socket, until it is removed.
const CANARY = `
import socket, sys, threading
def serve(s):
    s.listen(8)
    while True:
        c, _ = s.accept(); c.sendall(b'canary'); c.close()
port = int(sys.argv[1])
tcp = socket.socket(); tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); tcp.bind(('0.0.0.0', port))
six = socket.socket(socket.AF_INET6); six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
unix = socket.socket(socket.AF_UNIX); unix.bind('\\0acode-canary-%d' % port)
listening = [tcp, unix]
try:
    six.bind(('::1', port)); listening.append(six)
except OSError:
    pass
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('0.0.0.0', port))
def echo():
    while True:
        data, who = udp.recvfrom(99); udp.sendto(b'canary', who)
for s in listening: threading.Thread(target=serve, args=(s,), daemon=True).start()
print('listening', flush=True)
echo()
`;

// Says its own address and greets whoever comes. Nothing is sent to the address of the documentation range.
const SERVE = `
import socket, sys
s = socket.socket(); s.bind(('0.0.0.0', int(sys.argv[1]))); s.listen()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(('192.0.2.1', 9)); print(u.getsockname()[0], flush=True)
while True:
    c, _ = s.accept(); c.sendall(b'canary'); c.close()
`;

// Tries one way after the other and prints what came back, or why nothing did.
const REACH = `
import errno, json, os, socket, sys
# Where nobody answers questions for names, the C library asks for half a minute.
os.environ['RES_OPTIONS'] = 'timeout:1 attempts:1'
port = int(sys.argv[1]); seen = {}
def attempt(name, connect):
    try:
        seen[name] = connect()
    except OSError as e:
        seen[name] = errno.errorcode.get(e.errno, type(e).__name__) if e.errno else type(e).__name__
def tcp(family, address):
    s = socket.socket(family); s.settimeout(1); s.connect(address); return s.recv(99).decode()
def udp(address):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.sendto(b'x', address); return s.recv(99).decode()
for host in sys.argv[2:]:
    attempt('tcp ' + host, lambda: tcp(socket.AF_INET, (host, port)))
    attempt('udp ' + host, lambda: udp((host, port)))
attempt('ipv6', lambda: tcp(socket.AF_INET6, ('::1', port)))
attempt('abstract', lambda: tcp(socket.AF_UNIX, '\\0acode-canary-%d' % port))
attempt('name', lambda: socket.getaddrinfo('canary.invalid', port)[0][4][0])
print(json.dumps(seen))
`;

describe.skipIf(withoutEngines).each(targetsOf('network'))('network, on $name', target => {
  // A port of its own on the engine’s host, below the range that clients get.
  const port = String(20_000 + (randomBytes(2).readUInt16BE() % 10_000));
  const bridged: RunRequest = { policy: { network: 'bridge', timeoutMs: 20_000 } };
  let arena: Arena;
  let service: WeakenedContainer;

  beforeAll(async () => {
    arena = await Arena.open(target, {
      config: {
        sandbox: { network: { allow_bridge: true, allowed_networks: ['acode-attack-quiet', 'acode-attack-internal'] } },
      },
    });
    // It plays a service of the host: one that listens in the host’s own network namespace.
    service = await WeakenedContainer.start(target.engine, {
      image: TOOLS,
      command: ['python3', '-u', '-c', CANARY, port],
      host: { NetworkMode: 'host' },
    });
    await service.printed('listening');
  });
  afterAll(async () => {
    await service[Symbol.asyncDispose]();
    await arena[Symbol.asyncDispose]();
  });

  const reach = async (request: RunRequest, ...hosts: string[]): Promise<Record<string, string>> => {
    const { stdout, stderr, exitCode, timedOut } = await arena.python(REACH, request, port, ...hosts);
    return parse(stdout, `${stderr} (exit ${exitCode}${timedOut ? ', out of time' : ''})`);
  };
  const reachWeakened = async (
    network: string,
    host = '127.0.0.1',
    options: { port?: number | undefined; second?: string } = {},
  ): Promise<Record<string, string>> => {
    const hosts = [host, ...(options.second === undefined ? [] : [options.second])];
    const { stdout, stderr } = await runWeakened(target.engine, {
      image: TOOLS,
      command: ['python3', '-c', REACH, String(options.port ?? port), ...hosts],
      host: { NetworkMode: network },
    });
    return parse(stdout, stderr);
  };
  const heard = (seen: Record<string, string>): string[] => Object.keys(seen).filter(way => seen[way] === 'canary');

  attack(target, 'D1', 'nothing outside is reached, and its own loopback works', async () => {
    const gateway = await gatewayOf(target.engine, 'bridge');
    const seen = await reach({}, '127.0.0.1', gateway);
    expect(heard(seen)).toEqual([]);
    const own = `import socket;a=socket.socket();a.bind(('127.0.0.1',0));a.listen();b=socket.create_connection(a.getsockname());print('loopback works')`;
    expect((await arena.python(own)).stdout).toBe('loopback works\n');
    const control = await reachWeakened('host', '127.0.0.1', { second: gateway });
    expect(heard(control)).toEqual(expect.arrayContaining(['tcp 127.0.0.1', 'udp 127.0.0.1', `tcp ${gateway}`]));
    return { observed: shown(seen), control: `on the host’s network: ${heard(control).length} ways answer` };
  });

  attack(target, 'D2', 'refused', async () => {
    const seen = await reach({});
    expect(seen['abstract']).not.toBe('canary');
    const control = await reachWeakened('host');
    expect(control['abstract']).toBe('canary');
    return { observed: seen['abstract'] ?? '', control: 'on the host’s network: canary' };
  });

  attack(target, 'D3', 'unreachable without a network; with a bridge reachable, and so only by consent', async () => {
    await using careful = await Arena.open(target);
    const error = await refusal(careful.run(['true'], bridged));
    expect(error).toMatchObject({ code: 'ACODE-SBX-005' });
    expect(error.hint).toContain('allow_bridge');
    await using airgapped = await Arena.open(target, {
      config: { mode: 'airgapped', sandbox: { network: { allow_bridge: true } } },
    });
    const cut = await airgapped.sh('ls /sys/class/net', bridged);
    expect(cut.stdout).toBe('lo\n');
    expect(cut.denials[0]).toMatchObject({ rule: 'network.air-gapped', remedies: expect.any(Array) });
    const gateway = await gatewayOf(target.engine, 'bridge');
    expect(heard(await reach({}, gateway))).toEqual([]);
    const own = (await arena.sh("ip route | awk '/default/ {print $3}'", bridged)).stdout.trim();
    const control = await reach(bridged, own);
    expect(control[`tcp ${own}`]).toBe('canary');
    return {
      observed: 'none: unreachable; bridge: ACODE-SBX-005 without consent',
      control: 'with consent the gateway answers: not promised',
    };
  });

  attack(
    target,
    'D4',
    'a sandbox without a network has no address to go by, and a quiet network none on the host',
    async () => {
      await using internal = await TestNetwork.make(target.engine, { Internal: true });
      const gateway = await gatewayOf(target.engine, internal.name);
      const control = await reachWeakened(internal.name, gateway);
      expect(control[`tcp ${gateway}`]).toBe('canary');
      expect(heard(await reach({}, gateway))).toEqual([]);
      // A network that is not declared cannot be joined by its name.
      const error = await refusal(arena.run(['true'], { policy: { network: { name: internal.name } } }));
      expect(error).toMatchObject({ code: 'ACODE-SBX-005' });
      await using quiet = await TestNetwork.make(target.engine, {
        Name: 'acode-attack-quiet',
        Internal: true,
        Options: { 'com.docker.network.bridge.inhibit_ipv4': 'true' },
      });
      const there = await gatewayOf(target.engine, quiet.name);
      const seen = await reach({ policy: { network: { name: quiet.name }, timeoutMs: 30_000 } }, there);
      expect(heard(seen)).toEqual([]);
      return { observed: shown(seen), control: 'on an internal network with an address the gateway answers' };
    },
  );

  attack(target, 'D5', 'another sandbox on the bridge is not reached', async () => {
    const tools: RunRequest = { policy: policyFrom({ ...bridged.policy, image: TOOLS }) };
    const published = policyFrom({ ...tools.policy, ports: [{ container: Number(port) }] });
    await using victim = await arena.spawn(['python3', '-u', '-c', SERVE, port], { policy: published });
    let text = '';
    for await (const chunk of victim.stdout) {
      text += Buffer.from(chunk).toString();
      if (text.includes('\n')) break;
    }
    const address = /^\d+\.\d+\.\d+\.\d+/.exec(text)?.[0] ?? '';
    expect(address).not.toBe('');
    const seen = await reach(bridged, address);
    expect(seen[`tcp ${address}`]).not.toBe('canary');
    // Its published port is for the host’s own loopback: others on the engine do not reach it by the gateway.
    const [given] = victim.ports;
    const gateway = await gatewayOf(target.engine, 'bridge');
    expect((await reachWeakened('host', '127.0.0.1', { port: given?.host }))['tcp 127.0.0.1']).toBe('canary');
    expect((await reachWeakened('bridge', gateway, { port: given?.host }))[`tcp ${gateway}`]).not.toBe('canary');
    await victim.kill('SIGKILL');
    await victim.result;
    await using open = await WeakenedContainer.start(target.engine, {
      image: TOOLS,
      command: ['python3', '-u', '-c', CANARY, port],
      host: { NetworkMode: 'bridge' },
    });
    await open.printed('listening');
    const there = await open.address();
    const control = await reachWeakened('bridge', there);
    expect(control[`tcp ${there}`]).toBe('canary');
    return { observed: seen[`tcp ${address}`] ?? '', control: 'on the engine’s default bridge it answers' };
  });
});

function parse(stdout: string, stderr: string): Record<string, string> {
  const line = stdout.split('\n').find(text => text.startsWith('{'));
  if (line === undefined) throw new Error(`the probe did not run: ${stdout}${stderr}`);
  return JSON.parse(line) as Record<string, string>;
}

function shown(seen: Record<string, string>): string {
  return Object.entries(seen)
    .map(([way, what]) => `${way.replace(/ .*/, '')}: ${what}`)
    .filter((text, at, all) => all.indexOf(text) === at)
    .join(', ');
}
