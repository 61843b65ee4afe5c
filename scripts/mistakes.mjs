// The mistakes of a newcomer, typed into the built command on a real engine, and what a person sees at 80 columns.
// Usage, as an ordinary user in the engine's group:
//   node scripts/mistakes.mjs --socket PATH [--busybox IMAGE] [--debian IMAGE] [--closed SOCKET] [--only 5,9] > docs/results/mistakes.md
//
// The rates of each are those of two readers, given from the text alone: 5 = I knew at once what to do, 1 = it led me astray.
// They belong to the text that was rated: where the text changes, its digest does, and the table says so.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Home, commitHere } from './at-terminal.mjs';

const { values } = parseArgs({
  options: {
    socket: { type: 'string', default: '/var/run/docker.sock' },
    busybox: { type: 'string', default: 'busybox' },
    debian: { type: 'string', default: 'debian' },
    closed: { type: 'string', default: '/nonexistent' },
    only: { type: 'string' },
  },
});
const { busybox, debian, closed } = values;
const USUAL = `sandbox:\n  images:\n    default: ${busybox}\n`;

/** Number, what is typed, and what is different from a plain project with a usual configuration. */
const MISTAKES = [
  [1, 'acode rnu'],
  [2, `acode run --imgae ${busybox} -- ls`],
  [3, 'acode run'],
  [4, 'acode run ls -la'],
  [5, 'acode run busybox ls'],
  [6, 'acode run --rm ls; acode run -it ls'],
  [7, 'acode run -e A=1 -- env'],
  [8, 'acode run --env A -- env'],
  [9, 'acode run --env NODE_OPTIONS=--inspect -- node app.js'],
  [10, `acode run -- ls --image ${busybox}`],
  [11, 'acode run -- "ls -la"'],
  [12, 'acode run --memory lots -- ls; acode run --memory 1 -- ls'],
  [13, 'acode run --timeout 0 -- ls'],
  [14, 'acode run --pull never --image node:99 -- ls'],
  [15, 'acode run --image node:99 -- ls'],
  [16, 'acode run --image NODE:20 -- ls'],
  [17, 'acode run --image ghcr.io/foo/bar -- ls'],
  [18, 'env -u DOCKER_HOST acode run -- ls'],
  [19, 'DOCKER_HOST=tcp://10.0.0.1:2375 acode run -- ls'],
  [20, 'acode run --socket /etc/passwd -- ls'],
  [21, `acode run --socket ${closed} -- ls`, { shown: 'acode run -- ls   # not in the group of the engine' }],
  [22, 'unshare -r acode run -- ls', { shown: 'acode run -- ls   # as root' }],
  [23, 'acode run -- ls', { cwd: '.' }],
  [24, 'acode run --workspace ~/nope -- ls'],
  [25, 'mkdir -p ~/data; acode run --mount ~/data:/data -- ls', { shown: 'acode run --mount ~/data:/data -- ls' }],
  [
    26,
    'acode run --mount /etc/ssl/certs:/certs "ls /certs | head -2"',
    { config: `${USUAL}  mounts:\n    allowed_host_roots: [/etc/ssl/certs]\n` },
  ],
  [27, 'acode run --workdir /tmp -- ls'],
  [28, 'acode run --network host -- ls'],
  [29, 'acode run --network registry.example -- npm ci'],
  [30, 'acode run "sudo ls"'],
  [31, `acode run --image ${debian} "apt-get update"`],
  [32, 'acode run "echo x >> .git/config"'],
  [33, `acode run --image ${debian} "npm test"`, { cwd: 'node' }],
  [
    34,
    'acode run -- ls',
    {
      config: `sandbox.network.allow_bridge: true\nsandbox.images.default: ${busybox}\n`,
      shown: 'acode run -- ls   # config.yml: sandbox.network.allow_bridge: true',
    },
  ],
  [
    35,
    'acode run -- ls',
    {
      config: 'sandbox:\n  defaults:\n    memory: 512\n',
      shown: 'acode run -- ls   # config.yml: sandbox: defaults: memory: 512',
    },
  ],
  [
    36,
    'acode run -- ls',
    { config: 'sandbox:\n\tdefaults: {}\n', shown: 'acode run -- ls   # config.yml indented with a tab' },
  ],
  [
    37,
    'acode run -- ls',
    {
      config: 'sandbox:\n  defaults:\n    timeout_seconds: ten\n',
      shown: 'acode run -- ls   # config.yml: sandbox: defaults: timeout_seconds: ten',
    },
  ],
  [
    38,
    'chmod 000 ~/.config/acode/config.yml; acode run -- ls; chmod 600 ~/.config/acode/config.yml',
    { shown: 'acode run -- ls   # config.yml with mode 000' },
  ],
  [39, 'mkdir -p ro; chmod 555 ro; acode run "touch ro/x"', { shown: 'acode run "touch ro/x"   # ro has mode 555' }],
  [40, 'acode run "yes | head -c 30000000" > /dev/null'],
  [41, 'acode run yes | head -1'],
  [
    42,
    `acode run "trap '' INT TERM; echo started; while :; do sleep 1; done"`,
    {
      type: [['started', '\u0003']],
      shown: `acode run "trap '' INT TERM; …"   # Ctrl-C`,
    },
  ],
  [
    43,
    'sh -im',
    {
      type: [
        ['$', 'acode run "echo started; sleep 2; echo done"\n'],
        ['started\r\n', '\u001a'],
        ['Stopped', 'fg\n'],
        ['done\r\n', 'exit\n'],
      ],
      shown: 'acode run "echo started; sleep 2; echo done"   # Ctrl-Z, fg',
    },
  ],
  [44, 'acode sandbox kill zzzz'],
  [45, 'acode ps; acode exec; acode shell; acode sandbox rm'],
  [46, 'acode -v; acode config; acode init'],
  [47, 'acode --json run --image NODE:20 -- ls; acode --json run --imgae x'],
  [48, 'echo ls | acode sandbox shell'],
  [49, 'acode run --timeout 1 "sleep 5"'],
  [50, 'acode run --user 0:0 -- ls'],
  [51, 'acode sandbox cp a b'],
  [
    52,
    'acode run -- ls',
    { cwd: 'mixed', config: 'sandbox: {}\n', shown: 'acode run -- ls   # package.json and pyproject.toml' },
  ],
  // Allow-lists and forks.
  [53, 'acode run --network "allow=*" -- ls'],
  [54, 'acode run --network allow=https://registry.npmjs.org -- npm ci'],
  [55, 'acode run --network npm:install -- npm ci; acode run --network pypi -- npm ci'],
  [56, 'acode run --network allow=npm -- npm ci; acode run --network allow=npm:instal -- npm ci'],
  [57, 'acode run --network "allow=npm:install pypi" -- npm ci'],
  [58, 'acode run --network allow=10.0.0.5 -- ls; acode run --network allow=localhost:5432 -- ls'],
  [59, `acode run --image ${debian} --network allow=pypi "git ls-remote https://github.com/a/b"`],
  [60, 'acode run --net none -- ls; acode run --allow pypi -- ls'],
  [61, 'acode config set sandbox.network.allow npm:instal --yes'],
  [62, 'acode fork apply'],
  [
    63,
    'acode run --fork "touch new.txt" 2>/dev/null; cd ../mixed; acode fork apply',
    { shown: 'acode fork apply   # in another directory than the fork' },
  ],
  [64, 'acode fork apply < /dev/null'],
  [65, 'acode fork diff nope'],
  [66, 'acode diff; acode apply'],
  [67, 'acode --fork run ls; acode fork run ls'],
  [68, 'acode run --fork --readonly -- ls; acode run --fork --deps -- ls'],
  [69, 'acode run -- --fork ls'],
];

const RATES = JSON.parse(readFileSync(new URL('./mistakes.json', import.meta.url), 'utf8'));
const only = values.only?.split(',').map(Number);

const home = new Home(values.socket);
try {
  home.write('node/.git/HEAD', '');
  home.write('node/package.json', '{"scripts":{"test":"vitest"},"devDependencies":{"vitest":"3"}}\n');
  home.write('node/package-lock.json', '{}\n');
  home.write('mixed/.git/HEAD', '');
  home.write('mixed/package.json', '{}\n');
  home.write('mixed/pyproject.toml', '[project]\nname = "x"\n');
  const seen = [];
  for (const [number, line, given = {}] of MISTAKES) {
    if (only && !only.includes(number)) continue;
    home.write('.config/acode/config.yml', given.config ?? USUAL);
    const { text } = await home.type(line, given);
    seen.push({ number, shown: (given.shown ?? line).replaceAll('acode-test/', ''), text });
  }
  console.log(report(seen));
} finally {
  home.remove();
}

function report(seen) {
  const rated = seen.map(one => ({ ...one, ...rateOf(one) }));
  const [first, second] = ['rate', 'second'].map(of => summary(rated.flatMap(one => one[of] ?? [])));
  const changed = rated.filter(one => one.changed).length;
  const commit = commitHere();
  const rows = rated.map(
    ({ number, shown, ...one }) =>
      `| ${number} | \`${shown.replaceAll('|', '\\|')}\` | ${rateText(one, 'rate')} | ${rateText(one, 'second')} |`,
  );
  const texts = rated.map(({ number, shown, text }) => `### ${number}\n\n\`${shown}\`\n\n\`\`\`text\n${text}\n\`\`\``);
  return `# Mistakes of a newcomer

Written by \`node scripts/mistakes.mjs\` for commit ${commit}: each line was typed into the built command at a terminal of 80
columns, on a real engine. Two readers who had never seen acode rated the texts, from the text alone: 5 = I knew at once what
to do, 1 = it led me astray. ${changed === 0 ? 'The texts below are those that they rated.' : `${plural(changed)} changed since; the rates are those of the texts before.`}

- First reader: ${first}
- Second reader: ${second}

| # | typed | first reader | second reader |
|---|---|---|---|
${rows.join('\n')}

## What a person sees

${texts.join('\n\n')}
`;
}

function plural(count) {
  return count === 1 ? '1 text was' : `${count} texts were`;
}

function summary(rates) {
  const mean = rates.reduce((sum, rate) => sum + rate, 0) / Math.max(1, rates.length);
  return `mean of ${rates.length}: ${mean.toFixed(2)}, lowest: ${rates.length === 0 ? 'none' : Math.min(...rates)}.`;
}

function rateText({ changed, ...rates }, of) {
  const rate = rates[of];
  if (rate === undefined) return 'not rated';
  return changed ? `${rate}, changed since` : String(rate);
}

// Numbers and ids that differ from run to run, and where a terminal breaks lines, are no change of a text.
function rateOf({ number, text }) {
  const same = text
    .replaceAll(/\s/g, '')
    .replaceAll(/"correlationId":"[^"]*"/g, '')
    .replaceAll(/\d+(?:\.\d+)?/g, '0');
  const digest = createHash('sha256').update(same).digest('hex').slice(0, 8);
  const { text: known = '', ...rates } = RATES[number] ?? {};
  // What a terminal shows of keys that are pressed meanwhile depends on the moment.
  return { ...rates, changed: known !== '*' && known !== digest };
}
