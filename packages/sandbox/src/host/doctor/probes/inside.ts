// Group A by looking around inside: what a sandbox can see and reach of the host and of its neighbours.

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { RunResult } from '../../../contract/result.ts';
import { refusalOf } from '../bench.ts';
import type { Bench } from '../bench.ts';
import { NOTHING_STOPS_IT } from '../trial.ts';
import type { Outcome, Outcomes, Trial, Untried } from '../trial.ts';
import { exists } from '../../../workspace/locate.ts';

const MASKED = [
  '/proc/kcore',
  '/proc/keys',
  '/proc/timer_list',
  '/proc/latency_stats',
  '/sys/firmware/acpi/tables/DSDT',
];

const LOOK = `
${MASKED.map(path => `printf 'bytes %s ' ${path}; head -c 16 ${path} 2>/dev/null | wc -c`).join('\n')}
printf 'bytes /proc/version '; head -c 16 /proc/version | wc -c
grep -E '^(NoNewPrivs|CapEff|CapBnd|Seccomp):' /proc/self/status
for f in /proc/self/fd/*; do printf 'fd %s\\n' "$(readlink "$f")"; done
sleep 3 acode-own-marker 2>/dev/null &
sh -c ': acode-own-marker; sleep 3' &
sleep 0.2 2>/dev/null || sleep 1
for c in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < "$c" 2>/dev/null; echo; done
true`;

const WRITE = `
for d in / /etc /usr /var /var/tmp /opt /srv; do ( : > "$d/acode-root-probe" ) 2>/dev/null && echo "wrote $d"; done
( : > /tmp/acode-twin ) && echo 'wrote /tmp'
true`;

const PEER = "sh -c ': acode-peer-marker; sleep 4'";

/** What is visible from inside, against a peer sandbox and sandboxes that lack a protection. */
export const lookingAround: Trial = {
  about: 'a look around inside',
  needsShell: true,
  attacks: [
    { id: 'A16', title: 'processes of another sandbox' },
    { id: 'A17b', title: 'no_new_privs, no capabilities' },
    { id: 'A18', title: 'leaked descriptors (CVE-2024-21626)' },
    { id: 'A22', title: 'masked paths' },
    { id: 'E14', title: 'writes outside what was given (root, VOLUME)' },
  ],
  async run(bench) {
    const [inside, writable] = await Promise.all([bench.run(WRITE), bench.run(WRITE, { without: 'read-only-root' })]);
    return { ...(await looked(bench)), E14: rootFileSystem(inside, writable) };
  },
  // Looking does no harm; files in directories of the host’s would.
  async onHost(bench) {
    return { ...(await looked(bench)), E14: { open: NOTHING_STOPS_IT } };
  },
};

async function looked(bench: Bench): Promise<Outcomes> {
  // The peer is up before the look begins, or it would not be there to be seen.
  const peerUp = upFirst(bench);
  await peerUp.started;
  const inside = await bench.run(LOOK);
  const [privileged, descriptor, fine] = await Promise.all([
    privilegedStatus(bench),
    bench.refusal({ request: { cwd: '/proc/self/fd/7' } }),
    bench.refusal({ request: { cwd: '.' } }),
  ]);
  await peerUp.ended;
  return {
    A16: neighbours(inside),
    A17b: privileges(inside, privileged, bench.contact.ownKernel),
    A18: descriptors(inside, descriptor, fine),
    A22: masked(inside),
  };
}

/** What a process shows that may gain privileges, and whose it is. */
interface Privileged {
  readonly status: string;
  readonly who: string;
}

// Where no sandbox can be made that lacks the protection, acode’s own process is one that does.
async function privilegedStatus(bench: Bench): Promise<Privileged> {
  if (bench.environment.removable.includes('no-new-privileges'))
    return { status: (await bench.run(LOOK, { without: 'no-new-privileges' })).stdout, who: 'without the option' };
  return { status: await readFile('/proc/self/status', 'utf8').catch(() => ''), who: 'in acode’s own process' };
}

function upFirst(bench: Bench): { started: Promise<void>; ended: Promise<unknown> } {
  let begun: () => void = () => undefined;
  const started = new Promise<void>(resolve => (begun = resolve));
  const ended = refusalOf(bench.run(`echo up; ${PEER}`, { request: { onStdout: () => begun() } })).finally(begun);
  return { started, ended };
}

function neighbours({ stdout }: RunResult): Outcome {
  const peer = /^.*acode-peer-marker.*$/m.test(stdout);
  return {
    stopped: !peer,
    observed: peer ? 'a process of the other sandbox was seen' : 'not visible',
    controlled: /acode-own-marker/.test(stdout),
    control: 'its own background process was seen in the same list',
  };
}

function privileges({ stdout }: RunResult, open: Privileged, ownKernel: boolean): Outcome | Untried {
  const flag = (text: string): string => /NoNewPrivs:\s*(\d)/.exec(text)?.[1] ?? 'unknown';
  const capabilities = /CapEff:\s*([0-9a-f]+)/.exec(stdout)?.[1] ?? 'unknown';
  // A kernel of its own may not show the flag; that it has none of the host’s privileges is what counts then.
  if (ownKernel && flag(stdout) === 'unknown' && flag(open.status) === 'unknown')
    return { untried: 'the sandbox’s own kernel does not show NoNewPrivs' };
  return {
    stopped: flag(stdout) === '1' && /^0+$/.test(capabilities),
    observed: `NoNewPrivs ${flag(stdout)}, CapEff ${capabilities.replace(/^0+$/, '0')}`,
    controlled: ownKernel || flag(open.status) === '0',
    control: `NoNewPrivs ${flag(open.status)} ${open.who}`,
  };
}

function descriptors({ stdout }: RunResult, descriptor: string | null, fine: string | null): Outcome {
  const open = [...stdout.matchAll(/^fd (.*)$/gm)].map(([, target]) => target ?? '');
  // The list itself is open while it is read.
  const leaked = open.filter(target => target.startsWith('/') && !/^\/(?:dev\/null|proc\/)/.test(target));
  return {
    stopped: descriptor === 'ACODE-SBX-003' && leaked.length === 0,
    observed: leaked.length > 0 ? `open: ${leaked.join(', ')}` : `${descriptor ?? 'accepted'}; none left open`,
    controlled: fine === null && open.length >= 3,
    control: `an ordinary directory is accepted; ${open.length} descriptors seen`,
  };
}

function masked({ stdout }: RunResult): Outcome {
  const bytes = (path: string): number => Number(new RegExp(`^bytes ${path} +(\\d+)`, 'm').exec(stdout)?.[1] ?? -1);
  const readable = MASKED.filter(path => bytes(path) !== 0);
  return {
    stopped: readable.length === 0,
    observed: readable.length > 0 ? `readable: ${readable.join(', ')}` : 'empty or absent',
    controlled: bytes('/proc/version') > 0,
    control: 'the same command reads /proc/version',
  };
}

function rootFileSystem({ stdout }: RunResult, open: RunResult): Outcome | Untried {
  const written = (text: string): string[] =>
    [...text.matchAll(/^wrote (.*)$/gm)].map(([, path]) => path ?? '').filter(path => path !== '/tmp');
  if (written(open.stdout).length === 0 && written(stdout).length === 0)
    return { untried: 'the image has no directory that everyone may write, so the attempt could not be shown to work' };
  return {
    stopped: written(stdout).length === 0,
    observed: written(stdout).length > 0 ? `wrote ${written(stdout).join(', ')}` : 'refused everywhere',
    controlled: written(open.stdout).length > 0 && /^wrote \/tmp$/m.test(stdout),
    control: `wrote ${written(open.stdout).join(', ')} without the read-only root`,
  };
}

// It ends by itself soon, wherever it got to. Its command waits until it has left.
const LIVE_ON = `
command -v setsid > /dev/null && command -v env > /dev/null || { echo missing; exit 0; }
setsid env -i /bin/sh -c 'echo x > up; sleep 1; echo x > late' > /dev/null 2>&1 < /dev/null &
while [ ! -e up ]; do sleep 0.1 2> /dev/null || sleep 1; done;`;
const MAX_MS = 2500;
const LOOK_MS = 100;

/** A process in a session of its own, with an environment of its own. */
export const survivor: Trial = {
  about: 'what lives on',
  needsShell: true,
  onHost: 'same',
  attacks: [{ id: 'E10', title: 'survivor in a session of its own' }],
  async run(bench) {
    const [left, awaited] = await Promise.all([bench.workspace(), bench.workspace()]);
    const [result] = await Promise.all([
      bench.run(`${LIVE_ON} true`, { workspace: left }),
      bench.run(`${LIVE_ON} sleep 3`, { workspace: awaited }),
    ]);
    if (result.stdout.includes('missing')) return { E10: { untried: 'the image has no setsid, or no env' } };
    const lives = await appears(join(left, 'late'));
    return {
      E10: {
        stopped: !lives,
        observed: lives ? 'it wrote a file when its command had long ended' : 'it ended with its command',
        controlled: await exists(join(awaited, 'late')),
        control: 'it writes its file where its command waits for it',
      },
    };
  },
};

async function appears(path: string): Promise<boolean> {
  for (let waited = 0; waited < MAX_MS; waited += LOOK_MS) {
    if (await exists(path)) return true;
    await sleep(LOOK_MS);
  }
  return false;
}
