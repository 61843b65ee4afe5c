// What the commands about images show a person.

import type { ImageInfo, PrunedImage, PulledImage } from '@acode/sandbox';
import { describe, expect, it } from 'vitest';
import { lookOf } from '../terminal/look.ts';
import { Output } from '../terminal/output.ts';
import { Recorder } from '../test-process.ts';
import { renderImages } from './images.ts';
import { renderPrune } from './prune-images.ts';
import { renderPulled } from './pull.ts';

const look = lookOf(new Output(new Recorder()), { env: {}, now: () => Date.parse('2026-01-02T03:04:05Z') }, false);
const A = `sha256:${'a'.repeat(64)}`;
const B = `sha256:${'b'.repeat(64)}`;

const image = (more: Partial<ImageInfo> = {}): ImageInfo => ({
  id: A,
  tags: ['node:20-alpine'],
  digests: [`node@${B}`],
  sizeBytes: 180_000_000,
  createdAt: '2025-12-01T00:00:00Z',
  pulledByAcode: true,
  pulledAt: '2025-12-31T03:04:05Z',
  lastUsedAt: '2026-01-01T03:04:05Z',
  containers: 0,
  ...more,
});

const pulled = (more: Partial<PulledImage> = {}): PulledImage => ({
  reference: 'node:20-alpine',
  id: A,
  digest: B,
  changed: true,
  sizeBytes: 180_000_000,
  durationMs: 1000,
  warnings: [],
  ...more,
});

describe('images', () => {
  it('have tag, digest, size, who pulled them and when they were used, and their sum', () => {
    const items = [image(), image({ tags: [], digests: [], pulledByAcode: false, lastUsedAt: null })];
    const text = renderImages({ items, totalBytes: 360_000_000, diskBytes: 200_000_000 }, look);
    expect(text).toMatch(/^IMAGE +DIGEST +SIZE +PULLED BY +LAST USED\n/);
    expect(text).toMatch(/node:20-alpine +sha256:b{12} +180 MB +acode +1 day ago\n/);
    expect(text).toMatch(/sha256:a{12} +sha256:a{12} +180 MB\n2 images, 360 MB in total, 200 MB on disk\.\n$/);
  });

  it('that there are none of are said to be none', () => {
    expect(renderImages({ items: [], totalBytes: 0, diskBytes: 0 }, look)).toBe('The engine has no images.\n');
  });
});

describe('a pull', () => {
  it('ends with what was pulled, what has moved and what could not be had', () => {
    const failed = [{ reference: 'evil/x', code: 'ACODE-SBX-010', message: 'Refused.', hint: 'Choose another.' }];
    const text = renderPulled(
      [pulled({ previousDigest: A, warnings: ['it moves'] }), pulled({ changed: false })],
      failed,
      look,
    );
    expect(text).toBe(
      [
        `✓ node:20-alpine ${B} (180 MB)`,
        `  the tag has moved: it was ${A}`,
        '  note: it moves',
        `✓ node:20-alpine ${B} (180 MB, was there)`,
        '✗ evil/x: Refused. ACODE-SBX-010',
        '  ╰▶ hint: Choose another.',
        '',
      ].join('\n'),
    );
  });

  it('cannot drive the terminal by a name', () => {
    expect(renderPulled([pulled({ reference: 'x\u001b]0;y\u0007' })], [], look)).not.toContain('\u001b');
  });
});

describe('a prune', () => {
  const one: PrunedImage = {
    reference: 'docker.io/library/x:1',
    id: A,
    sizeBytes: 5_000_000,
    lastUsedAt: '2025-12-01T03:04:05Z',
  };

  it('says what was removed, what stays and why, and what failed', () => {
    const report = {
      removed: [one],
      kept: [{ ...one, reason: 'a container uses it' }],
      failed: [{ ...one, reason: 'conflict' }],
      removedBytes: 5_000_000,
      dryRun: false,
    };
    const text = renderPrune(report, look);
    expect(text).toMatch(/x:1 +5\.0 MB +32 days ago +removed\n/);
    expect(text).toContain('kept: a container uses it');
    expect(text).toContain('failed: conflict');
    expect(text).toMatch(/Removed 1 image \(5\.0 MB\), 1 could not be removed\.\n$/);
    expect(renderPrune({ ...report, failed: [], dryRun: true }, look)).toContain('would be removed');
  });

  it('of nothing says so', () => {
    const nothing = { removed: [], kept: [], failed: [], removedBytes: 0, dryRun: false };
    expect(renderPrune(nothing, look)).toBe('There is no image that acode pulled.\n');
  });
});
