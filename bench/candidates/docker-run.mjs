// `docker run --rm` with the flags that come to the same container as a request of acode’s.
// @ts-check

import * as z from 'zod';

const requestSchema = z.looseObject({
  Image: z.string(),
  User: z.string(),
  WorkingDir: z.string(),
  Hostname: z.string(),
  Env: z.array(z.string()),
  HostConfig: z.looseObject({
    SecurityOpt: z.array(z.string()),
    NetworkMode: z.string(),
    Runtime: z.string().optional(),
    Mounts: z.array(z.looseObject({ Type: z.string(), Source: z.string(), Target: z.string(), ReadOnly: z.boolean() })),
    Tmpfs: z.record(z.string(), z.string()),
    ShmSize: z.number(),
    Memory: z.number(),
    MemorySwap: z.number(),
    NanoCpus: z.number(),
    PidsLimit: z.number(),
    OomScoreAdj: z.number(),
    Ulimits: z.array(z.looseObject({ Name: z.string(), Soft: z.number(), Hard: z.number() })),
  }),
});

const SECCOMP = 'seccomp=';

/**
 * The words before the command. The system call filter has to be in a file there: `seccompFile` is told its text.
 *
 * @param {unknown} request
 * @param {{ labels: Readonly<Record<string, string>>, seccompFile: (text: string) => string }} of
 */
export function dockerRunWords(request, { labels, seccompFile }) {
  const { Image, User, WorkingDir, Hostname, Env, HostConfig: host } = requestSchema.parse(request);
  const security = host.SecurityOpt.map(option =>
    option.startsWith(SECCOMP) ? SECCOMP + seccompFile(option.slice(SECCOMP.length)) : option,
  );
  return [
    ...'run --rm --pull never --init --read-only --cap-drop ALL --log-driver none --no-healthcheck'.split(' '),
    ...'--ipc private --cgroupns private --stop-signal SIGTERM'.split(' '),
    ...each('--entrypoint', ['']),
    ...each('--user', [User]),
    ...each('--workdir', [WorkingDir]),
    ...each('--hostname', [Hostname]),
    ...each('--network', [host.NetworkMode]),
    ...each('--memory', [String(host.Memory)]),
    ...each('--memory-swap', [String(host.MemorySwap)]),
    ...each('--shm-size', [String(host.ShmSize)]),
    ...each('--cpus', [String(host.NanoCpus / 1e9)]),
    ...each('--pids-limit', [String(host.PidsLimit)]),
    ...each('--oom-score-adj', [String(host.OomScoreAdj)]),
    ...(host.Runtime === undefined ? [] : ['--runtime', host.Runtime]),
    ...each('--security-opt', security),
    ...each('--env', Env),
    ...each(
      '--ulimit',
      host.Ulimits.map(({ Name, Soft, Hard }) => `${Name}=${Soft}:${Hard}`),
    ),
    ...each(
      '--tmpfs',
      Object.entries(host.Tmpfs).map(([target, options]) => `${target}:${options}`),
    ),
    ...each('--mount', host.Mounts.map(mountWord)),
    ...each(
      '--label',
      Object.entries(labels).map(([name, value]) => `${name}=${value}`),
    ),
    Image,
  ];
}

/** @param {{ Type: string, Source: string, Target: string, ReadOnly: boolean }} mount */
function mountWord({ Type, Source, Target, ReadOnly }) {
  return `type=${Type},source=${Source},target=${Target}${ReadOnly ? ',readonly' : ''}`;
}

/**
 * @param {string} flag
 * @param {readonly string[]} values
 */
function each(flag, values) {
  return values.flatMap(value => [flag, value]);
}
