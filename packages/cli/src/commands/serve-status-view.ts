// View of `acode serve status`. Loaded by it only.

import type { ServeSetting } from '@acode/sandbox';
import type { ServerState } from '../serve/state.ts';
import type { Look } from '../terminal/look.ts';
import { fields } from '../terminal/table.ts';
import { oneLine } from '../terminal/text.ts';

const NO_CACHES = 'Commands with caches (npm, pip, …) do not use it; with --no-caches they do.';

/** What `acode serve status` reports. */
export interface ServeStatus {
  readonly workspace: string;
  /** `ready`: it runs and a sandbox is warm. `silent`: its process is there and does not answer. */
  readonly state: 'ready' | 'running' | 'silent' | 'not running';
  /** Why no sandbox is warm, or why none runs. */
  readonly reason: string;
  readonly setting: ServeSetting;
  readonly server: Omit<ServerState, 'state' | 'reason'> | null;
}

/** The status in words. */
export function renderServeStatus({ workspace, state, reason, setting, server }: ServeStatus, look: Look): string {
  const { bold } = look.colours;
  const warm = server?.sandboxes.map(({ image, count }) => `${count}${image === '' ? '' : ` of ${image}`}`) ?? [];
  return fields(
    [
      ['Server', bold(state)],
      ...(state === 'ready' ? [] : [['Why', oneLine(reason)] as const]),
      ['Workspace', oneLine(workspace)],
      ...(server === null
        ? []
        : ([
            ['Process', `${server.pid}, since ${server.since}${server.background ? ', in the background' : ''}`],
            ['Commands', `${server.commands} running`],
            ['Warm', warm.length > 0 ? oneLine(warm.join(', ')) : 'none'],
            ...(warm.length > 0 ? [['Note', NO_CACHES] as const] : []),
          ] as const)),
      ['sandbox.serve', `${setting.value}${setting.setBy === null ? '' : ` (${oneLine(setting.setBy)})`}`],
    ],
    look,
  );
}
