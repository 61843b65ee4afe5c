// Group F by looking: what a sandbox knows of the host’s secrets, and whether a changed plan is noticed.

import { mkdir, readFile, rename, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { RunResult } from '../../../contract/result.ts';
import type { Weakening } from '../../../isolation/backend.ts';
import { refusalOf } from '../bench.ts';
import type { Bench } from '../bench.ts';
import { placed, probingProgram } from '../program.ts';
import type { TestEnvironment } from '../test-environment.ts';
import { NotTried, assertDecided } from '../trial.ts';
import type { Outcome, Outcomes, Trial, Untried } from '../trial.ts';
import { withoutWalls } from './mount-requests.ts';

const SECRET = 'acode-doctor-canary-5b1f';
// What shells and kernels set by themselves.
const ORDINARY = ['PATH', 'HOME', 'PWD', 'OLDPWD', 'HOSTNAME', 'SHLVL', '_', 'TERM', 'CI', 'CANARY'];

// Where a command has no namespace, what it starts is found again by one variable, and its files by another.
const ON_HOST = ['ACODE_SANDBOX_ID', 'TMPDIR'];

/** The environment inside. */
export const environment: Trial = {
  about: 'the environment',
  needsShell: true,
  onHost: 'same',
  attacks: [
    { id: 'F1', title: 'environment of the host' },
    { id: 'F2', title: 'proxy credentials' },
    { id: 'F3', title: 'secrets in what the engine shows' },
  ],
  async run(bench) {
    const request = { env: { CI: '1', CANARY: SECRET } };
    const [inside, open, explained] = await Promise.all([
      bench.run('env', { request }),
      bench.run('env', { request, without: 'environment' }),
      bench.explain({ request }),
    ]);
    const known = new Set([
      ...ORDINARY,
      ...(bench.environment.kind === 'host' ? ON_HOST : []),
      ...explained.spec.image.environment.map(variable => variable.replace(/=.*$/s, '')),
      ...Object.keys(explained.environment),
    ]);
    const foreign = ({ stdout }: RunResult): string[] =>
      [...stdout.matchAll(/^([A-Za-z_][A-Za-z0-9_]*)=/gm)]
        .map(([, name]) => name ?? '')
        .filter(name => !known.has(name));
    const proxies = (result: RunResult): string[] => foreign(result).filter(name => /_proxy$/i.test(name));
    const shown = JSON.stringify([explained.engineRequest, explained.spec]).includes(SECRET);
    const given = inside.stdout.includes(SECRET);
    return {
      F1: seen(foreign(inside), foreign(open)),
      F2: seen(proxies(inside), proxies(open)),
      F3: {
        stopped: !shown,
        observed: shown ? 'it is in the engine’s request' : 'absent from the engine’s request and labels',
        controlled: given,
        control: 'the command itself was given it',
      },
    };
  },
};

const KEY = `-----BEGIN PRIVATE KEY-----\n${SECRET}\n-----END PRIVATE KEY-----\n`;
const READ_SECRETS = `cat .env conf/server.key link 2>/dev/null; cat /proc/self/cwd/.env
mv conf moved 2>/dev/null && cat moved/server.key; echo over > .env 2>/dev/null; echo end`;

/** Files with secrets in the workspace, by their names, through a link and after a directory above was renamed. */
export const maskedFiles: Trial = {
  about: 'secrets in the workspace',
  needsShell: true,
  attacks: [{ id: 'F3b', title: 'secrets in files of the workspace' }],
  async run(bench) {
    const make = async (): Promise<string> => {
      const workspace = await bench.workspace({ '.env': `TOKEN=${SECRET}\n`, 'conf/server.key': KEY });
      await symlink('.env', join(workspace, 'link'));
      return workspace;
    };
    const [whole, bare] = await Promise.all([make(), make()]);
    const [inside, open] = await Promise.all([
      bench.run(READ_SECRETS, { workspace: whole }),
      bench.run(READ_SECRETS, { workspace: bare, without: 'masks' }),
    ]);
    const kept = await readFile(join(whole, '.env'), 'utf8');
    const isRead = inside.stdout.includes(SECRET);
    const isWritten = !kept.includes(SECRET);
    const isSeen = open.stdout.includes(SECRET);
    return {
      F3b: {
        stopped: !isRead && !isWritten && inside.stdout.includes('end'),
        observed: isRead ? 'read' : isWritten ? 'changed on the host' : 'empty, and as it was on the host',
        controlled: isSeen,
        control: isSeen ? 'read where they are not masked' : 'not read without masks either',
      },
    };
  },
};

function seen(inside: readonly string[], open: readonly string[]): Outcome {
  return {
    stopped: inside.length === 0,
    observed: inside.length === 0 ? 'exactly what was allowed' : `also ${inside.join(', ')}`,
    controlled: open.length > 0,
    control: `${open.join(', ')} seen when put there`,
  };
}

/** Engine and kernel held against the plan. */
export const verification: Trial = {
  about: 'verification',
  needsShell: true,
  attacks: [
    { id: 'B4', title: 'directory swapped after validation' },
    { id: 'B4b', title: 'source below what another sandbox can write' },
    { id: 'F20b', title: 'request changed on its way to the engine' },
  ],
  async run(bench) {
    const [f20b, swap] = await Promise.all([
      changed(bench),
      bench.contact.ownKernel
        ? { untried: 'this runtime hides the kernel’s view of the mounts; see B4b' }
        : swapped(bench),
    ]);
    const nestedToo = bench.environment.kind === 'container' ? await nested(bench) : PINNED;
    return { B4: swap, B4b: nestedToo, F20b: f20b };
  },
  async onHost(bench) {
    return { ...(await withoutWalls(bench, ['B4', 'B4b'])), F20b: await changed(bench) };
  },
};

const PINNED: Untried = {
  untried: 'mounts of this level are made by this user and held against the plan once they stand: B4 tries the swap',
};

// One protection that every sandbox of a level has; where anything is compared with the plan, that it is missing is seen.
function anyProtection({ kind, level }: TestEnvironment): Weakening {
  if (kind === 'container') return 'seccomp';
  if (kind === 'namespaces') return 'read-only-root';
  return level === 'ulimit' ? 'open-files' : 'environment';
}

async function changed(bench: Bench): Promise<Outcome> {
  const without = anyProtection(bench.environment);
  // Fewer than a sandbox without that limit has, which is no more than the usual.
  const policy = { limits: { openFiles: 64 } };
  const [noticed, honest] = await Promise.all([
    refusalOf(bench.run('true', { policy, without, verified: true })),
    refusalOf(bench.run('true', { policy })),
  ]);
  assertDecided([noticed, honest]);
  return {
    stopped: noticed === 'ACODE-SBX-010',
    observed: noticed ?? `ran without its protection (${without})`,
    controlled: honest === null,
    control: honest === null ? 'the unchanged request runs' : `the unchanged request was refused: ${honest}`,
  };
}

// Between the check and the mount, the project becomes a link to somewhere else.
async function swapped(bench: Bench): Promise<Outcome | Untried> {
  const attempt = async (verified: boolean): Promise<{ code: string | null; saw: string }> => {
    const top = await bench.workspace({ 'project/marker': 'project', 'decoy/marker': 'decoy' });
    let saw = '';
    const run = bench.run('cat marker', {
      workspace: join(top, 'project'),
      ...(verified ? { verified: true as const } : { without: 'verification' as const }),
      beforeCreate: async () => {
        await rename(join(top, 'project'), join(top, 'moved'));
        await symlink(join(top, 'decoy'), join(top, 'project'));
      },
    });
    const code = await refusalOf(run.then(result => (saw = result.stdout.trim())));
    return { code, saw };
  };
  const [checked, open] = await Promise.all([attempt(true), attempt(false)]);
  assertDecided([checked.code, open.code]);
  return {
    stopped: checked.saw !== 'decoy' && checked.code !== null,
    observed: checked.code ?? `ran and saw the ${checked.saw}`,
    controlled: open.saw === 'decoy',
    control: open.saw === 'decoy' ? 'without verification the other directory is seen' : `saw ${open.code ?? open.saw}`,
  };
}

// Below a directory that a sandbox can write, a check is out of date as soon as it is made.
async function nested(bench: Bench): Promise<Outcome> {
  const top = await bench.workspace({ 'project/marker': 'x' });
  const inner = { workspace: join(top, 'project') };
  let begun: () => void = () => undefined;
  let isThere = true;
  const started = new Promise<void>(resolve => (begun = resolve));
  const stop = new AbortController();
  const signal = AbortSignal.any([bench.signal, stop.signal]);
  const writer = refusalOf(
    bench.run('echo up; sleep 15', { workspace: top, request: { signal, onStdout: () => begun() } }),
  ).finally(() => {
    isThere = false;
    begun();
  });
  await started;
  const [code, open] = await Promise.all([
    refusalOf(bench.run('true', { ...inner, verified: true })),
    refusalOf(bench.run('true', { ...inner, without: 'verification' })),
  ]);
  const wasThere = isThere;
  stop.abort();
  assertDecided([await writer, code, open]);
  // Without it nothing was there to be refused for.
  if (!wasThere) throw new NotTried('the sandbox that can write above ended before the one below was made');
  return {
    stopped: code === 'ACODE-SBX-010',
    observed: code ?? 'accepted',
    controlled: open === null,
    control: open === null ? 'without verification it runs' : `refused without verification too: ${open}`,
  };
}

const UNIX = 1;
const HERE_SOCKET = Buffer.concat([Buffer.from([UNIX, 0]), Buffer.from('sockets/any\0')]);

/** Sockets and odd names as mounts. */
export const oddSources: Trial = {
  about: 'odd mount sources',
  needsShell: true,
  attacks: [
    { id: 'B6', title: 'socket under another name' },
    { id: 'B8', title: 'directory with an agent’s socket' },
    { id: 'B11', title: 'path with `,source=/etc` in it' },
  ],
  async run(bench) {
    return { ...(await sockets(bench)), B11: await oddName(bench) };
  },
  async onHost(bench) {
    return { ...(await withoutWalls(bench, ['B6', 'B8'])), B11: await oddName(bench) };
  },
};

async function sockets(bench: Bench): Promise<Outcomes> {
  const { processor } = bench;
  const untried = `there is no probing program for ${process.arch}`;
  if (processor === null) return { B6: { untried }, B8: { untried } };
  const probe = probingProgram(processor, [
    { call: 'socket', args: [UNIX, 1, 0] },
    { call: 'bind', args: [{ resultOf: 0 }, HERE_SOCKET, HERE_SOCKET.length] },
  ]);
  const workspace = await bench.workspace({ probe, 'sockets/file': '', 'data/file': '' });
  const script = `${placed('probe', '/tmp')} && /tmp/probe; test -S sockets/any && echo made`;
  const made = await bench.run(script, { workspace, plainRuntime: true });
  const asked = (source: string): Promise<string | null> =>
    bench.refusal({ workspace, policy: { mounts: [{ source: join(workspace, source), target: '/extra' }] } });
  const [socket, directory, honest] = await Promise.all([asked('sockets/any'), asked('sockets'), asked('data')]);
  const outcome = (code: string | null): Outcome => ({
    stopped: code === 'ACODE-SBX-003',
    observed: code ?? 'accepted',
    controlled: honest === null && made.stdout.includes('made'),
    control: honest === null ? 'a directory without one is accepted' : `a plain directory was refused: ${honest}`,
  });
  return { B6: outcome(socket), B8: outcome(directory) };
}

async function oddName(bench: Bench): Promise<Outcome> {
  const top = await bench.workspace({ 'plain/marker': 'itself' });
  const odd = join(top, 'p,source=/etc'.replace('/', ':'));
  await mkdir(odd);
  await rename(join(top, 'plain/marker'), join(odd, 'marker'));
  const script = 'cat marker; echo; test -e passwd && echo etc; echo kept > written';
  const result = await bench.run(script, { workspace: odd });
  const itself = result.stdout.startsWith('itself') && !/^etc$/m.test(result.stdout);
  return {
    stopped: itself,
    observed: itself ? 'mounted as itself' : 'something else was mounted',
    controlled: result.exitCode === 0,
    control: 'it can be read and written inside',
  };
}
