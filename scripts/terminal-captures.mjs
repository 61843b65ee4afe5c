// What a person sees at 40, 80 and 200 columns: doctor, status, list, explain, an error and a denial.
// Usage, as an ordinary user: node scripts/terminal-captures.mjs [--socket PATH] [--image REFERENCE] > docs/results/terminal.md

import { parseArgs } from 'node:util';
import { Home, commitHere } from './at-terminal.mjs';

const { values } = parseArgs({
  options: {
    socket: { type: 'string', default: '/var/run/docker.sock' },
    image: { type: 'string', default: 'busybox' },
  },
});
const WIDTHS = [40, 80, 200];
const CAPTURES = [
  ['doctor', 'acode doctor'],
  ['status', 'acode sandbox status'],
  ['list', 'acode sandbox list'],
  ['explain', 'acode explain -- npm test'],
  ['an error', 'acode run --image ghcr.io/foo/bar -- true'],
  ['a denial', 'acode run "touch /x"'],
  ['a limit', 'acode run --timeout 1 "sleep 5"'],
  ['help', 'acode sandbox exec --help'],
];

const home = new Home(values.socket);
home.imagePrefix = '';
try {
  await captures();
} finally {
  home.remove();
}

async function captures() {
  home.write('.config/acode/config.yml', `sandbox:\n  images:\n    default: ${values.image}\n`);
  await home.type('acode sandbox create --name web-server');
  const commit = commitHere();
  console.log(`# Terminal output at 40, 80 and 200 columns

Written by \`node scripts/terminal-captures.mjs\` for commit ${commit}. A line of a capture is a row of the terminal, which
breaks longer lines wherever they end.
`);
  for (const [title, line] of CAPTURES) {
    console.log(`## ${title}\n\n\`${line}\`\n`);
    for (const columns of WIDTHS) {
      const { text } = await home.type(line, { columns });
      console.log(`${columns} columns:\n\n\`\`\`text\n${text}\n\`\`\`\n`);
    }
  }
  await home.type('acode sandbox kill web-server');
}
