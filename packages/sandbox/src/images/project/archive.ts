// The context of a build as one stream, made while it is sent: the template, and the project in a folder beside it.

import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { changed, contentOf } from './contents.ts';
import type { Context } from './context.ts';
import { Pauses } from '../../lifecycle/pauses.ts';
import { gathered, tarEnd, tarPadding } from '../../workspace/archive/blocks.ts';
import { tarHeader } from '../../workspace/archive/context-tar.ts';
import { PROJECT_FOLDER, TEMPLATE_NAME } from './template.ts';

const PORTION = 128 * 1024;

/** What a build is sent. */
export interface Archive {
  readonly template: string;
  readonly context: Context;
  /** The hash that each file must still have, since the image’s checksum promises it; none for files made just now. */
  readonly hashes: ReadonlyMap<string, string> | null;
}

/** The archive as bytes, no faster than they are read. Fails where a file is not what was summed up. */
export function archiveStream(archive: Archive): Readable {
  return Readable.from(gathered(pieces(archive), PORTION), { objectMode: false });
}

async function* pieces({ template, context, hashes }: Archive): AsyncGenerator<Buffer, void, undefined> {
  const text = Buffer.from(template, 'utf8');
  yield tarHeader({ path: TEMPLATE_NAME, kind: 'file', mode: 0o644, size: text.length });
  yield Buffer.concat([text, tarPadding(text.length)]);
  yield tarHeader({ path: PROJECT_FOLDER, kind: 'directory', mode: 0o755, size: 0 });
  // Whoever reads may be as fast as the disk; who cancels destroys the stream.
  const pauses = new Pauses(null);
  for (const entry of context.entries) {
    if (pauses.isDue) await pauses.take();
    yield tarHeader({ ...entry, path: `${PROJECT_FOLDER}/${entry.path}` });
    if (entry.kind !== 'file') continue;
    const hash = createHash('sha256');
    for await (const chunk of contentOf(context.root, entry)) {
      hash.update(chunk);
      yield chunk;
    }
    if (hashes && hash.digest('hex') !== hashes.get(entry.path)) throw changed(entry.path);
    yield tarPadding(entry.size);
  }
  yield tarEnd();
}
