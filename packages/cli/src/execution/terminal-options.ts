// Terminal options: what programs inside may do with the terminal besides drawing, by an option or the user’s own configuration.

import { resolve } from 'node:path';
import { Option } from '@commander-js/extra-typings';
import type { Call } from '../call.ts';
import { UsageError } from '../failure/usage.ts';
import type { ScreenFilterOptions } from '../terminal/screen-filter.ts';

/** The option that lets programs hear of the mouse. */
export function mouseOption(description: string) {
  return new Option('--mouse', description);
}

/** Refuses `--mouse` for a command without a terminal. */
export function refuseMouse(options: {
  readonly mouse?: true | undefined;
  readonly terminal?: true | undefined;
}): void {
  if (options.mouse && !options.terminal)
    throw new UsageError('--mouse needs -t: only a command with a terminal has a mouse.', 'Add -t, or leave it out.');
}

/** What passes in this call. Only the user’s own file, never a repository’s, consents to more than drawing. */
export async function filterOptions(call: Call, mouse: true | undefined): Promise<ScreenFilterOptions> {
  const { Acode } = await import('@acode/sandbox');
  const { config } = call.options;
  const configuration = await Acode.configuration({
    workspace: (await call.place()).root,
    ...(config === undefined ? {} : { configFile: resolve(call.io.cwd(), config) }),
  });
  const own = async (key: string): Promise<unknown> =>
    (await configuration.get(key)).find(({ layer }) => layer === 'user')?.value;
  return {
    mouse: mouse === true || (await own('sandbox.terminal.mouse')) === true,
    clipboard: (await own('sandbox.terminal.clipboard')) === 'write',
  };
}
