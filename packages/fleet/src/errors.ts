// Errors of the fleet, each with a message and what to do next.

import { defineErrors, errorEntry } from '@acode/sandbox';

/** Every error of the fleet, by code. */
export const FLEET_ERRORS = defineErrors({
  'ACODE-FLT-001': errorEntry<{ engine: string; reason: string }>({
    title: 'fleet engine not reached',
    message: c => `The fleet engine at ${c.engine} cannot be used: ${c.reason}.`,
    hint: () => 'Check that the server runs, the address, and the credentials. `docs/fleet.md` shows how to start one.',
    exit: 125,
    example: { engine: 'nats://127.0.0.1:4222', reason: 'connection refused' },
  }),
  'ACODE-FLT-002': errorEntry<{ engine: string; setting: string; found: string; needed: string }>({
    title: 'the server of the fleet is refused',
    message: c =>
      `The fleet engine at ${c.engine} is refused: ${c.setting} is ${c.found}, and acode needs ${c.needed}.`,
    hint: c => `Change ${c.setting} of the server, and restart it. \`docs/fleet.md\` has a configuration that passes.`,
    exit: 125,
    example: { engine: 'nats://127.0.0.1:4222', setting: 'the version', found: '2.9.10', needed: '2.12.3 or newer' },
  }),
  'ACODE-FLT-003': errorEntry<{ name: string; setting: string; found: string; needed: string }>({
    title: 'a stream of the fleet has other settings',
    message: c => `${c.name} exists on the server with ${c.setting} ${c.found}; acode needs ${c.needed}.`,
    hint: () =>
      'Another program or another version made it. Give this fleet a name of its own, or correct the setting.',
    exit: 125,
    example: { name: 'The stream ACODE_TASKS', setting: 'discard', found: 'old', needed: 'new' },
  }),
  'ACODE-FLT-004': errorEntry<{ what: string; value: string; rule: string }>({
    title: 'a name is invalid',
    message: c => `The ${c.what} ${JSON.stringify(c.value)} is invalid: ${c.rule}.`,
    hint: c => `Choose another ${c.what}.`,
    exit: 2,
    example: { what: 'tenant', value: 'a.b', rule: 'a tenant is 1 to 40 small letters, digits and hyphens' },
  }),
  'ACODE-FLT-005': errorEntry<{ pool: string; reason: string }>({
    title: 'the queue is full',
    message: c => `The task was not queued in the pool ${c.pool}: ${c.reason}.`,
    hint: () => 'Submit it again later with the same id, or add workers to the pool.',
    exit: 125,
    example: { pool: 'default', reason: 'the queue has 1,000,000 tasks' },
  }),
  'ACODE-FLT-006': errorEntry<{ operation: string; deadlineMs: number; reason: string }>({
    title: 'the fleet engine did not answer in time',
    message: c => `The fleet engine did not answer \`${c.operation}\` within ${c.deadlineMs / 1000} s: ${c.reason}.`,
    hint: () => 'A task is safe to submit again with the same id: it never runs because of that. Check the servers.',
    exit: 125,
    example: { operation: 'submit', deadlineMs: 30_000, reason: 'no responders' },
  }),
  'ACODE-FLT-007': errorEntry<{ what: string; bytes: number; maxBytes: number }>({
    title: 'too large for the fleet',
    message: c => `${c.what} has ${c.bytes} bytes; the fleet takes ${c.maxBytes}.`,
    hint: () => 'Leave out what the command does not need, such as dependencies and build output.',
    exit: 2,
    example: { what: 'The workspace', bytes: 9_000_000, maxBytes: 8_388_608 },
  }),
  'ACODE-FLT-008': errorEntry<{ field: string; reason: string }>({
    title: 'a task asks for what a task may not have',
    message: c => `The task is refused: ${c.field} ${c.reason}.`,
    hint: c => `Submit it without ${c.field}. A task names nothing of the machine that it will run on.`,
    exit: 125,
    example: { field: 'policy.mounts', reason: 'would name directories of the worker' },
  }),
  'ACODE-FLT-009': errorEntry<{ tenant: string; reason: string }>({
    title: 'the signature of a task is refused',
    message: c => `The task of tenant ${c.tenant} is refused: ${c.reason}.`,
    hint: () => 'Sign it with a key that the operator has registered for this tenant.',
    exit: 125,
    example: { tenant: 'acme', reason: 'no registered key of this tenant has signed it' },
  }),
  'ACODE-FLT-010': errorEntry<{ tenant: string; task: string; attempt: number }>({
    title: 'the claim of a task was lost',
    message: c => `Attempt ${c.attempt} of task ${c.task} of tenant ${c.tenant} belongs to another worker by now.`,
    hint: () => 'Nothing is to be done: its result was not written, and the other worker’s is.',
    exit: 125,
    example: { tenant: 'acme', task: 'build-7', attempt: 1 },
  }),
  'ACODE-FLT-011': errorEntry<{ tenant: string; task: string }>({
    title: 'the task is unknown',
    message: c => `The fleet has no task ${c.task} of tenant ${c.tenant}.`,
    hint: () => 'Results are kept for a week. Submit the task again with the same id.',
    exit: 1,
    example: { tenant: 'acme', task: 'build-7' },
  }),
  'ACODE-FLT-012': errorEntry<{ hash: string; reason: string }>({
    title: 'the workspace of a task cannot be used',
    message: c => `The workspace ${c.hash.slice(0, 12)} of the task cannot be used: ${c.reason}.`,
    hint: () => 'Submit the task again: that uploads the workspace once more.',
    exit: 125,
    example: { hash: '9f86d081884c7d659a2f', reason: 'the fleet does not have it any more' },
  }),
  'ACODE-FLT-013': errorEntry<{ pool: string; tenants: number; level: string }>({
    title: 'a pool of several tenants needs gVisor',
    message: c =>
      `The pool ${c.pool} serves ${c.tenants} tenants at level ${c.level}, which shares one kernel between them.`,
    hint: () =>
      'Set `level: gvisor` in the worker’s file, give each tenant a pool of its own, or write `shared_kernel: true` there.',
    exit: 125,
    example: { pool: 'default', tenants: 2, level: 'docker' },
  }),
  'ACODE-FLT-014': errorEntry<{ file: string; reason: string }>({
    title: 'the file of a worker is invalid',
    message: c => `${c.file} cannot be used: ${c.reason}.`,
    hint: () => '`docs/fleet.md` has the keys of this file, with an example.',
    exit: 2,
    example: { file: '/etc/acode/worker.yml', reason: 'tenants: expected a mapping of tenants' },
  }),
  'ACODE-FLT-015': errorEntry<{ task: string; attempts: number }>({
    title: 'the task was lost',
    message: c => `The task ${c.task} was lost: ${c.attempts} workers began it, and none could end it.`,
    hint: () => 'Look at the memory and the disk of the workers; then submit it under another id.',
    exit: 125,
    example: { task: 'build-7', attempts: 3 },
  }),
  'ACODE-FLT-016': errorEntry<{ task: string }>({
    title: 'the task was cancelled',
    message: c => `The task ${c.task} was cancelled.`,
    hint: () => 'Submit it under another id to run it after all.',
    exit: 130,
    example: { task: 'build-7' },
  }),
  'ACODE-FLT-017': errorEntry<{ task: string; reason: string }>({
    title: 'the result of a task cannot be trusted',
    message: c => `The result of task ${c.task} is refused: ${c.reason}.`,
    hint: () => 'Ask the operator whether the worker’s key is registered.',
    exit: 125,
    example: { task: 'build-7', reason: 'no known worker has signed it' },
  }),
  'ACODE-FLT-018': errorEntry<{ task: string; code: string; message: string; hint: string }>({
    title: 'a worker refused the task',
    message: c => `The command of task ${c.task} did not run (${c.code}): ${c.message}`,
    hint: c => c.hint,
    exit: 125,
    example: {
      task: 'build-7',
      code: 'ACODE-FLT-008',
      message: 'The task is refused: policy.image names an image that this pool does not list.',
      hint: 'Submit it without policy.image. A task names nothing of the machine that it will run on.',
    },
  }),
  'ACODE-FLT-019': errorEntry<{ file: string; reason: string }>({
    title: 'the file of a fleet’s client cannot be used',
    message: c => `${c.file} cannot be used: ${c.reason}.`,
    hint: () =>
      'Run `acode fleet up` on this machine, or ask the operator for your file (`acode fleet tenant add`). `docs/fleet.md` has its keys.',
    exit: 2,
    example: { file: '~/.config/acode/fleet.yml', reason: 'there is no such file' },
  }),
  'ACODE-FLT-020': errorEntry<{ problems: readonly string[] }>({
    title: 'there is no server for a fleet',
    message: c =>
      `This machine has no server that a fleet can stand on${c.problems.length === 0 ? '' : `: ${c.problems.join('; ')}`}.`,
    hint: () =>
      'acode downloads none. Put nats-server 2.12.3 or newer into the PATH (https://github.com/nats-io/nats-server/releases) or name it with `--nats-server`; or install PostgreSQL 13 or newer (`apt install postgresql`); or name a database with `--postgres postgres://…`.',
    exit: 125,
    example: { problems: ['/usr/sbin/nats-server is 2.9.10, and 2.12.3 or newer is needed'] },
  }),
  'ACODE-FLT-021': errorEntry<{ host: string }>({
    title: 'the fleet has no such host',
    message: c => `No worker with a lease is on a host called ${JSON.stringify(c.host)}.`,
    hint: () => 'See which there are: `acode fleet hosts`.',
    exit: 1,
    example: { host: 'builder-3' },
  }),
  'ACODE-FLT-022': errorEntry<{ file: string; reason: string; remedy: string }>({
    title: 'a fleet was not set up',
    message: c => `${c.file}: ${c.reason}.`,
    hint: c => c.remedy,
    exit: 2,
    example: {
      file: '~/.config/acode/worker.yml',
      reason: 'it is there already, with other content',
      remedy: 'Compare both; `--replace` writes the new one.',
    },
  }),
  'ACODE-FLT-023': errorEntry<{ engine: string }>({
    title: 'a connection of the fleet is not encrypted',
    message: c => `${c.engine} is on another machine, and the connection to it is not encrypted.`,
    hint: () =>
      'Give the server a certificate, and name it `tls://…` (NATS), `?sslmode=verify-full` (PostgreSQL) or `https://…` (gate). In a network that encrypts already, `unencrypted: true` beside the address of the server accepts it.',
    exit: 125,
    example: { engine: 'nats://10.0.0.1:4222' },
  }),
  'ACODE-FLT-030': errorEntry<{ reason: string }>({
    title: 'no gate of the fleet answers',
    message: c => `No gate of the fleet answers: ${c.reason}.`,
    hint: () => 'Ask the operator whether `acode gate` runs. A task is safe to submit again with the same id.',
    exit: 125,
    example: { reason: 'no responders' },
  }),
  'ACODE-FLT-031': errorEntry<{ tenant: string; reason: string }>({
    title: 'a gate refused a request',
    message: c => `The gate refused a request of tenant ${c.tenant}: ${c.reason}.`,
    hint: () =>
      'Ask the operator what the tenant may do (`acode fleet tenant list`), and compare the versions of acode.',
    exit: 125,
    example: { tenant: 'acme', reason: 'the fleet has no pool gpu' },
  }),
  'ACODE-FLT-032': errorEntry<{ tenant: string; reason: string }>({
    title: 'a tenant asks too much of a gate',
    message: c => `The gate did not take a request of tenant ${c.tenant}: ${c.reason} at once.`,
    hint: () => 'Do the same again later, with fewer requests at the same time. acode repeats it by itself for 30 s.',
    exit: 125,
    example: { tenant: 'acme', reason: 'too many requests' },
  }),
  'ACODE-FLT-033': errorEntry<{ file: string; reason: string }>({
    title: 'a file of a gate is invalid',
    message: c => `${c.file} cannot be used: ${c.reason}.`,
    hint: () => '`acode fleet tenant add` writes the files of a gate. `docs/fleet.md` has their keys.',
    exit: 2,
    example: { file: '/etc/acode/gate.yml', reason: 'there is no such file' },
  }),
  'ACODE-FLT-034': errorEntry<{ command: string }>({
    title: 'only the operator of the fleet may do that',
    message: c => `\`${c.command}\` needs the fleet’s server, and this file reaches its gates only.`,
    hint: () => 'Ask the operator, or name the operator’s file with `--file`.',
    exit: 2,
    example: { command: 'acode fleet hosts' },
  }),
  'ACODE-FLT-040': errorEntry<{ what: string; reason: string; remedy: string }>({
    title: 'the E2B server cannot start',
    message: c => `The E2B server cannot start with ${c.what}: ${c.reason}.`,
    hint: c => c.remedy,
    exit: 2,
    example: {
      what: '--host 0.0.0.0',
      reason: 'keys and files would cross the network without encryption',
      remedy: 'Add `--tls-cert` and `--tls-key`, or leave --host out: then only this machine reaches it.',
    },
  }),
  'ACODE-FLT-041': errorEntry<{ what: string; remedy: string }>({
    title: 'the E2B server refused a key, a token or a signature',
    message: c => `The E2B server refused the ${c.what}.`,
    hint: c => c.remedy,
    exit: 125,
    example: {
      what: 'API key: there is none',
      remedy: 'Set E2B_API_KEY to a key of this server: the operator has its file.',
    },
  }),
  'ACODE-FLT-042': errorEntry<{ sandbox: string }>({
    title: 'the E2B server has no such sandbox',
    message: c => `You have no sandbox ${c.sandbox} on this server, or not any more.`,
    hint: () => '`Sandbox.list()` shows those that run. A sandbox expires after its timeout: raise `timeoutMs`.',
    exit: 1,
    example: { sandbox: '"0b6c1c1e-8a2f-4f0e-9a55-0d1f6a3b2c4d"' },
  }),
  'ACODE-FLT-043': errorEntry<{ field: string; reason: string; remedy: string }>({
    title: 'the E2B server refused a request',
    message: c => `The request is refused: ${c.field} ${c.reason}.`,
    hint: c => c.remedy,
    exit: 2,
    example: {
      field: 'mcp',
      reason: 'is refused: the server has no gateway for MCP',
      remedy: 'Leave mcp out.',
    },
  }),
  'ACODE-FLT-044': errorEntry<{ bytes: number; maxBytes: number }>({
    title: 'a request to the E2B server is too large',
    message: c => `The request has ${c.bytes} bytes or more; the server takes ${c.maxBytes} of its kind.`,
    hint: () => 'Send a large file with `useOctetStream: true`, or in parts.',
    exit: 2,
    example: { bytes: 80_000_000, maxBytes: 67_108_864 },
  }),
  'ACODE-FLT-045': errorEntry<{ what: string; limit: number; remedy: string }>({
    title: 'a limit of the E2B server is reached',
    message: c => `Limit reached: ${c.limit} ${c.what}.`,
    hint: c => c.remedy,
    exit: 125,
    example: {
      what: 'sandboxes of this tenant',
      limit: 8,
      remedy: 'Kill one (`Sandbox.kill`), or wait until one expires.',
    },
  }),
  'ACODE-FLT-046': errorEntry<{ call: string }>({
    title: 'the E2B server does not have this call',
    message: c => `The E2B server of acode does not have ${c.call}.`,
    hint: () => '`docs/e2b.md` lists what it has, and what to use instead.',
    exit: 2,
    example: { call: 'POST /sandboxes/0b6c1c1e-8a2f-4f0e-9a55-0d1f6a3b2c4d/pause' },
  }),
  'ACODE-FLT-047': errorEntry<{ host: string }>({
    title: 'the E2B server is not what a request was sent to',
    message: c => `The request was sent to the host ${JSON.stringify(c.host)}, which this server is not.`,
    hint: () =>
      'Use the URL that the server printed. Behind a proxy, have it pass on a name of the certificate as Host.',
    exit: 125,
    example: { host: 'attacker.example' },
  }),
  'ACODE-FLT-050': errorEntry<{ sandbox: string; reason: string }>({
    title: 'a sandbox of the fleet does not answer',
    message: c => `The sandbox ${c.sandbox} does not answer: ${c.reason}.`,
    hint: () =>
      'See whether it exists: `acode fleet list`. Its worker may be connecting again: the same call can be repeated.',
    exit: 125,
    example: { sandbox: 'web-1', reason: 'no answer in time' },
  }),
  'ACODE-FLT-051': errorEntry<{ sandbox: string }>({
    title: 'the fleet has no such sandbox',
    message: c => `You have no sandbox ${c.sandbox} on the fleet, or not any more.`,
    hint: () => 'See which there are: `acode fleet list`. `acode fleet create` makes one.',
    exit: 1,
    example: { sandbox: 'web-1' },
  }),
  'ACODE-FLT-052': errorEntry<{ sandbox: string; reason: string }>({
    title: 'a sandbox of the fleet refused a call',
    message: c => `The sandbox ${c.sandbox} refused the call: ${c.reason}.`,
    hint: () =>
      'Use a key that the workers know for this tenant, a clock that is right, and the version of acode that the workers have.',
    exit: 125,
    example: { sandbox: 'web-1', reason: 'no registered key of this tenant has signed it' },
  }),
  'ACODE-FLT-053': errorEntry<{ sandbox: string; reason: string }>({
    title: 'the answer of a sandbox cannot be trusted',
    message: c => `The answer of the sandbox ${c.sandbox} is refused: ${c.reason}.`,
    hint: () => 'Ask the operator whether the worker’s key is registered.',
    exit: 125,
    example: { sandbox: 'web-1', reason: 'no known worker has signed it' },
  }),
  'ACODE-FLT-054': errorEntry<{ sandbox: string }>({
    title: 'the id of a sandbox is that of a task',
    message: c => `${c.sandbox} is the id of a task, and cannot be that of a sandbox.`,
    hint: () => 'Choose another id, or leave it out.',
    exit: 2,
    example: { sandbox: 'build-7' },
  }),
  'ACODE-FLT-055': errorEntry<{ sandbox: string; code: string; message: string; hint: string }>({
    title: 'a worker did not create the sandbox',
    message: c => `The sandbox ${c.sandbox} was not created (${c.code}): ${c.message}`,
    hint: c => c.hint,
    exit: 125,
    example: {
      sandbox: 'web-1',
      code: 'ACODE-FLT-008',
      message: 'The task is refused: policy.image names an image that this pool does not list.',
      hint: 'Submit it without policy.image. A task names nothing of the machine that it will run on.',
    },
  }),
});
