import { defineConfig } from 'vitest/config';

// Tests of the library run on its sources, so that coverage is of them; tests/packaging runs what is really published.
const alias = { '@acode/sandbox': new URL('packages/sandbox/src/index.ts', import.meta.url).pathname };

export default defineConfig({
  resolve: { alias },
  test: {
    projects: [
      { extends: true, test: { name: 'unit', include: ['packages/*/src/**/*.test.ts'] } },
      {
        extends: true,
        test: {
          name: 'real',
          include: ['tests/**/*.test.ts'],
          testTimeout: 60_000,
          hookTimeout: 60_000,
          globalSetup: ['tests/engines.setup.ts'],
        },
      },
    ],
    coverage: {
      provider: 'v8',
      include: ['packages/*/src/**/*.ts'],
      exclude: ['**/*.test.ts'],
      reporter: ['text-summary', 'json-summary', 'html'],
    },
  },
});
