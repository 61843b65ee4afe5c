// The relay with the real forwarder, in a network namespace of its own that has nothing but loopback.

import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { EgressPlan } from '../../contract/egress.ts';
import type { Listener } from './control.ts';
import { listen, type Relay, SOCKET } from './relay.ts';

// Another one than this processor’s, under an emulator: `.ci/long egress`.
const FORWARDER =
  process.env['ACODE_TEST_FORWARDER'] ?? fileURLToPath(new URL('../../../forwarder/forwarder-x86_64', import.meta.url));
const source = { layer: 'request', where: 'policy.network' } as const;
const allow = (host: string, port: number): EgressPlan['rules'][number] => ({
  ...{ id: `allow/${host}:${port}`, verdict: 'allow', host, port, protocol: 'tcp', mode: 'pass' },
  setBy: source,
});
const PLAN: EgressPlan = {
  generation: 1,
  rules: [allow('one.test', 443), allow('*.wild.test', 8443)],
  limits: { connections: 64, headerBytes: 1024, connectMs: 1000, idleMs: 1000 },
  names: [{ host: 'one.test', address: '127.8.0.1', ports: [443] }],
};

// What runs inside: asks a resolver, connects, and prints what came of it as JSON.
const INSIDE = String.raw`
  const net = require('node:net'), dns = require('node:dns'), dgram = require('node:dgram'), fs = require('node:fs');
  const { setTimeout: pause } = require('node:timers/promises');
  const resolver = new dns.promises.Resolver({ timeout: 2000, tries: 1 }); resolver.setServers(['127.0.0.1']);
  const ask = (name, type = 'A') => resolver.resolve(name, type).catch(error => error.code);
  const exchange = (address, port, text) => new Promise(resolve => {
    let all = ''; const socket = net.connect({ host: address, port, allowHalfOpen: true });
    socket.on('data', data => (all += data)).on('end', () => { socket.end(); resolve(all); }).on('error', error => resolve(error.code));
    socket.end(text);
  });
  const swarm = async (count, address, port) => {
    const sockets = await Promise.all(Array.from({ length: count }, () => new Promise(resolve => {
      const socket = net.connect(port, address); socket.on('error', () => undefined).on('close', () => (socket.gone = true));
      socket.on('connect', () => resolve(socket)).on('close', () => resolve(socket));
    })));
    await pause(500); const left = sockets.filter(socket => !socket.gone).length;
    for (const socket of sockets) socket.destroy(); return left;
  };
  const forwarder = () => fs.readdirSync('/proc').find(pid => { try { return /^\d+ \(forwarder[^)]*\) [^Z] /.test(fs.readFileSync('/proc/' + pid + '/stat', 'utf8')); } catch { return false; } });
  const tried = use => { try { return use(); } catch (error) { return error.code; } };
`;

let directory = '';
let relay: Relay | null = null;
const children: ChildProcess[] = [];

afterEach(async () => {
  await relay?.close();
  for (const child of children.splice(0)) child.kill('SIGKILL');
  if (directory !== '') rmSync(directory, { recursive: true, force: true });
  [relay, directory] = [null, ''];
});

function inNamespace(script: string, ...words: string[]): ChildProcess {
  const line = `ip link set lo up && ${script}`;
  const child = spawn('unshare', ['-Urnpf', '--mount-proc', '--kill-child', 'sh', '-c', line, 'sh', ...words], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  children.push(child);
  return child;
}

async function output(child: ChildProcess): Promise<string> {
  let text = '';
  child.stdout?.on('data', data => (text += String(data)));
  await new Promise(resolve => child.on('close', resolve));
  return text.trim();
}

const echo = (listener: Listener, stream: Duplex): void => {
  const at = typeof listener === 'string' ? listener : `${listener.host}:${listener.port}`;
  stream.on('error', () => undefined);
  stream.write(`${at}<`);
  stream.pipe(stream);
};

/** Runs a program beside a forwarder over the unix socket; the value of its last expression. */
async function beside(program: string, plan = PLAN, onConnection = echo): Promise<unknown> {
  directory = mkdtempSync(join(tmpdir(), 'acode-relay-'));
  relay = await listen({ kind: 'socket', directory }, plan, onConnection);
  const script = '"$1" socket "$2" && exec "$3" -e "$4" "$2"';
  const text = `${INSIDE}; (async () => { ${program} })().then(value => { console.log(JSON.stringify(value)); process.exit(); })`;
  const said = await output(inNamespace(script, FORWARDER, join(directory, SOCKET), process.execPath, text));
  return JSON.parse(said === '' ? '"nothing"' : said);
}

describe('a forwarder over a unix socket', () => {
  it('answers names of its table alone, relays them, and stops where the control connection stops', async () => {
    const seen = await beside(`
      const [one, other, ipv6] = await Promise.all([ask('ONE.test'), ask('other.test'), ask('one.test', 'AAAA')]);
      const wild = await ask('a.wild.test'), bare = await ask('wild.test'), deep = await ask('secret.data.as.labels.test');
      return { one, other, ipv6, wild, bare, deep,
        named: await exchange(one[0], 443, 'hello'), asked: await exchange(wild[0], 8443, 'you'),
        proxy: await exchange('127.0.0.1', 3128, 'p'), socks: await exchange('127.0.0.1', 1080, 's'),
        closedPort: await exchange(one[0], 80, ''), outside: await exchange('93.184.216.34', 443, '') };`);
    expect(seen).toEqual({
      ...{ one: ['127.8.0.1'], other: 'ENOTFOUND', ipv6: 'ENODATA' },
      ...{ wild: ['127.9.0.1'], bare: 'ENOTFOUND', deep: 'ENOTFOUND' },
      ...{ named: 'one.test:443<hello', asked: 'a.wild.test:8443<you', proxy: 'proxy<p', socks: 'socks<s' },
      ...{ closedPort: 'ECONNREFUSED', outside: 'ENETUNREACH' },
    });
    expect(await relay?.bound).toBeNull();
  });

  it('answers DNS over TCP, and survives messages that are none', async () => {
    const seen = await beside(`
      const query = Buffer.from('abcd01000001000000000000036f6e65047465737400000100 01'.replace(' ', ''), 'hex');
      const overTcp = bytes => new Promise(resolve => {
        const socket = net.connect(53, '127.0.0.1'); const all = [];
        socket.on('data', data => { all.push(data); if (Buffer.concat(all).length >= 2 + 27 + 16) socket.end(); }).on('error', () => undefined).on('close', () => resolve(Buffer.concat(all).toString('hex')));
        socket.write(bytes); setTimeout(() => socket.destroy(), 1000).unref();
      });
      const framed = Buffer.concat([Buffer.from([0, query.length]), query]);
      const udp = dgram.createSocket('udp4');
      const random = length => Buffer.from(Array.from({ length }, () => Math.floor(Math.random() * 256)));
      for (let i = 0; i < 3000; i++) udp.send(Buffer.concat([i % 2 ? query.subarray(0, i % 27) : Buffer.alloc(0), random(i % 600)]), 53, '127.0.0.1');
      for (let i = 0; i < 100; i++) net.connect(53, '127.0.0.1').on('error', () => undefined).end(random(i * 7));
      await pause(200);
      const answer = await overTcp(framed);
      return { id: answer.slice(4, 8), address: answer.slice(-8), still: await ask('one.test') };`);
    expect(seen).toEqual({ id: 'abcd', address: '7f080001', still: ['127.8.0.1'] });
  });

  it('cannot be read, traced or robbed of its listeners by the command beside it', async () => {
    const seen = await beside(`
      const pid = forwarder();
      const taken = port => new Promise(resolve => { const server = net.createServer().on('error', error => resolve(error.code)); server.listen({ port, host: '0.0.0.0', reusePort: true }, () => resolve('taken')); });
      return { found: pid !== undefined, memory: tried(() => fs.openSync('/proc/' + pid + '/mem')), files: tried(() => fs.readdirSync('/proc/' + pid + '/fd')), own: tried(() => fs.readdirSync('/proc/self/fd').length > 0),
        stolen: await taken(3128), free: await taken(3129), unix: fs.readFileSync('/proc/net/unix', 'utf8').includes('acode-relay') };`);
    // Root of the namespace may read more than the user of a sandbox: the mode of the files is what can be seen here.
    expect(seen).toMatchObject({ found: true, own: true, stolen: 'EADDRINUSE', free: 'taken', unix: false });
  });

  it('takes no more connections than the plan says, and works again afterwards', async () => {
    const seen = await beside(`
      const live = await swarm(2000, '127.8.0.1', 443);
      await pause(300);
      return { live, again: await exchange('127.8.0.1', 443, 'x') };`);
    expect(seen).toEqual({ live: 64, again: 'one.test:443<x' });
  });

  it('closes connections to the socket itself that claim what is not theirs, and only those', async () => {
    const seen = await beside(`
      const direct = text => new Promise(resolve => {
        let all = ''; const socket = net.connect({ path: process.argv[1], allowHalfOpen: true });
        socket.on('data', data => (all += data)).on('end', () => { socket.end(); resolve(all || 'closed'); }).on('error', error => resolve(error.code)).on('close', () => resolve(all || 'closed'));
        socket.write(text); setTimeout(() => socket.end(), 50);
      });
      return { real: await direct('127.8.0.1:443\\nhi'), forged: await direct('127.8.0.2:443\\nhi'), control: await direct('control\\n'), garbage: await direct('\\0'.repeat(4000)),
        address: await direct('93.184.216.34:443\\n'), after: await exchange('127.8.0.1', 443, 'x') };`);
    const closed = expect.stringMatching(/^(closed|EPIPE|ECONNRESET)$/) as string;
    expect(seen).toEqual({
      ...{ real: 'one.test:443<hi', forged: closed, control: closed, garbage: closed, address: closed },
      after: 'one.test:443<x',
    });
  });

  it('learns the names of another plan without being started again', async () => {
    const updated: EgressPlan = {
      ...PLAN,
      generation: 2,
      names: [{ host: 'two.test', address: '127.8.0.2', ports: [80] }],
    };
    const onConnection = (listener: Listener, stream: Duplex): void => {
      if (listener === 'proxy') void relay?.update(updated).then(fault => stream.end(JSON.stringify(fault)));
      else echo(listener, stream);
    };
    const program = `
      const before = [await ask('one.test'), await ask('two.test')];
      const fault = await exchange('127.0.0.1', 3128, 'update');
      return { before, fault, after: [await ask('one.test'), await ask('two.test')], gone: await exchange('127.8.0.1', 443, ''), there: await exchange('127.8.0.2', 80, 'x') };`;
    expect(await beside(program, PLAN, onConnection)).toEqual({
      ...{ before: [['127.8.0.1'], 'ENOTFOUND'], fault: 'null', after: ['ENOTFOUND', ['127.8.0.2']] },
      // The old listener is still there, and its claim is refused outside.
      ...{ gone: expect.stringMatching(/^$|ECONNRESET/) as string, there: 'two.test:80<x' },
    });
  });

  it('ends at once when the trusted process is gone', async () => {
    const onConnection = (_: Listener, stream: Duplex): void => {
      stream.on('error', () => undefined);
      void relay?.close();
    };
    const program = `
      const ended = await exchange('127.8.0.1', 443, '');
      for (let i = 0; i < 100 && forwarder() !== undefined; i++) await pause(10);
      return { ended, left: forwarder() ?? null, next: await exchange('127.8.0.1', 443, ''), direct: await exchange('93.184.216.34', 443, '') };`;
    expect(await beside(program, PLAN, onConnection)).toEqual({
      ...{ ended: expect.stringMatching(/^$|ECONNRESET/) as string, left: null },
      ...{ next: 'ECONNREFUSED', direct: 'ENETUNREACH' },
    });
  });

  it('says what it cannot bind, with an exit status', async () => {
    directory = mkdtempSync(join(tmpdir(), 'acode-relay-'));
    relay = await listen({ kind: 'socket', directory }, PLAN, echo);
    const busy = `"$3" -e "require('node:net').createServer().listen(3128, '0.0.0.0', () => { require('node:child_process').spawnSync(process.argv[1], ['socket', process.argv[2]], { stdio: 'inherit' }).status === 1 && console.log('failed'); process.exit(); })" "$1" "$2"`;
    const said = await output(inNamespace(busy, FORWARDER, join(directory, SOCKET), process.execPath));
    expect(said).toBe('failed');
    expect(await relay.bound).toEqual({
      listener: '127.0.0.1:3128',
      reason: expect.stringContaining('in use') as string,
    });
  });
});

describe('a forwarder over frames', () => {
  /** Runs a program beside a forwarder that has nothing but its standard streams. */
  async function overFrames(program: string, plan = PLAN, onConnection = echo): Promise<unknown> {
    directory = mkdtempSync(join(tmpdir(), 'acode-relay-'));
    const text = `${INSIDE}; (async () => { ${program} })().then(value => { fs.writeFileSync(process.argv[1], JSON.stringify(value)); process.exit(); })`;
    const said = join(directory, 'said');
    const script =
      '"$2" -e "const wait = () => { require(\'node:net\').connect(3128, \'127.0.0.1\').on(\'error\', () => setTimeout(wait, 20)).on(\'connect\', function () { this.destroy(); eval(process.argv[2]); }); }; wait()" "$4" "$3" >/dev/null & exec "$1" frames';
    const child = inNamespace(script, FORWARDER, process.execPath, text, said);
    if (!child.stdin || !child.stdout) throw new Error('no streams');
    const pipe = Duplex.from({ readable: child.stdout, writable: child.stdin });
    pipe.on('error', () => undefined);
    relay = await listen({ kind: 'frames', pipe }, plan, onConnection);
    const ended = new Promise(resolve => child.on('close', resolve));
    await vi.waitFor(() => expect(readFileSync(said, 'utf8')).not.toBe(''), { timeout: 30_000, interval: 20 });
    // The end of its input is the end of the forwarder, which is the first process of the namespace here.
    await relay.close();
    await ended;
    return JSON.parse(readFileSync(said, 'utf8'));
  }

  it('relays, answers names and keeps the cap, and a stream that nobody reads does not stop the others', async () => {
    let stuck = 0;
    const onConnection = (listener: Listener, stream: Duplex): void => {
      if (listener === 'socks') {
        stuck += 1;
        stream.on('error', () => undefined);
        return;
      }
      echo(listener, stream);
    };
    const seen = await overFrames(
      `
      const bound = await ask('one.test');
      const blocked = net.connect(1080, '127.0.0.1'); blocked.on('error', () => undefined); blocked.write(Buffer.alloc(4 << 20)); await pause(100);
      const crypto = require('node:crypto'); const body = crypto.randomBytes(3 << 20).toString('hex');
      const back = await exchange('127.8.0.1', 443, body);
      const whole = back === 'one.test:443<' + body;
      blocked.destroy();
      const live = await swarm(500, '127.8.0.1', 443); await pause(300);
      return { bound, other: await ask('x.test'), wild: await ask('b.wild.test'), whole, live, again: await exchange('127.9.0.1', 8443, 'x') };`,
      PLAN,
      onConnection,
    );
    expect(seen).toEqual({
      ...{ bound: ['127.8.0.1'], other: 'ENOTFOUND', wild: ['127.9.0.1'], whole: true },
      // The stream that nobody reads is the 64th.
      live: 63,
      again: 'b.wild.test:8443<x',
    });
    expect(stuck).toBe(1);
  });

  it('is given up when what comes is not what a forwarder sends', async () => {
    const given: string[] = [];
    for (const bytes of [
      '\0\0\0\0X\0\0\0',
      '\x01\0\0\0Q\0\0\0',
      '\0\0\0\0D\0\x05\0what\n',
      '\x01\0\0\0O\0\xff\0' + 'a'.repeat(255),
    ]) {
      const sent: Buffer[] = [];
      const pipe = new Duplex({ read: () => undefined, write: (chunk: Buffer, _, done) => (sent.push(chunk), done()) });
      const made = await listen({ kind: 'frames', pipe }, PLAN, () => given.push('connection'));
      pipe.push(Buffer.from(bytes, 'latin1'));
      expect(await made.bound).toEqual({ reason: 'the forwarder ended' });
      expect(pipe.destroyed).toBe(true);
    }
    expect(given).toEqual([]);
  });
});

describe('the relay', () => {
  it('refuses a plan that no forwarder could hold', async () => {
    const names = Array.from({ length: 600 }, (_, at) => ({ host: `h${at}.test`, address: '127.8.0.1', ports: [443] }));
    await expect(listen({ kind: 'socket', directory: '/' }, { ...PLAN, names }, echo)).rejects.toThrow('at most 510');
  });

  it('gives nothing to a connection that says nothing', async () => {
    directory = mkdtempSync(join(tmpdir(), 'acode-relay-'));
    const seen: Listener[] = [];
    relay = await listen({ kind: 'socket', directory }, PLAN, listener => seen.push(listener));
    const socket: Socket = connect(join(directory, SOCKET));
    socket.on('error', () => undefined);
    await new Promise(resolve => socket.on('connect', resolve));
    socket.end();
    await new Promise(resolve => socket.on('close', resolve));
    expect(seen).toEqual([]);
  });
});
