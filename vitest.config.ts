import { defineConfig } from 'vitest/config';

// Tests of the library run on its sources, so that coverage is of them; tests/packaging runs what is really published.
const alias = { '@acode/sandbox': new URL('packages/sandbox/src/index.ts', import.meta.url).pathname };

// These measure time or memory, or break things on purpose: nothing else may run beside them.
const ALONE = [
  'tests/{audit,caches,engine-client,engine-trouble,exits,faults,images,ownership}/**/*.test.ts',
  'tests/{attacks/resources,cli/streams,cli/engine-faults,project-image/unchanged}.test.ts',
];

// What needs an engine.
const real = {
  include: ['tests/**/*.test.ts'],
  // What must be fast says so itself; this is only for what hangs, on the slowest machine.
  testTimeout: 150_000,
  hookTimeout: 150_000,
  globalSetup: ['tests/engines.setup.ts'],
  setupFiles: ['tests/isolate.setup.ts'],
};

const thresholds = {
  lines: 90,
  'packages/sandbox/src/lifecycle/names.ts': { 100: true },
  'packages/sandbox/src/isolation/plan.ts': { 100: true },
  'packages/sandbox/src/policy/guard.ts': { 100: true },
  'packages/sandbox/src/policy/governance.ts': { 100: true },
  'packages/sandbox/src/isolation/docker/request.ts': { 100: true },
};

export default defineConfig({
  resolve: { alias },
  test: {
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['packages/*/src/**/*.test.ts', 'bench/**/*.test.ts'],
          globalSetup: ['tests/temporary.setup.ts'],
        },
      },
      // Two files at a time: most of a test’s time is the engine’s.
      { extends: true, test: { ...real, name: 'real', maxWorkers: 2, exclude: ALONE, sequence: { groupOrder: 1 } } },
      {
        extends: true,
        test: { ...real, name: 'alone', include: ALONE, fileParallelism: false, sequence: { groupOrder: 2 } },
      },
    ],
    coverage: {
      provider: 'v8',
      include: ['packages/*/src/**/*.ts'],
      exclude: ['**/*.test.ts'],
      reporter: ['text-summary', 'json-summary'],
      reportOnFailure: true,
      // A part of the tests covers a part: the whole is held to them once all parts are put together.
      ...(process.env['ACODE_TEST_PART'] ? {} : { thresholds }),
    },
  },
});
