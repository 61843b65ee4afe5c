// A client of its own process, for tests that kill it or start it with something in its hands: runs one line in a sandbox of
// a level on its working directory, prints what it prints, and ends; with --probe it prints what the level can do instead.
// @ts-check

import { randomBytes } from 'node:crypto';
import { readlinkSync, statSync } from 'node:fs';

const [level = '', line = ''] = process.argv.slice(2);
const BUILT = new URL('../../packages/sandbox/dist/', import.meta.url).href;
const signal = AbortSignal.timeout(60_000);
const options = {
  clock: (await import(`${BUILT}lifecycle/clock.js`)).systemClock,
  closing: new AbortController().signal,
  keep: () => undefined,
  acceptProcessLimits: true,
  memory: process.env['ACODE_TEST_MEMORY'] ?? '/nonexistent',
  egress: new (await import(`${BUILT}isolation/egress.js`)).EgressMounts('/nonexistent', process.getuid?.()),
};
const classes = { bubblewrap: 'BubblewrapBackend', ulimit: 'UlimitBackend', none: 'NoneBackend' };
const name = /** @type {Record<string, string>} */ (classes)[level] ?? '';
const backend = new (await import(`${BUILT}isolation/${level}/backend.js`))[name](options);

if (line === '--probe') {
  console.log(JSON.stringify(await backend.probe(signal)));
  process.exit();
}

const workspace = process.cwd();
const { dev: device, ino: inode } = statSync(workspace);
const user = { uid: process.getuid?.(), gid: process.getgid?.() };
const image = await backend.resolveImage();
const MIB = 1024 ** 2;
const spec = {
  identity: { sandboxId: 'client', name: 'acode-test-client', labels: {}, correlationId: '' },
  level,
  image: { ...image, removed: [] },
  user,
  limits: {
    memoryBytes: 256 * MIB,
    swapBytes: 0,
    cpus: 1,
    pids: 64,
    openFiles: 256,
    tmpBytes: MIB,
    outputBytes: MIB,
  },
  runtime: null,
  network: { kind: 'none' },
  dns: [],
  ports: [],
  workdir: '/workspace',
  home: '/home/sandbox',
  mounts: [
    { purpose: 'workspace', source: workspace, target: '/workspace', readOnly: false, identity: { device, inode } },
  ],
  tmpfs: [
    { target: '/tmp', bytes: MIB, mode: '1777' },
    { target: '/home/sandbox', bytes: MIB, mode: '0700' },
  ],
  hash: 'client',
};
try {
  console.log(`client 77: ${readlinkSync('/proc/self/fd/77')}`);
} catch {
  // Most clients hold nothing there.
}
const sandbox = await backend.prepare(spec, signal);
await sandbox.verify(signal);
const print = (/** @type {Buffer} */ data) => void process.stdout.write(data);
const handover = { command: line, cwd: '/workspace', env: {}, nonce: randomBytes(16).toString('hex') };
const execution = await sandbox.execute(handover, { stdout: print, stderr: print }, signal);
await execution.ended;
await sandbox[Symbol.asyncDispose]();
