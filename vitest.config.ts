import { defineConfig } from 'vitest/config';

// Tests of the library run on its sources, so that coverage is of them; tests/packaging runs what is really published.
const alias = { '@acode/sandbox': new URL('packages/sandbox/src/index.ts', import.meta.url).pathname };

export default defineConfig({
  resolve: { alias },
  test: {
    projects: [
      {
        extends: true,
        test: { name: 'unit', include: ['packages/*/src/**/*.test.ts'], globalSetup: ['tests/temporary.setup.ts'] },
      },
      {
        extends: true,
        test: {
          name: 'real',
          include: ['tests/**/*.test.ts'],
          // One file at a time: they share the engines and the cores, and some measure time.
          fileParallelism: false,
          testTimeout: 60_000,
          hookTimeout: 60_000,
          globalSetup: ['tests/engines.setup.ts'],
          setupFiles: ['tests/isolate.setup.ts'],
        },
      },
    ],
    coverage: {
      provider: 'v8',
      include: ['packages/*/src/**/*.ts'],
      exclude: ['**/*.test.ts'],
      reporter: ['text-summary', 'json-summary'],
      thresholds: {
        lines: 90,
        'packages/sandbox/src/lifecycle/names.ts': { 100: true },
        'packages/sandbox/src/isolation/plan.ts': { 100: true },
        'packages/sandbox/src/isolation/docker/request.ts': { 100: true },
      },
    },
  },
});
