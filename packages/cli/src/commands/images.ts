// `acode sandbox images`: lists the images of the engine, their size, and which of them acode pulled.

import type { ImageInfo, ImageList } from '@acode/sandbox';
import { Command } from '@commander-js/extra-typings';
import type { Call, Perform } from '../call.ts';
import { age } from '../terminal/age.ts';
import { plural, shortId } from '../terminal/text.ts';
import type { Look } from '../terminal/look.ts';
import { sizeText } from '../terminal/pull-lines.ts';
import { table } from '../terminal/table.ts';

// Where there is no room for everything, the name is what tells images apart.
const GIVE_WAY = ['DIGEST', 'PULLED BY', 'LAST USED'];

/** The command. */
export function imagesCommand(perform: Perform) {
  return new Command('images')
    .description('List the images of the engine: tag, digest, size, who pulled them')
    .action((_options, command) => perform(command, showImages));
}

async function showImages(call: Call): Promise<number> {
  const { signal } = call.interruption;
  const list = await call.withObserver(observer =>
    call.progress.during('Asking the engine…', observer.images.list({ signal })),
  );
  await call.print('acode.images/1', list, look => renderImages(list, look));
  return 0;
}

/** The images for a person. */
export function renderImages({ items, totalBytes, diskBytes }: ImageList, look: Look): string {
  if (items.length === 0) return 'The engine has no images.\n';
  const rows = items.map(item => [
    item.tags.join(', ') || shortId(item.id),
    shortId(digestOf(item)),
    sizeText(item.sizeBytes),
    item.pulledByAcode ? 'acode' : '',
    item.lastUsedAt === null ? '' : age(item.lastUsedAt, look.now),
  ]);
  const disk = diskBytes === null ? '' : `, ${sizeText(diskBytes)} on disk`;
  const count = plural(items.length, 'image');
  const titles = ['IMAGE', 'DIGEST', 'SIZE', 'PULLED BY', 'LAST USED'];
  return `${table(titles, rows, look, GIVE_WAY)}${count}, ${sizeText(totalBytes)} in total${disk}.\n`;
}

function digestOf({ digests, id }: ImageInfo): string {
  return digests[0]?.split('@')[1] ?? id;
}
