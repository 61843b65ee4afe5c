// `acode login` and `acode logout`: logins at servers, whose tokens acode keeps and no sandbox has.

import { Command } from '@commander-js/extra-typings';
import type { Perform } from '../call.ts';

/** `acode login`. */
export function loginCommand(perform: Perform) {
  return new Command('login')
    .description('Log in to a server whose tokens acode keeps, or list such logins')
    .argument('[name]', 'a login of sandbox.network.logins, or an agent; without it, the logins are listed')
    .action((name, _options, command) =>
      perform(command, async call => (await import('./login-view.ts')).logIn(call, name)),
    );
}

/** `acode logout`. */
export function logoutCommand(perform: Perform) {
  return new Command('logout')
    .description('End a login: tell its server, and remove the tokens')
    .argument('<name>', 'the login')
    .action((name, _options, command) =>
      perform(command, async call => (await import('./login-view.ts')).logOut(call, name)),
    );
}
