// Group D: reaching something over a network that the sandbox was not given. Every canary is a container of the test’s own.

import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { policyFrom } from '@acode/sandbox';
import type { RunRequest } from '@acode/sandbox';
import { dial } from '../../packages/sandbox/src/egress/proxy/dial.ts';
import { ONE, Site, TWO, WILD, withoutNames } from '../egress/servers.ts';
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

// What a client inside gets for bytes that it sends to the proxy: the first line of each answer, or what happened instead.
const RAW = `
import json, socket, ssl, sys
def ask(text):
    s = socket.create_connection(('127.0.0.1', 3128), 5); s.settimeout(5); s.sendall(text.encode('latin1'))
    try:
        return s, s.recv(4096).decode('latin1').split('\\r\\n')[0] or 'closed'
    except OSError as e:
        return s, type(e).__name__
def tls(authority, name):
    s, line = ask(f'CONNECT {authority} HTTP/1.1\\r\\nHost: {authority}\\r\\n\\r\\n')
    if ' 200 ' not in line: return line
    context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
    try:
        return 'connected' if context.wrap_socket(s, server_hostname=name).version() else ''
    except OSError as e:
        return getattr(e, 'reason', None) or type(e).__name__
asked = json.loads(sys.argv[1])
print(json.dumps([tls(*one) if isinstance(one, list) else ask(one)[1] for one in asked]))
`;

// Asks the resolver inside, over UDP and TCP, and says the code of each answer: 0 for an address, 3 for an unknown name.
const RESOLVE = `
import json, socket, struct, sys
def query(name, kind):
    labels = b''.join(bytes([len(part)]) + part.encode() for part in name.split('.')) + b'\\0'
    return struct.pack('>HHHHHH', 7, 256, 1, 0, 0, 0) + labels + struct.pack('>HH', kind, 1)
seen = []
for name in sys.argv[1:]:
    for kind in (1, 16, 28):
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(3); u.sendto(query(name, kind), ('127.0.0.1', 53))
        t = socket.create_connection(('127.0.0.1', 53), 3); q = query(name, kind); t.sendall(struct.pack('>H', len(q)) + q)
        answers = [u.recv(512), t.recv(514)[2:]]
        seen.append([name, kind, *[f'{a[3] & 15} {struct.unpack(">H", a[6:8])[0]}' for a in answers]])
print(json.dumps(seen))
`;

describe.skipIf(withoutEngines || withoutNames).each(targetsOf('network'))('an allow-list, on $name', target => {
  const CONFIG = { sandbox: { network: { private_hosts: ['*.acode.test'] } } };
  const allowing = (...allow: string[]): RunRequest => ({ policy: { network: { allow }, timeoutMs: 60_000 } });
  const asked = async (
    arena: Arena,
    request: RunRequest,
    list: readonly (string | readonly string[])[],
  ): Promise<string[]> => {
    const { stdout, stderr } = await arena.python(RAW, request, JSON.stringify(list));
    if (!stdout.startsWith('[')) throw new Error(`the probe did not run: ${stdout}${stderr}`);
    return JSON.parse(stdout) as string[];
  };
  const get = (host: string, port: number, more = ''): string =>
    `GET http://${host}:${port}/ HTTP/1.1\r\nHost: ${host}:${port}\r\nConnection: close\r\n${more}\r\n`;
  const connect = (authority: string): string => `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n\r\n`;

  attack(target, 'D6', 'denied, and nothing is dialled', async () => {
    await using site = await Site.http();
    await using careless = await Arena.open(target);
    const request = allowing(`http:${ONE}:${site.port}`);
    const [seen = ''] = await asked(careless, request, [get(ONE, site.port)]);
    expect(seen).toMatch(/ 403 /);
    expect(site.seen).toEqual([]);
    await using arena = await Arena.open(target, { config: CONFIG });
    const [control = ''] = await asked(arena, request, [get(ONE, site.port)]);
    expect(control).toMatch(/ 200 /);
    return { observed: seen, control: `where the user’s file names the host: ${control}` };
  });

  attack(target, 'D7', 'refused before a name is asked for', async () => {
    await using site = await Site.http();
    await using arena = await Arena.open(target, { config: CONFIG });
    const hosts = [
      `${ONE}\0.evil.test`,
      `${ONE}\r.evil.test`,
      `evil.test ${ONE}`,
      `${ONE}\t`,
      `${ONE}@evil.test`,
      `\0${ONE}`,
    ];
    const list = hosts.flatMap(host => [get(host, site.port), connect(`${host}:${site.port}`)]);
    const seen = await asked(arena, allowing(`http:${ONE}:${site.port}`), [...list, get(ONE, site.port)]);
    const control = seen.pop() ?? '';
    for (const line of seen) expect(line).toMatch(/ 40[03] | 421 |closed|Error/);
    expect(control).toMatch(/ 200 /);
    expect(site.seen).toHaveLength(1);
    return { observed: `${seen.length} of ${seen.length} refused`, control: `the host as it is: ${control}` };
  });

  attack(target, 'D8', 'denied', async () => {
    await using site = await Site.https([ONE]);
    await using arena = await Arena.open(target, { config: CONFIG });
    const forms = [
      '127.0.0.1',
      '127.1',
      '0x7f000001',
      '2130706433',
      '0177.0.0.1',
      `${ONE}.`,
      '[::1]',
      '[::ffff:127.0.0.1]',
      '[64:ff9b::7f00:1]',
      'localhost',
    ];
    const list = forms.map(form => connect(`${form}:${site.port}`));
    const seen = await asked(arena, allowing(`${ONE}:${site.port}`), [...list, [`${ONE}:${site.port}`, ONE]]);
    const control = seen.pop() ?? '';
    for (const line of seen) expect(line).toMatch(/ 40[03] |closed|Error/);
    expect(control).toBe('connected');
    return { observed: `${seen.length} of ${seen.length} forms denied`, control: `by its name: ${control}` };
  });

  attack(target, 'D9', 'the address that was checked is the one that is dialled', async () => {
    await using site = await Site.http();
    const answers = ['127.0.0.1', '127.0.0.66'];
    const resolve = async (): Promise<readonly string[]> => [answers.shift() ?? ''];
    const rule = { id: 'test', verdict: 'allow', host: ONE, port: site.port, protocol: 'http', mode: 'pass' } as const;
    const checked: string[] = [];
    const options = {
      resolve,
      signal: AbortSignal.timeout(60_000),
      connectMs: 5000,
      check: (_: unknown, address: string) => void checked.push(address),
    };
    const socket = await dial({ ...rule, setBy: { layer: 'user', where: 'test' } }, ONE, site.port, options);
    const dialled = socket.remoteAddress ?? '';
    socket.destroy();
    expect([checked, dialled]).toEqual([['127.0.0.1'], '127.0.0.1']);
    return {
      observed: `checked and dialled ${dialled}`,
      control: `a second question would have been answered ${(await resolve()).join()}`,
    };
  });

  attack(target, 'D10', 'closed', async () => {
    await using secure = await Site.https([ONE, TWO]);
    await using plain = await Site.http();
    await using arena = await Arena.open(target, { config: CONFIG });
    const authority = `${ONE}:${secure.port}`;
    const other = get(ONE, plain.port).replace(`Host: ${ONE}`, `Host: ${TWO}`);
    const list = [[authority, TWO], [authority, `a.${ONE}`], other, [authority, ONE], get(ONE, plain.port)];
    const seen = await asked(arena, allowing(authority, `http:${ONE}:${plain.port}`), list);
    expect(seen[0]).toMatch(/UNRECOGNIZED_NAME|Error|closed/);
    expect(seen[1]).toMatch(/UNRECOGNIZED_NAME|Error|closed/);
    expect(seen[2]).toMatch(/ 421 /);
    expect(seen[3]).toBe('connected');
    expect(seen[4]).toMatch(/ 200 /);
    return { observed: seen.slice(0, 3).join(', '), control: `the same names: ${seen.slice(3).join(', ')}` };
  });

  attack(target, 'D11', 'denied', async () => {
    await using site = await Site.http();
    await using arena = await Arena.open(target, { config: CONFIG });
    const [wild] = WILD;
    const names = [
      `evil${ONE}`,
      `${ONE}.evil.test`,
      `a.${ONE}`,
      'wild.acode.test',
      'evilwild.acode.test',
      `${wild}.evil.test`,
      'acode.test',
    ];
    const list = [...names.map(name => get(name, site.port)), get(wild, site.port), get(ONE, site.port)];
    const seen = await asked(arena, allowing(`http:${ONE}:${site.port}`, `http:*.wild.acode.test:${site.port}`), list);
    for (const line of seen.slice(0, names.length)) expect(line).toMatch(/ 403 |closed/);
    expect(seen.slice(names.length)).toEqual([expect.stringMatching(/ 200 /), expect.stringMatching(/ 200 /)]);
    expect(site.seen).toEqual([`GET ${wild}/`, `GET ${ONE}/`]);
    return {
      observed: `${names.length} of ${names.length} denied`,
      control: 'the listed host and a name below the suffix answer',
    };
  });

  attack(target, 'D12', 'reaches nothing but names of its list', async () => {
    await using site = await Site.tcp();
    await using other = await Site.tcp();
    await using arena = await Arena.open(target, { config: CONFIG });
    const port = String(other.port);
    const gateway = await gatewayOf(target.engine, 'bridge');
    const request = allowing(`tcp:${ONE}:${site.port}`);
    const { stdout, stderr } = await arena.python(REACH, request, port, '127.0.0.1', gateway, ONE, TWO);
    const seen = parse(stdout, stderr);
    expect(Object.values(seen).filter(what => what === 'canary' || what.startsWith('hello'))).toEqual([]);
    expect(other.seen).toEqual([]);
    const control = await arena.python(REACH, request, String(site.port), ONE);
    expect(parse(control.stdout, control.stderr)[`tcp ${ONE}`]).toContain('hello');
    return { observed: shown(seen), control: 'the listed name at its port answers, without a proxy variable' };
  });

  attack(target, 'D13', 'no name is asked for outside, and none but those of the list is answered', async () => {
    await using arena = await Arena.open(target, { config: CONFIG });
    const names = ['c2VjcmV0.evil.test', `c2VjcmV0.${ONE}`, 'localhost.evil.test', ONE];
    const { stdout, stderr } = await arena.python(RESOLVE, allowing(`${ONE}:443`), ...names);
    if (!stdout.startsWith('[')) throw new Error(`the probe did not run: ${stdout}${stderr}`);
    const seen = JSON.parse(stdout) as [string, number, string, string][];
    for (const [name, kind, udp, tcp] of seen) {
      const wanted = name === ONE ? (kind === 1 ? '0 1' : '0 0') : '3 0';
      expect([name, kind, udp, tcp]).toEqual([name, kind, wanted, wanted]);
    }
    return {
      observed: 'unknown names: NXDOMAIN, for addresses and for text, over UDP and TCP',
      control: 'the listed name has one address, on the loopback',
    };
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
