import { defineConfig } from 'vitest/config';
import { BaseSequencer } from 'vitest/node';
import type { TestSpecification } from 'vitest/node';
import { PROGRAM_MODULE, egressProgram } from './scripts/egress-program.mjs';
import { ADAPTER_MODULE, swarmAdapter } from './scripts/swarm-adapter.mjs';
import { everything } from './tests/support/targets.ts';

// Tests of the library run on its sources, so that coverage is of them; tests/packaging runs what is really published.
const alias = {
  '@acode/swarm': new URL('packages/swarm/src/index.ts', import.meta.url).pathname,
  '@acode/agents': new URL('packages/agents/src/index.ts', import.meta.url).pathname,
  '@acode/sandbox/e2b': new URL('packages/sandbox/src/e2b/index.ts', import.meta.url).pathname,
  '@acode/sandbox': new URL('packages/sandbox/src/index.ts', import.meta.url).pathname,
  '@acode/fleet': new URL('packages/fleet/src/index.ts', import.meta.url).pathname,
};

// `.ci/run` builds first, and Node loads what was built faster than vitest loads sources. By hand the sources are tested, because
// nobody builds before every test.
const BUILT =
  process.env['ACODE_TEST_BUILT'] === undefined || everything
    ? []
    : [
        {
          name: 'built',
          enforce: 'pre' as const,
          resolveId(source: string): string | null {
            const [, room, path] = /packages\/(sandbox|agents|swarm|fleet|cli)\/src\/(.+)\.ts$/.exec(source) ?? [];
            return path ? new URL(`packages/${room}/dist/${path}.js`, import.meta.url).pathname : null;
          },
        },
      ];

// A worker thread loads no sources of TypeScript. It gets its program as text, bundled once from what is tested.
let egressText: Promise<string> | null = null;
const WORKER = {
  name: 'worker-of-sources',
  enforce: 'pre' as const,
  async load(id: string): Promise<string | null> {
    if (!PROGRAM_MODULE.test(id)) return null;
    egressText ??= egressProgram('esm').then(({ text }) => `data:text/javascript,${encodeURIComponent(text)}`);
    return `export function egressProgram() { return new URL(${JSON.stringify(await egressText)}); }`;
  },
};

// These measure time or memory, or remove what every other test uses: nothing else may run beside them.
const ALONE = [
  'tests/{cli/engine-faults,engine-trouble/restart,exits/exits,files/large}.test.ts',
  'tests/{project-image/unchanged,trace/durations}.test.ts',
  // Every session removes what is past its time, whoever made it, and prints that.
  'tests/ownership/{belongings,images,killed,prompt,told,uninstall}.test.ts',
];

// These use what there is once: the caches of a user, a registry that is slowed down, the engine that is restarted; or keep the
// machine busy themselves. One file at a time, and other tests may run beside them: .ci/run starts them as a second process.
const SHARED = [
  'tests/{caches,images}/**/*.test.ts',
  'tests/{engine-trouble/failures,faults/faults,governance/fail-closed,pool/restart,project-image/at-once,serve/caches}.test.ts',
];

// What takes long beside what it shows that nothing else does: in the long test suite alone (`npm run ci:long`).
const PATIENT = everything
  ? []
  : [
      'tests/{audit/parallel,doctor/attack-levels,egress/languages,engine-trouble/restart,files/on-host}.test.ts',
      'tests/{fleet/gate-figures,forks/package-managers,services/postgres}.test.ts',
      'tests/swarm/state-file.test.ts',
      'tests/{exits/exits,images/at-once,files/large,project-image/at-once,project-image/skipping}.test.ts',
    ];

// Coding agents from npm, which `npm run ci:long agents` installs.
const AGENTS = process.env['ACODE_AGENTS'] === undefined ? ['tests/agents/{agents,hooks,login,musl}.test.ts'] : [];

// Both agents of the swarm’s tests, which `npm run ci:long swarm` asks for.
const BOTH_AGENTS = (process.env['ACODE_SWARM_AGENTS'] ?? '').includes(',') ? [] : ['tests/swarm/eight-agents.test.ts'];

// Small files that take long: vitest would start them last, and everything else would wait for them.
const LONG =
  /tests\/(?:conformance\/|pool\/engines|cli\/(?:scans|flags)|serve\/(?:ends|same|trust)|sessions\/(?:elsewhere|hostile)|project-image\/shipped)/;

/** Begins with what takes long. */
class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter(file => !isLong(file))];
  }
}

function isLong({ moduleId }: TestSpecification): boolean {
  return LONG.test(moduleId);
}

// These run as root, who is to be refused: .ci/run starts them apart from all others, which run as an ordinary user.
const AS_ROOT = ['tests/root/**/*.test.ts'];

// What needs an engine.
const real = {
  server: { deps: { external: [/\/packages\/(?:sandbox|agents|swarm|fleet|cli)\/dist\//] } },
  include: ['tests/**/*.test.ts'],
  // What must be fast says so itself; this is only for what hangs, on the slowest machine.
  testTimeout: 150_000,
  hookTimeout: 150_000,
  globalSetup: ['tests/engines.setup.ts'],
  setupFiles: ['tests/isolate.setup.ts'],
};

// Decisions that everything else trusts: every line and every branch of them is reached by the unit tests alone.
const WHOLE = {
  'packages/sandbox/src/lifecycle/session.ts': { 100: true },
  'packages/sandbox/src/isolation/plan.ts': { 100: true },
  'packages/sandbox/src/policy/resolve.ts': { 100: true },
  'packages/sandbox/src/policy/risk.ts': { 100: true },
  'packages/sandbox/src/isolation/docker/request.ts': { 100: true },
};

// The other components that decide: as many lines of each as were asked for, or more where the unit tests reach more. What works on
// an engine, they reach hardly at all.
const FLOORS = {
  'packages/sandbox/src/contract/{audit,caches,changes,denial-schema,denials,policy,redact,result,units}.ts': {
    lines: 100,
  },
  'packages/sandbox/src/contract/{error-table,errors}.ts': { lines: 95 },
  'packages/sandbox/src/workspace/{locate,mounts,protected-paths}.ts': { lines: 95 },
  'packages/sandbox/src/policy/limits.ts': { lines: 100 },
  'packages/sandbox/src/policy/{images,network,pull}.ts': { lines: 95 },
  'packages/sandbox/src/lifecycle/{orphans,removal,slots}.ts': { lines: 100 },
  'packages/sandbox/src/isolation/docker/images/pull.ts': { lines: 90 },
  'packages/sandbox/src/images/pulls.ts': { lines: 90 },
};

const COMPONENTS = { ...WHOLE, ...FLOORS };

// All tests together, on every engine, reach nine lines of ten.
const thresholds = everything ? { lines: 90, ...COMPONENTS } : COMPONENTS;

// What a swarm’s sandboxes run is bundled once, too.
let adapterText: Promise<string> | null = null;
const ADAPTER = {
  name: 'adapter-of-sources',
  enforce: 'pre' as const,
  async load(id: string): Promise<string | null> {
    if (!ADAPTER_MODULE.test(id) || id.includes('/dist/')) return null;
    adapterText ??= swarmAdapter().then(({ text }) => text);
    return `export async function adapterProgram() { return ${JSON.stringify(await adapterText)}; }`;
  },
};

export default defineConfig({
  resolve: { alias },
  plugins: [WORKER, ADAPTER],
  test: {
    sequence: { sequencer: LongFirst },
    // As the timeouts of tests: only for what never happens, on the slowest machine.
    expect: { poll: { timeout: 45_000 } },
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['packages/*/src/**/*.test.ts', 'bench/**/*.test.ts'],
          globalSetup: ['tests/temporary.setup.ts'],
          // Every module is loaded once for each worker, not once for each file: none keeps anything that another test could notice.
          isolate: false,
          // On two cores vitest would leave one of them idle.
          maxWorkers: '100%',
          // As above: only for what hangs, on the slowest machine.
          testTimeout: 60_000,
        },
      },
      // Three files at a time: most of a test’s time is the engine’s.
      {
        extends: true,
        plugins: BUILT,
        test: {
          ...real,
          name: 'real',
          maxWorkers: 3,
          exclude: [...ALONE, ...SHARED, ...PATIENT, ...AS_ROOT, ...AGENTS, ...BOTH_AGENTS],
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        plugins: BUILT,
        test: {
          ...real,
          name: 'shared',
          include: SHARED,
          exclude: [...ALONE, ...PATIENT],
          fileParallelism: false,
          sequence: { groupOrder: 2 },
        },
      },
      {
        extends: true,
        plugins: BUILT,
        test: {
          ...real,
          name: 'alone',
          include: ALONE,
          exclude: PATIENT,
          fileParallelism: false,
          sequence: { groupOrder: 3 },
        },
      },
      {
        extends: true,
        test: { ...real, name: 'root', include: AS_ROOT, globalSetup: [], sequence: { groupOrder: 4 } },
      },
    ],
    coverage: {
      provider: 'v8',
      // Counting every file takes longer than the unit tests themselves.
      include: everything ? ['packages/*/src/**/*.ts'] : Object.keys(COMPONENTS),
      exclude: ['**/*.test.ts'],
      reporter: ['text-summary', 'json-summary'],
      thresholds,
    },
  },
});
