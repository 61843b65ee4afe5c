// A client of its own process, to be killed: runs a command that sleeps on the engine and in the session it is told.
// Usage: node client.mjs <engine socket> <session> <image>, in the workspace.

import { Acode } from '../../packages/sandbox/dist/index.js';

const [socket = '', sessionId = '', image = ''] = process.argv.slice(2);
const acode = await Acode.open({
  workspace: process.cwd(),
  engine: { socket },
  sessionId,
  config: { sandbox: { images: { default: image } } },
});
await acode.run(['sleep', '60']);
