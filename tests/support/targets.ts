// The size of a test run, read from the environment here and nowhere else.

/**
 * Whether every behaviour runs on every engine, runtime and level, slow ones included: with ACODE_TEST_TARGETS=all, as the
 * long test suite (`npm run ci:long`) sets it. Without it, a behaviour runs on one engine, and on the others only where the
 * engine, its runtime or its kernel can change the outcome.
 */
export const everything = process.env['ACODE_TEST_TARGETS'] === 'all';
