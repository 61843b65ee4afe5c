// Every command has its form for programs, and none draws where nobody looks.

import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { describe, expect, it } from 'vitest';
import { buildProgram, calledAs } from '../../packages/cli/src/program.ts';
import { profileLimits } from '../../packages/sandbox/src/policy/profiles.ts';
import { Bench } from '../cli/bench.ts';
import { images, mainEngine, withoutEngines } from '../support/engines.ts';

const RUN = 'schema exitCode stdout stderr dropped timedOut oomKilled denials sandboxId containerId level';
const MORE = 'image durationMs timings warm riskyChanges changed scan correlationId';

// How each command is called, the schema it answers with, and what is in that for ever: fields may be added, none goes.
const ERROR = 'schema code message hint context correlationId';
const FORMS: Readonly<Record<string, readonly [argv: readonly string[], schema: string, fields: string]>> = {
  'sandbox status': [
    [],
    'acode.status/1',
    'schema available engine sandboxes level defaultImage cacheVolumes workspace',
  ],
  'fork list': [[], 'acode.forks/1', 'schema items'],
  'fork diff': [['none'], 'acode.error/1', ERROR],
  'fork apply': [['none', '--check'], 'acode.error/1', ERROR],
  'fork history': [['none'], 'acode.error/1', ERROR],
  'fork undo': [['none'], 'acode.error/1', ERROR],
  'fork snapshot': [['name'], 'acode.error/1', ERROR],
  'fork create': [['--from=none'], 'acode.error/1', ERROR],
  'fork export': [['--output=/nonexistent/file', 'none'], 'acode.error/1', ERROR],
  'fork import': [['/nonexistent/file'], 'acode.error/1', ERROR],
  'fork discard': [['none'], 'acode.error/1', ERROR],
  'masks list': [[], 'acode.masks/1', 'schema masked warnings forgotten'],
  'masks rescan': [[], 'acode.masks/1', 'schema masked warnings forgotten'],
  'sandbox exec': [['--', 'true'], 'acode.run/1', `${RUN} ${MORE}`],
  'sandbox list': [[], 'acode.list/1', 'schema items'],
  'sandbox inspect': [['none'], 'acode.error/1', ERROR],
  'sandbox cleanup': [['--dry-run'], 'acode.cleanup/1', 'schema removed failed kept belongings dryRun'],
  'sandbox logs': [[], 'acode.logs/1', 'schema items'],
  'sandbox pull': [['example.invalid/none:1'], 'acode.error/1', ERROR],
  'sandbox images': [[], 'acode.images/1', 'schema items'],
  'sandbox prune-images': [['--dry-run'], 'acode.prune-images/1', 'schema removed kept failed removedBytes dryRun'],
  'sandbox build-image': [['--base=example.invalid/none:1'], 'acode.error/1', ERROR],
  // What they do with a sandbox that there is, tests/sessions shows.
  'sandbox create': [['--image=example.invalid/none:1'], 'acode.error/1', ERROR],
  'sandbox diff': [['none'], 'acode.error/1', ERROR],
  'sandbox apply': [['none', '--check'], 'acode.error/1', ERROR],
  'sandbox shell': [['none'], 'acode.error/1', ERROR],
  'sandbox cp': [['none:/x', 'y'], 'acode.error/1', ERROR],
  'sandbox forward': [['none', '80'], 'acode.error/1', ERROR],
  'sandbox keep': [['none', '--for=1h'], 'acode.error/1', ERROR],
  'sandbox kill': [['none'], 'acode.error/1', ERROR],
  mcp: [['--print-config=codex'], 'acode.mcp-config/1', 'schema client command file text withoutShell'],
  run: [['true'], 'acode.run/1', `${RUN} ${MORE}`],
  // One that serves does not end; tests/serve shows it.
  serve: [['--min=9', '--max=3'], 'acode.error/1', ERROR],
  'serve status': [[], 'acode.serve-status/1', 'schema workspace state reason setting server'],
  'serve stop': [[], 'acode.serve-stop/1', 'schema workspace stopped reason'],
  explain: [['--', 'true'], 'acode.explain/1', 'schema command policy level spec engineRequest warm warmReason notes'],
  trust: [['--show'], 'acode.trust/1', 'schema workspace file hash trusted needsTrust'],
  doctor: [[], 'acode.doctor/1', 'schema checks ok durationMs'],
  changes: [[], 'acode.changes/1', 'schema workspace since items'],
  'audit tail': [[], 'acode.audit/1', 'schema items'],
  'audit show': [['1'], 'acode.error/1', ERROR],
  'audit verify': [[], 'acode.audit-verify/1', 'schema'],
  'audit export': [[], 'acode.audit/1', 'schema items'],
  'docker list': [[], 'acode.list/1', 'schema items'],
  'docker inspect': [['none'], 'acode.error/1', ERROR],
  'docker cleanup': [['--dry-run'], 'acode.cleanup/1', 'schema removed failed kept belongings dryRun'],
  'docker logs': [[], 'acode.logs/1', 'schema items'],
  uninstall: [[], 'acode.uninstall/1', 'schema engine engineProblem sessions directories purged'],
  completion: [['bash'], 'acode.completion/1', 'schema shell script'],
  'completion install': [['bash'], 'acode.completion-install/1', 'schema shell file outcome next'],
  stats: [[], 'acode.stats/1', 'schema from to commands failed refused warm cold kpi_events'],
  // What they do with a project that there is, tests/cli shows.
  build: [['--with=cargo'], 'acode.error/1', ERROR],
  test: [['--with=cargo'], 'acode.error/1', ERROR],
  'config get': [[], 'acode.config/1', 'schema items'],
  'config set': [['sandbox.defaults.memory_mb', '512'], 'acode.config/1', 'schema file changed created loosens'],
  'config unset': [['sandbox.images.default'], 'acode.config/1', 'schema file changed created loosens'],
  'config check': [[], 'acode.config/1', 'schema ok items'],
  'config path': [[], 'acode.config/1', 'schema items'],
  'config edit': [[], 'acode.error/1', ERROR],
  // What agents, hooks and swarms do where there are some, tests/agents, packages/cli and tests/swarm show.
  'agent list': [[], 'acode.agents/1', 'schema items'],
  'agent show': [['claude'], 'acode.agent-preset/1', 'schema preset changedBy'],
  'egress presets': [[], 'acode.egress-presets/1', 'schema items'],
  'egress log': [[], 'acode.egress-log/1', 'schema items'],
  'egress pending': [[], 'acode.egress-pending/1', 'schema items'],
  'egress test': [
    ['https://pypi.org/'],
    'acode.egress-test/1',
    'schema host port network list setBy inspected allowed reason entry text',
  ],
  'hook status': [[], 'acode.hook-status/1', 'schema items'],
  login: [[], 'acode.logins/1', 'schema items'],
  logout: [['none'], 'acode.logout/1', 'schema name removed revoked'],
  'swarm list': [[], 'acode.swarm-list/1', 'schema items'],
  'agent update': [['none'], 'acode.error/1', ERROR],
  agent: [['cluade'], 'acode.error/1', ERROR],
  'egress allow': [['00000000'], 'acode.error/1', ERROR],
  'hook install': [['none'], 'acode.error/1', ERROR],
  'hook remove': [['none'], 'acode.error/1', ERROR],
  'hook exec': [['none'], 'acode.error/1', ERROR],
  'mcp wrap': [['--', 'true'], 'acode.error/1', ERROR],
  init: [[], 'acode.init/1', 'schema file outcome doctor next'],
  'sandbox snapshot': [['none'], 'acode.error/1', ERROR],
  'swarm add': [['none'], 'acode.error/1', ERROR],
  'swarm run': [[], 'acode.error/1', ERROR],
  'swarm resume': [[], 'acode.error/1', ERROR],
  'swarm status': [[], 'acode.error/1', ERROR],
  'swarm stop': [[], 'acode.error/1', ERROR],
  'swarm pause': [[], 'acode.error/1', ERROR],
  'swarm continue': [[], 'acode.error/1', ERROR],
  'swarm retry': [['none'], 'acode.error/1', ERROR],
  'swarm logs': [['none'], 'acode.error/1', ERROR],
  'swarm review': [[], 'acode.error/1', ERROR],
  'swarm merge': [[], 'acode.error/1', ERROR],
  'swarm repair': [[], 'acode.error/1', ERROR],
  'swarm discard': [[], 'acode.error/1', ERROR],
  'swarm attach': [['none'], 'acode.error/1', ERROR],
  // Without the file that says where the fleet is; tests/fleet shows the rest.
  'fleet up': [['--nats-server=/nonexistent/file'], 'acode.error/1', ERROR],
  'fleet join': [['/nonexistent/file'], 'acode.error/1', ERROR],
  'fleet serve': [[], 'acode.error/1', ERROR],
  'fleet run': [['true'], 'acode.error/1', ERROR],
  'fleet submit': [['true'], 'acode.error/1', ERROR],
  'fleet logs': [['none'], 'acode.error/1', ERROR],
  'fleet cancel': [['none'], 'acode.error/1', ERROR],
  'fleet create': [['--empty'], 'acode.error/1', ERROR],
  'fleet exec': [['--', 'none'], 'acode.error/1', ERROR],
  'fleet list': [[], 'acode.error/1', ERROR],
  'fleet kill': [['none'], 'acode.error/1', ERROR],
  'fleet status': [[], 'acode.error/1', ERROR],
  'fleet hosts': [[], 'acode.error/1', ERROR],
  'fleet drain': [['none'], 'acode.error/1', ERROR],
  'fleet doctor': [[], 'acode.fleet-doctor/1', 'schema checks'],
  'fleet tenant list': [[], 'acode.fleet-tenants/1', 'schema directory fleet items'],
  'fleet tenant add': [['acme'], 'acode.error/1', ERROR],
  'fleet tenant remove': [['acme'], 'acode.error/1', ERROR],
  gate: [[], 'acode.error/1', ERROR],
  worker: [[], 'acode.error/1', ERROR],
};

// Does something itself and has commands below it.
const BOTH = ['serve', 'completion', 'agent', 'mcp'];
// acode starts them for itself, detached and without output; and a hook of Claude Code, which has a form of its own for answers.
const INTERNAL = ['scan-workspace', 'swarm orchestrate', 'hook auto-approve'];

function leavesOf(command: CommandUnknownOpts): string[] {
  const below = command.commands.flatMap(leavesOf);
  const name = calledAs(command).replace(/^acode /, '');
  return below.length > 0 && !BOTH.includes(name) ? below : [name, ...below];
}

describe.skipIf(withoutEngines)('the command line', () => {
  it('has no command that this table does not know', () => {
    const program = buildProgram(() => Promise.resolve(), { text: '', width: null });
    const called = leavesOf(program).filter(name => !INTERNAL.includes(name));
    expect(called.sort()).toEqual(Object.keys(FORMS).sort());
  });

  it.each(Object.entries(FORMS))(
    '%s answers --json with one object of its schema',
    async (name, [argv, schema, fields]) => {
      await using bench = await Bench.at(mainEngine);
      const before = argv[0] === '--' ? ['--json', ...argv] : [...argv.slice(0, -1), '--json', ...argv.slice(-1)];
      const { stdout } = await bench.call([...name.split(' '), ...before]);
      const object = JSON.parse(stdout.toString()) as Record<string, unknown>;
      expect(object['schema']).toBe(schema);
      expect(Object.keys(object)).toEqual(expect.arrayContaining(fields.split(' ')));
    },
  );

  it('draws no progress where standard error is no terminal, however long it takes', async () => {
    await using bench = await Bench.at({ socket: '' });
    const socket = join(bench.workspace, 'hung');
    const hung = createServer(() => undefined);
    await new Promise<void>(resolve => hung.listen(socket, resolve));
    const { stdout, stderr, ms } = await bench.call(['sandbox', 'status', '--socket', socket]);
    hung.close();
    expect(ms).toBeGreaterThan(1200);
    expect(stderr).toBe('');
    expect(stdout.toString()).not.toMatch(/[\r\u001b]/);
  });

  it('prefers an option to the user’s file, and the file to the built-in value', async () => {
    await using bench = await Bench.at(mainEngine);
    const limits = 'cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; ulimit -n';
    const printed = async (...options: string[]): Promise<string[]> =>
      (await bench.exec([...options, '--image', images.busybox, limits])).stdout.toString().trim().split('\n');
    const { memoryBytes, openFiles } = profileLimits('dev', { cpus: cpus().length, memoryBytes: totalmem() });
    expect(await printed()).toEqual([String(memoryBytes), String(openFiles)]);
    const file = join(bench.workspace, 'mine.yml');
    await writeFile(file, 'sandbox: { defaults: { memory_mb: 100, open_files: 99 } }\n');
    expect(await printed('--config', file)).toEqual([String(100 * 1024 ** 2), '99']);
    expect(await printed('--config', file, '--memory', '64')).toEqual([String(64 * 1024 ** 2), '99']);
  });
});
